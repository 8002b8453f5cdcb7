/* Which jobs agents start next (core/queue.h decides). Loop thread only. */
#pragma once

#include <stdbool.h>

struct job;
struct queue_ends;
struct queues;

/* Decides for each agent what it starts next, and starts it, for a part of the loop's time.
 * q->starts_more: there is more to do at once. */
void decision_make(struct queues *q);
/* Whether a job is ready that an agent serves. Where there are many kinds, not all are looked at.
 */
bool decision_waits(const struct queues *q);
/* The running jobs whose end lets a job start that waits for room: for one job that is asked for,
 * as it is tried out. False: nobody knows. */
bool decision_explain(const struct job *job, struct queue_ends *ret);
