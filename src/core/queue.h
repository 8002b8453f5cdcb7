/* Queues: which job starts, and on which GPUs. Pure: plain structs in, plain structs out, no clock,
 * no I/O, no allocation. Sizes in bytes, times in nanoseconds of one clock.
 *
 * Jobs start in the order of queue_sort(). A job that does not fit does not hold up those behind
 * it, with one exception. The first job that finds no room has one placement reserved, where it can
 * begin first. A job behind it starts only where that placement is not delayed: it ends in time (by
 * its time limit), or there is room for both. So no job waits for ever, and the GPUs that it does
 * not need go on being used. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/mig.h"
#include "core/place.h"
#include "core/queue_spec.h"

/* A time that nobody knows. */
#define QUEUE_NEVER UINT64_MAX
#define QUEUE_NONE (-1)
#define QUEUE_NO_POSITION UINT32_MAX

/* A job that waits. */
struct queue_job {
	uint64_t id;
	uint64_t order; /* first come, first served: the lower one came first */
	uint32_t queue; /* its position in the agent's list */
	int priority;   /* the higher one goes first, within a queue */
	double use;     /* its user's decayed use: the lower one goes first */
	/* Its needs. For a range of whole GPUs `count` is the most, and count_min the least. */
	struct place_request request;
	uint32_t count_min;
	uint64_t limit_ns; /* it is ended after so long; 0: no limit */
};

/* A job that runs, or is being started. */
struct queue_running {
	uint64_t id;
	uint64_t started_ns;
	uint64_t ends_ns; /* at the latest; QUEUE_NEVER: it has no limit */
	const struct place_grant *grant;
	uint32_t grant_count;
	uint32_t compute; /* place_compute() of its request */
	int priority;
	bool preemptible; /* it was enqueued so that it may run again */
	bool spared;      /* from the job that is being decided: that has preempted it before */
	uint32_t queue;   /* its position in the agent's list; QUEUE_NO_POSITION: another agent's */
};

struct queue_limit {
	uint32_t running; /* jobs of this queue */
	uint32_t most;    /* at a time; 0: no limit */
};

/* GPUs that give out MIG instances: numbered as the agent's other GPUs, and not offered there. */
struct queue_mig {
	struct mig_pool *pool;
	/* By GPU and instance: the running job that has it; 0: none. */
	uint64_t holder[PLACE_GPUS_MAX][MIG_INSTANCES_MAX];
	/* Its instances are being changed: it is offered again soon. */
	bool changing[PLACE_GPUS_MAX];
};

struct queue_state {
	uint64_t now_ns;
	const struct queue_mig *mig; /* NULL: no GPU gives out instances */
	enum place_policy policy;
	const struct place_gpu *gpus; /* the memory of running jobs is promised in it */
	size_t gpu_count;
	struct queue_running *running; /* sorted here */
	size_t running_count;
	const struct queue_limit *queues; /* by position; NULL: none has a limit */
	size_t queue_count;
};

enum queue_wait {
	QUEUE_STARTS,
	QUEUE_WAITS_ROOM,     /* no room */
	QUEUE_WAITS_RESERVED, /* the room that is left is reserved for an earlier job */
	QUEUE_WAITS_MOST,     /* as many of its queue run as may */
};

struct queue_decision {
	int start;                     /* the job that starts, by position; QUEUE_NONE: none */
	struct place_result place;     /* there; not set where it gets instances: */
	struct mig_decision instances; /* count 0: parts of GPUs, or whole ones */
	int head;                      /* the first one without room; QUEUE_NONE: none */
	struct place_result reserved;  /* count 0: instances */
	uint64_t reserved_ns;          /* when it begins at the latest; QUEUE_NEVER: not known */
	uint64_t blocker;              /* the running job whose end it waits for; 0: none of them */
};

/* Puts jobs into the order in which they are served: by queue, then by priority, use and arrival.
 * Queues come as listed, or, with `fair`, in turn: from the queue after `last` on. */
void queue_sort(struct queue_job *jobs, size_t count, bool fair, uint32_t last, uint32_t queues);

/* Decides about one start. `why` (or NULL) has one entry a job; those behind the one that starts
 * are not looked at, and keep what they had. */
void queue_decide(struct queue_state *state, const struct queue_job *jobs, size_t count,
		  struct queue_decision *ret, enum queue_wait *why);

/* The jobs that a waiting job waits for, by ID. */
#define QUEUE_ENDS_MAX 64u
struct queue_ends {
	uint64_t id[QUEUE_ENDS_MAX];
	size_t count;
	bool all;   /* it starts when all of them have ended; false: when any of them ends */
	bool exact; /* nor does it start before, whoever else ends */
};

/* Finds the running jobs whose end lets job number `of` start, by trying their ends. Jobs that go
 * before it start first. `started` has room for `of` + 1 flags, and its content is this function's.
 * `looks`: jobs that may be looked at. False: nobody knows, as others hold the room, or as there
 * are too many jobs. */
bool queue_explain(const struct queue_state *state, const struct queue_job *jobs, size_t of,
		   uint8_t *started, size_t looks, struct queue_ends *ret);

/* Adds a slice to the GPUs, or takes it away. */
void queue_take(struct place_gpu *gpus, const struct place_grant *grant, uint32_t count,
		uint32_t compute);
void queue_give(struct place_gpu *gpus, const struct place_grant *grant, uint32_t count,
		uint32_t compute);

/* Finds the fewest running jobs of lower priority whose end lets the job start now, youngest first.
 * They go into `victims` (positions in state->running, room for running_count). 0: there are none,
 * or it is not worth it. */
size_t queue_preempt(struct queue_state *state, const struct queue_job *job, size_t *victims);

/* How long a job that could not be started waits before it is tried again, after so many failures
 * before. It is 1 s at first, and twice as long each time, 32 s at most. Others like it are tried
 * meanwhile, one a second. */
uint64_t queue_again_ns(unsigned failures);

/* The rest of a use after a while: half of it after QUEUE_HALF_LIFE_NS. */
#define QUEUE_HALF_LIFE_NS (12ull * 3600 * 1000000000)
double queue_decay(double use, uint64_t elapsed_ns);
