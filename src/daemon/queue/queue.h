/* Queues at work: agents, the jobs that have not ended, and who starts next. core/queue.h decides;
 * this asks it when something changed, starts shims, and notes how jobs end. Loop thread only.
 *
 * No job is lost and none runs twice, because of the order of steps. Each step has a kill point,
 * and tests/system/queue kills the daemon or the shim at every one of them:
 *   1. the job is on disk before the client is told its ID;
 *   2. the slice is granted to the job, and a shim is started, which waits;
 *   3. the slice becomes the shim's, and the start is written to disk, with the shim;
 *   4. the shim is told to go;
 *   5. the shim records that the command starts, then lets it run, then records how it ended;
 *   6. the end is written to disk, and the records are removed.
 * A daemon that starts finds what the last one left in its database and in the records. */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/queue.h"
#include "core/queue_spec.h"
#include "daemon/queue/job.h"

struct call;
struct error;
struct job_list;
struct launcher;
struct pool;
struct queues;
struct quotas;
struct runtime;
struct sessions;
struct waiting;
struct queue_bucket;
struct queue_use;
struct queues;
struct warrant;

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

struct agent_pods;

struct agent_queue {
	struct queue_spec spec;
	bool draining;
	uint32_t running;
};

struct agent {
	struct agent *next;
	char id[16];
	uid_t uid;
	gid_t gid;
	struct agent_pods *pods; /* its jobs are pods (queue_pods.h), owned; NULL: they run here */
	uint64_t gpus;           /* by NVML index; of pods none */
	bool fair;
	uint32_t last; /* the queue that started a job last */
	/* The image of jobs' containers, where neither the job nor its queue names one; "": none.
	 * And which options of the runtime jobs may have: queue_container_refuse(). */
	char image[QUEUE_IMAGE_SIZE], container_allow[256], container_deny[256];
	int64_t started;
	struct process_id owner; /* pid 0: it is detached */
	struct process_watch *watch;
	bool ended; /* its command: it is stopped once that can be written */
	struct queues *queues;
	uint32_t queue_count;
	struct agent_queue queue[QUEUE_LIST_MAX];
	/* The last decision. */
	int64_t head;         /* the job that has a placement reserved; 0: none */
	uint64_t reserved_ns; /* CLOCK_MONOTONIC; QUEUE_NEVER: not known */
	int64_t blocker;
};

/* The parts of the daemon that this room uses, lent by its root. */
struct queues_host {
	struct sessions *sessions;
	struct fair *turns; /* the loop's budget, from which all work on jobs is taken */
	struct pool *pool;
	struct waiting *waiting;
	struct quotas *quotas;
	struct launcher *launcher;
	const char *state_dir;
	const struct runtime *runtime;
	const bool *ready;            /* jobs are decided on */
	const uint32_t *history_jobs; /* ended jobs that are kept, now */
	const uint32_t *history_text_mib;
	const uint32_t *living_jobs; /* those that have not ended, at a time */
};

/* Opens the database and takes up what the last daemon left. After the sessions are back. NULL:
 * that failed, and *err says why. */
struct queues *queues_start(const struct queues_host *host, struct error *err);
/* Takes NULL. Jobs go on. */
void queues_stop(struct queues *queues);
/* Answers those who wait for the disk: the daemon stops. The loop waits. Takes NULL. */
void queues_settle(struct queues *queues);
/* Something changed that may let a job start. */
void queues_kick(struct queues *q);
/* Before the loop sleeps: writes what was enqueued, and starts what can start. */
void queues_run(struct queues *q);
void queues_tick(struct queues *q);
/* Whether somebody removed a file of the queues' database, whose name is returned, else NULL. */
const char *queues_database_missing(const struct queues *q);
/* As database_copy(). */
int queues_database_copy(const struct queues *q);
/* Whether the daemon is needed: an agent is there, or a job runs. */
bool queues_busy(const struct queues *q);

/* ---- agents */
struct agent *agents_first(const struct queues *q);
struct agent *agent_find(const struct queues *q, const char *id);
/* Whether it runs this user's jobs: root's runs everybody's, any other its own user's. */
bool agent_runs_for(const struct agent *agent, uid_t uid);
/* The agent that serves a queue for a user ((uid_t)-1: for anybody), and its queue's position.
 * NULL: none. */
struct agent *agent_serving(const struct queues *q, const char *queue, uid_t uid,
			    uint32_t *ret_position);
#define JOB_WHY_SIZE 256
/* Why no agent starts jobs of the job's queue for its user; "" where one does. */
const char *job_halt(const struct job *job, char buf[static JOB_WHY_SIZE]);
/* Why no agent serves the job's queue for its user, where that is so. */
const char *job_unserved(const struct job *job, char buf[static JOB_WHY_SIZE]);
/* The place the job would have on the agent's GPUs if nobody else were there: the fewest bytes on
 * each of so many GPUs as it needs. Returns 0, or -ENOSPC: they can never grant it. */
int agent_least(const struct queues *q, const struct agent *agent,
		const struct place_request *request, struct place_result *ret);
/* Starts an agent: checks it, and writes it down. `wanted` is copied, and its pods
 * become the started one's. 0 with *ret, or negative with *err. */
int agent_start(struct queues *q, const struct agent *wanted, struct agent **ret,
		struct error *err);
