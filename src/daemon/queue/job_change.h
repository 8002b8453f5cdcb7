/* Changes of jobs that their users ask for. A change of a long array is done in parts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/queue/job.h"

struct error;
struct job;
struct queues;
struct warrant;

/* Requests with more jobs are done in parts of FAIR_STEP_NS (host/fair.h), each in its user's turn.
 */
#define QUEUE_SHORT 50u

/* Calls cb(job, arg) for the jobs that `id` and `index` name, as one change on the disk: all of it,
 * or nothing that anybody was told of. A long array takes several rounds of the loop, in which none
 * of it starts; users (`owner`: as in host/budget.h) take turns. `done` is called with 0 or -errno
 * when the change is on the disk. It is called before this returns only where there is no such job,
 * or no memory. */
typedef void (*jobs_cb)(struct job *job, void *arg);
typedef void (*jobs_done_cb)(void *arg, int rc);
void jobs_change(struct queues *q, uid_t owner, int64_t id, int32_t index, jobs_cb cb,
		 jobs_done_cb done, void *arg);
/* Returns whether jobs_change() of a long array has a part to do, and gives its owner. */
bool jobs_change_owner(const struct queues *q, uid_t *ret);
/* Does the next part. */
void jobs_change_part(struct queues *q);
void jobs_change_free(struct queues *q);
/* Has a job ended: at once where it does not run. */
void job_cancel(struct job *job, const char *why);
/* Has the job ended whose slice this session is, in that state. False: it is no running job's. */
bool job_end_of_session(struct queues *q, const char *session, enum job_state as, const char *why);
/* 0, or negative with *err. */
int job_hold(struct job *job, bool hold, struct error *err);
/* Another queue, priority or text (NULL: as they are), the last with its warrant (malloc, which
 * becomes the job's; or NULL). The job must be waiting. */
int job_change(struct job *job, const char *queue, const int *priority, const char *text,
	       struct warrant *warrant, struct error *err);
