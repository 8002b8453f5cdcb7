/* The output of all jobs of an array, as one text. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct client;
struct error;

/* Prints each line that the array's jobs printed, with "INDEX: " in front. Without `follow` job by
 * job; with it as the lines come, until all jobs have ended. `jobs` are the array's, as the daemon
 * tells them now. `attempt` 0: the last one of each job. One thread. 0, or negative with *err. */
int job_array_log(const struct client *client, const char *id, const json_t *jobs, bool follow,
		  uint64_t attempt, struct error *err);
