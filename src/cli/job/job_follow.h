/* Waiting for a job as `carve enqueue --wait` does it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct client;
struct error;
struct job_input;

/* Waits until the job (`one`), or all of the array, have ended. `prints`: its ID is said, and the
 * output of one job is printed meanwhile. Signals are taken: the first Ctrl-C says what the next
 * one does, which is to cancel; SIGTERM cancels. Standard input is passed on. 0 with *ret, a list
 * that is the caller's; the exit code, where the jobs were left as they are; or negative with *err.
 */
int job_follow(const struct client *client, const char *id, bool one, bool prints,
	       struct job_input *input, json_t **ret, struct error *err);
