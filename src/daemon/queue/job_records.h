/* The records that shims leave of jobs' attempts (proto/shim.h). Loop thread only. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct job;
struct job_record;
struct job_records;
struct queues;

/* NULL: no memory. To be freed by free(), after queue_records_end(). */
struct job_records *job_records_new(void);
/* Removes records of ended jobs, whose ends are on the disk then: the loop waits. */
void queue_records_end(struct queues *q);
/* Removes records of jobs whose end is on the disk, at most so many. */
void queue_records_tidy(struct queues *q, size_t most);
/* Has the ends of all jobs so far on the disk, soon. */
void queue_records_sync(struct queues *q);

/* The record of the job's last attempt: how it started, and how it ended; owned by the caller.
 * NULL: it does not say. 0, also where there is no record: nothing of it began. -errno: there is
 * one that cannot be read, and it may have run. */
int job_record_read(const struct queues *q, const struct job_record *record, json_t **ret_start,
		    json_t **ret_end);
/* The shim could not record the end, by this errno value; 0: it did not say so. */
int job_record_given_up(const struct queues *q, const struct job_record *record);
/* Removes the files of the attempt at once; `all`: those of its pod, too. */
void job_records_remove(const struct job *job, bool all);
/* Has them removed once the end is on the disk. A pod's are removed at once. */
void job_records_leave(const struct job *job);
