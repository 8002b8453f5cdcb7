/* The use that users had of the GPUs, for fair shares: seconds of a whole GPU, decayed. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/queue/queue_private.h"

/* The least use that a job counts for which has just begun, so that a user who had nothing does not
 * start all of his jobs at once (60 s). */
#define USE_LEAST_NS (60 * 1000000000ull)

struct queue_use *queue_use_get(struct queues *q, uid_t uid, bool make)
{
	struct queue_use **at = &q->use_of[uid % QUEUE_TABLE_BUCKETS], *use = *at;

	while (use && use->uid != uid)
		use = use->next_of_table;
	if (use || !make)
		return use;
	use = calloc(1, sizeof(*use));
	if (!use)
		return NULL;
	use->uid = uid;
	use->queues = q;
	use->next = q->uses;
	q->uses = use;
	use->next_of_table = *at;
	*at = use;
	return use;
}

/* GPUs that a job has, in whole ones, by memory. */
static double job_gpus(const struct job *job)
{
	const struct pool *pool = job->queues->host.pool;
	double gpus = 0;

	for (uint32_t i = 0; i < job->grant_count; i++) {
		const struct pool_gpu *gpu = &pool->gpu[job->grants[i].gpu];

		if (gpu->info.total)
			gpus += (double)job->grants[i].bytes / (double)gpu->info.total;
	}
	return gpus;
}

double queue_use_of(struct queues *q, uid_t uid, int64_t now)
{
	const struct queue_use *use = queue_use_get(q, uid, false);
	uint64_t monotonic = now_monotonic_ns();
	double sum = 0;

	if (use)
		sum = queue_decay(use->use, now > use->at ? (uint64_t)(now - use->at) : 0);
	for (const struct job *job = q->running.first; job; job = job->next)
		if (job->record.uid == uid)
			sum += job_gpus(job) *
			       (double)MAX(monotonic - job->started_ns, USE_LEAST_NS) / 1e9;
	return sum;
}

void queue_use_add(struct queues *q, const struct job *job, int64_t now)
{
	struct queue_use *use = queue_use_get(q, job->record.uid, true);

	if (!use)
		return;
	use->use = queue_decay(use->use, now > use->at ? (uint64_t)(now - use->at) : 0) +
		   job_gpus(job) * (double)(now_monotonic_ns() - job->started_ns) / 1e9;
	use->at = now;
	(void)job_store_use_put(q->store, use->uid, use->use, use->at);
}

static int load_one(void *arg, uid_t uid, double value, int64_t at)
{
	struct queue_use *use = queue_use_get(arg, uid, true);

	if (use) {
		use->use = value;
		use->at = at;
	}
	return 0;
}

int queue_use_load(struct queues *q)
{
	return job_store_each_use(q->store, load_one, q);
}
