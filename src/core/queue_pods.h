/* Queues whose jobs are pods: which job starts. A cluster's scheduler finds the GPU, so only
 * numbers of jobs count here. Pure, as core/queue.h. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/queue.h"

/* Decides about one start, of jobs in the order of queue_sort(). `running` of the agent's jobs are
 * pods now, and `most` may be; `queues` has the limits by position. In *ret only start and head are
 * meant: head is the first job that `most` keeps from starting. `why` as in queue_decide(). */
void queue_pods_decide(const struct queue_limit *queues, uint32_t running, uint32_t most,
		       const struct queue_job *jobs, size_t count, struct queue_decision *ret,
		       enum queue_wait *why);
/* The running job that is ended for `head`: the one of lowest priority below the head's that may
 * run again, of these the youngest. By position; QUEUE_NONE: none. */
int queue_pods_preempt(const struct queue_running *running, size_t count,
		       const struct queue_job *head);
