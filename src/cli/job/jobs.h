/* Jobs as the daemon tells of them. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct cli;
struct client;
struct error;

/* Where a job is in the daemon's API, with `suffix`. 0, or negative with *err: no ID looks so. */
#define JOB_PATH_SIZE 96
int job_path(const char *id, const char *suffix, char buf[static JOB_PATH_SIZE], struct error *err);
/* The ID that a text of the command line means: itself, "17" or "17_3", or "17" of "17_*", which is
 * all of an array. Any other text is a name, and means the one job or array that has the name;
 * "NAME_3" and "NAME_*" also mean these jobs of the array with that name. With
 * `living` the jobs that have not ended are looked at first. 0, or negative with *err: no job has
 * the name, or several jobs have. */
#define JOB_ID_SIZE 40
int job_id_find(const struct client *client, const char *text, bool living,
		char ret[static JOB_ID_SIZE], struct error *err);
/* The jobs that an ID means; with `waits` once all have ended. A list, owned by the caller. 0, or
 * negative with *err. */
int jobs_meant(const struct client *client, const char *id, bool waits, json_t **ret,
	       struct error *err);
/* The jobs that have not ended: a list, owned by the caller. `filter` is "" or "&queue=NAME" of the
 * daemon's API. */
int jobs_living(const struct client *client, const char *filter, json_t **ret, struct error *err);
/* Whether job `a` was enqueued before `b`: 17 before 17_1 of an array, and that before 18. */
bool job_came_before(const json_t *a, const json_t *b);
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
/* Prints changes of jobs as they come. Returns where it cannot go on: negative with *err. */
int job_changes_print(const struct cli *cli, struct error *err);
/* A key for a request, so that it may be made again. NULL: no memory. */
json_t *job_key(void);
