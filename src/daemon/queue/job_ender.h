/* The ender: how jobs end. It watches their processes, reads what the shims recorded, writes the
 * ends, and ends jobs that are to end. It reports each end, and the loop does what follows for
 * other jobs. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/queue/job.h"

struct job;
struct job_ender;
struct queues;

/* Reports of what became of a job. The ender and the waits call them, and the loop acts. A job
 * may be freed by a report. */
struct job_report {
	/* The end is on disk. `ran`: the job counted among those that run. */
	void (*over)(struct job *job, bool ran);
	/* The attempt is over, and that is on disk: the job is to wait again. */
	void (*again)(struct job *job, bool ran);
	/* A job that waits again had an attempt that never ran. It is not to be started at once. */
	void (*unstarted)(struct job *job);
	/* The job waits for something that cannot come. */
	void (*never)(struct job *job, const char *reason);
};

/* NULL: no memory. To be freed by free(), after the jobs. */
struct job_ender *job_ender_new(void);
/* Whether ends are to be read or written. */
bool jobs_ending(const struct queues *q);
/* Returns whether jobs_end_part() has something to do, and gives the owner of the next end. */
bool jobs_end_owner(const struct queues *q, uid_t *ret);
/* Watches what runs of it; where nothing does, jobs_end_part() finds out how it ended. */
void job_watch(struct job *job);
/* True: it ran, and its end is not written yet. */
bool job_is_ending(const struct job *job);
/* Reads and writes ends of jobs, in their users' turns, until the loop has waited long enough; the
 * rest in its next round. A user's processes may all end at one moment. */
void jobs_end_part(struct queues *q);
/* Ends that could not be written are due again, unless the launcher is away. */
void jobs_end_again(struct queues *q);
/* Ends a job that does not run. */
void job_finish(struct job *job, enum job_state state, const char *reason);
/* A running job is to end: as what, and why. */
void job_end_begin(struct job *job, enum job_state as, const char *why);
/* Tells the shim, which may be another one than the last that was told. */
void job_end_again(struct job *job);
void job_end_tick(struct job *job, uint64_t now);
/* Kills what is left of the job's last attempt in its cgroup, where its shim did not. 0 or -errno.
 * -EINPROGRESS: the warden was asked to, and the job's end goes on with its answer. */
int job_processes_end(struct job *job, bool by_shim);
/* An attempt that never ran: nobody waits for the end of its processes. */
void job_processes_drop(const struct job *job);
void job_cgroup_remove(struct queues *q);