/* Ends it. `now`: with its jobs; else these end by themselves. */
void agent_stop(struct agent *agent, bool now, const char *why);
/* Drains a queue of it (NULL: all), or resumes it. -ENOENT: it has no such queue. */
int agent_drain(struct agent *agent, const char *queue, bool drain);

/* ---- jobs */
struct job *job_find(const struct queues *q, int64_t id);
/* One of the jobs that are meant by an ID and have not ended; NULL: none is. For an array that is
 * found without looking at all of it. */
const struct job *job_meant(const struct queues *q, int64_t id, int32_t index);
/* The same as one change on the disk: all of it, or nothing that anybody was told of. A long array
 * takes several rounds of the loop, in which none of it starts; users (`owner`: as in host/crowd.h)
 * take turns. `done` is called with 0 or -errno when the change is on the disk. It is called before
 * this returns only where there is no such job, or no memory. */
typedef void (*jobs_cb)(struct job *job, void *arg);
typedef void (*jobs_done_cb)(void *arg, int rc);
void jobs_change(struct queues *q, uid_t owner, int64_t id, int32_t index, jobs_cb cb,
		 jobs_done_cb done, void *arg);
/* The job whose slice this session is, while it runs; NULL: it is no job's. */
const struct job *job_of_session(const struct queues *q, const char *session);
/* Enqueues `count` jobs, an array where `indexes` is there. When they are on disk it calls back
 * with the ID of the first. 0 in its place: they could not be written, and *err says why. Where 0
 * is returned, `text` (malloc), `indexes` and the warrant of `spec` become the queue's. */
typedef void (*enqueue_cb)(void *arg, int64_t id, uint32_t count, const struct error *err);
struct enqueue_request {
	const struct peer *peer;
	const char *queue, *key;
	struct job_spec spec;
	char *text;
	uint32_t count;
	int32_t *indexes;
	enqueue_cb cb;
	void *arg;
};
int jobs_enqueue(struct queues *q, const struct enqueue_request *request);
/* Whether a request of that user's with that key is being written: it has no ID to be told yet. */
bool jobs_enqueue_has(const struct queues *q, uid_t uid, const char *key);
/* Nobody waits for that answer any more. */
void jobs_enqueue_forget(struct queues *q, void *arg);
/* Has a job ended: at once where it does not run. */
void job_cancel(struct job *job, const char *why);
/* 0, or negative with *err. */
int job_hold(struct job *job, bool hold, struct error *err);
/* Another queue, priority or text (NULL: as they are), the last with its warrant (malloc, which
 * becomes the job's; or NULL). The job must be waiting. */
int job_change(struct job *job, const char *queue, const int *priority, const char *text,
	       struct warrant *warrant, struct error *err);
/* The prospect of a job that waits: the job that it waits for (0: for none that is known), and when
 * it starts. The time follows from time limits, at the latest (ns since 1970; 0: not known). */
struct job_prospect {
	int64_t blocker, starts;
};
struct job_prospect job_prospect(const struct job *job);
/* The running jobs whose end lets a job start that waits for room: for one job that is asked for,
 * as it is tried out. False: nobody knows. */
bool job_waits_for(const struct job *job, struct queue_ends *ret);
/* As users call the job of that number: 17, or 17_3 of an array. One that has ended is called by
 * the number. */
const char *queue_job_id_text(const struct queues *q, int64_t id, char buf[static JOB_ID_TEXT]);
/* In words: why it waits. */
const char *job_why(const struct job *job, char buf[static JOB_WHY_SIZE]);
/* Why the job waits, in words, with what job_waits_for() found. */
const char *job_waits_text(const struct job *job, const struct queue_ends *ends,
			   char buf[static JOB_WHY_SIZE]);
/* The path of a file of a job's last attempt: DIR/NAME with that suffix. */
void job_file(const struct queues *q, const struct job_record *record, const char *suffix,
	      char buf[static PATH_MAX]);

/* ---- waits for changes --------------------------------------------------------------------- */

/* Every change of a job's state has a number. */
typedef void (*job_event_cb)(void *arg);
uint64_t queue_events_last(const struct queues *q);
/* The changes after number `from`, the oldest that are remembered first; those that the viewer may
 * not see in detail are left out. */
json_t *queue_events(const struct queues *q, uint64_t from, const struct peer *viewer,
		     uint64_t *ret_next);
/* The ends of jobs are numbered from 1 on, without regard to restarts. The numbers are those of one
 * database: a new database has another one, and its ends have the first numbers
 * again. Only ends that are on the disk are told, so that a power cut takes no number back. */
struct queue_end_part {
	json_t *ends;         /* owned by the caller; those that the viewer may see in detail */
	const char *database; /* the ID of the database */
	uint64_t next;        /* the first number that was not looked at */
};
/* The first number that no end on the disk has. */
uint64_t queue_end_next(const struct queues *q);
/* Whether the end with this number is still to come, or to come to the disk, as the next one or one
 * of those whose jobs have ended. */
bool queue_end_is_awaited(const struct queues *q, uint64_t number);
/* Looks at some ends from number `from` on. A `next` below `from` says that no end has come near
 * that number. 0 or -errno. */
int queue_end_read(const struct queues *q, uint64_t from, const struct peer *viewer,
		   struct queue_end_part *ret);
/* Calls once at the next change, or when ends have come to the disk. */
int queue_listen(struct queues *q, job_event_cb cb, void *arg);
void queue_unlisten(struct queues *q, void *arg);
