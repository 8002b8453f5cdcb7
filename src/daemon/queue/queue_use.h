/* Users who have jobs, or had some: their jobs, and their use of the GPUs, for fair shares. */
#pragma once

#include <stdint.h>

#include "core/turns.h"
#include "daemon/queue/job.h"
#include "daemon/queue/job_store.h"

struct job;
struct queue_bucket;
struct queues;

/* A user who has jobs, or had some. */
struct queue_use {
	struct queue_use *next, *next_of_table;
	const struct queues *queues;
	uid_t uid;
	/* To whom use, parts in decisions and history count: itself, or the owner of its range
	 * (host/owner.h). */
	struct queue_use *owner;
	struct queue_bucket *buckets, *last_bucket; /* ready jobs */
	struct job *jobs, *last_job; /* that have not ended, in the order of coming */
	uint32_t job_count;
	struct job_list ends;     /* jobs whose end is to be read, the oldest first */
	struct turn ends_turn;    /* while there is one */
	struct job_history ended; /* the user's */
	/* An owner's. */
	double use; /* seconds of a whole GPU, decayed to `at` */
	int64_t at;
	uint32_t part;          /* kinds of its jobs that one decision still looks at */
	uint32_t starting;      /* jobs whose shim is not there yet */
	struct job_history all; /* while history is trimmed: of all who count to it */
};

/* NULL: there is none, or no memory to make one. */
struct queue_use *queue_use_get(struct queues *q, uid_t uid, bool make);
double queue_use_of(const struct queue_use *user, int64_t now);
/* GPU time of a running job so far, in ns of a whole GPU. A quarter of one for 4 s is 1 s. */
uint64_t queue_use_gpu_ns(const struct job *job);
void queue_use_add(struct queues *q, const struct job *job, int64_t now);
int queue_use_load(struct queues *q);
