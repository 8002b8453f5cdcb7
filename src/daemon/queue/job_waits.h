/* Jobs that wait for others to end, or for a time. All jobs of one request wait together. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/queue/job.h"

struct job;
struct queues;

/* Puts a job that waits where it belongs: among the ready ones, those that wait for others or for a
 * time, or the pending ones. It may end here, where what it waits for cannot come. */
void job_settle(struct job *job);
/* The first of those that the job would come after that is this job or waits for it. NULL: none.
 * *ret_known false: as many jobs come before that one as are looked at. */
const struct job_after *job_comes_round(const struct job *job, const struct job_spec *spec,
					bool *ret_known);
/* Looks at jobs whose time has come, or whose job that they come after has ended. It does so for a
 * while, and in the next round of the loop for those that are left. */
bool queue_waits_owner(const struct queues *q, uid_t *ret);
void queue_waits_part(struct queues *q);
/* Looks again at jobs for which there was no memory. */
void queue_waits_retry(struct queues *q);
