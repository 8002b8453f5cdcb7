/* The entries of the table of jobs (job_table.h): jobs that have not ended, arrays, names of
 * queues, and kinds of ready jobs. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/place.h"
#include "core/queue_waits.h"
#include "daemon/queue/job.h"

struct process_watch;
struct queue_use;
struct queues;

/* Why a job that waits has not started. */
enum job_wait {
	JOB_WAITS_TURN, /* it was not looked at yet */
	JOB_WAITS_ROOM,
	JOB_WAITS_RESERVED,
	JOB_WAITS_MOST,
	JOB_WAITS_AGENT,       /* no agent serves its queue */
	JOB_WAITS_DRAIN,       /* its queue is drained */
	JOB_WAITS_BEGIN,       /* its time has not come */
	JOB_WAITS_AFTER,       /* a job that it comes after has not ended */
	JOB_WAITS_ARRAY,       /* as many of its array run as may */
	JOB_WAITS_SIZE,        /* it has no size, or a larger one than its queue */
	JOB_WAITS_QUOTA,       /* its user's quota */
	JOB_WAITS_HOURS,       /* the next month, as its user's GPU-hours are used up */
	JOB_WAITS_GROUP_HOURS, /* likewise, those of a group of its user */
	JOB_WAITS_QUOTA_NEVER, /* that is less than the job needs */
	JOB_WAITS_INSTANCE,    /* its MIG instance is being made */
	JOB_WAITS_FAILURE,     /* it could not be started; it is tried again */
};

/* The process whose end is the job's. SHIM -> COMMAND where the shim was killed, and the command
 * goes on. COMMAND -> COMMAND_KILLED when its time to end is over. */
enum job_watched {
	JOB_WATCHED_SHIM,
	JOB_WATCHED_COMMAND,
	JOB_WATCHED_COMMAND_KILLED, /* it was sent SIGKILL, and is waited for no longer than that */
};

struct job {
	struct job *next_id;
	struct job *next, *previous;
	struct job_list *list;    /* the one that it is in */
	struct job_record record; /* `place`, `ending`, `reason` are malloc'ed, or "" */
	struct job_spec *spec;
	struct queues *queues;
	struct job_array *array;
	struct job *next_of, *previous_of; /* its neighbours in its array */
	struct queue_use *user;
	struct job *next_of_user, *previous_of_user; /* in the order of coming */
	uint64_t came;                               /* its number in that order */
	enum job_wait wait;                          /* where it is not in a bucket */
	/* How often it could not be started, since it ran last. Then why (-errno; 0: not known),
	 * whether that is its files' directory, and the time before which it is not tried again. */
	unsigned failures;
	int failure;
	bool no_files;
	uint64_t again_ns;
	int64_t claim;             /* the job that it was preempted for last; 0: none */
	struct queue_target ended; /* the jobs that come after it */
	/* While it runs. */
	struct process_watch *watch;
	enum job_watched watched;
	struct place_grant *grants; /* by positions in the pool; malloc'ed */
	uint32_t grant_count, compute;
	uint64_t started_ns; /* CLOCK_MONOTONIC */
	/* GPUs (bits, by positions in the pool) whose MIG instances are being changed for it; and
	 * whether that was done since it was last kept waiting for it. */
	uint64_t making;
	bool made;
	uint64_t kill_ns; /* it was told to end: when it is killed; 0: it was not told */
	/* The request to the warden: to start it, or to end its processes. NULL:
	 * nothing. */
	uint64_t asked;
	bool starting;        /* its shim was asked for, and is not there yet */
	bool processes_ended; /* the launcher ended what was left of its last attempt */
	/* The removal of its container is waited for until then, CLOCK_MONOTONIC; 0: it is not. */
	uint64_t remover_until_ns;
};

/* A queue that jobs name, as long as some do: who enqueues may think of any name. */
struct queue_name {
	struct queue_name *next;
	uint32_t waiting, running; /* jobs that have not ended */
	char text[QUEUE_NAME_SIZE];
};

/* Ready jobs that are alike: where the first one finds no room, neither do the others. */
struct queue_bucket {
	struct queue_bucket *next, *previous; /* its user's buckets, the newest last */
	struct queue_bucket *next_of_table;
	struct job_list list; /* by ID */
	const char *queue;
	struct queue_use *user;
	int priority;
	const struct job_spec *like; /* one job's spec; `used` keeps it */
	struct job_array *array;     /* where that has a limit of jobs at a time; else NULL */
	enum job_wait wait;
	uint64_t again_ns; /* not before */
};

struct job_array {
	struct job_array *next;
	int64_t id;
	uint32_t living, running, most;
	unsigned halts;            /* so many changes of its jobs are under way: none starts */
	struct job *jobs, *last;   /* that have not ended, by ID */
	struct queue_target ended; /* the jobs that come after all of it */
};
