/* Jobs as the daemon tells of them. */
#pragma once

#include <jansson.h>

struct client;
struct error;

/* Where a job is in the daemon's API, with `suffix`. 0, or negative with *err: no ID looks so. */
#define JOB_PATH_SIZE 96
int job_path(const char *id, const char *suffix, char buf[static JOB_PATH_SIZE], struct error *err);
/* Waits until all that the ID means have ended: a list, owned by the caller. 0, or negative with
 * *err. */
int job_await(const struct client *client, const char *id, json_t **ret, struct error *err);
/* The exit code that says how jobs ended: 0 where all are done, else that of the first that is not
 * (1 where it has none). */
int jobs_exit_code(const json_t *jobs);
/* Says on standard error which job did not succeed first, and of an array how many did not. */
void jobs_failure_tell(const char *id, const json_t *jobs);
/* Says on standard error why a job that was enqueued or moved does not start, where the answer
 * does. `queue`: the queue that was named, or NULL. */
void job_waits_note(const json_t *answer, const char *queue);
/* A key for a request, so that it may be made again. NULL: no memory. */
json_t *job_key(void);
