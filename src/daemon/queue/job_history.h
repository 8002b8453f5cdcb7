/* Jobs that have ended, and are kept. */
#pragma once

struct job_history;
struct job_record;
struct queues;

int queue_history_load(struct queues *q);
void queue_history_add(struct queues *q, const struct job_record *record);
/* Forgets the oldest of jobs that have ended, of the user who has most, some at a time: the most
 * jobs, or the most text. */
void queue_history_trim(struct queues *q, const struct job_history *keep);
