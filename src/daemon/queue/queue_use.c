/* The use that users had of the GPUs, for fair shares: seconds of a whole GPU, decayed. Users of a
 * range of subordinate IDs count to its owner: or each would be a new user, who had nothing. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "core/queue.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/owner.h"
#include "daemon/queue/job_table.h"
#include "daemon/queue/queue_context.h"
#include "daemon/queue/queue_use.h"

/* The least use that counts for a job that has just begun (60 s). So a user without use does not
 * start all jobs at once. */
#define USE_LEAST_NS (60 * 1000000000ull)

static struct queue_use *use_find(const struct queues *q, uid_t uid)
{
	struct queue_use *use = q->jobs->use_of[uid % JOBS_TABLE_BUCKETS];

	while (use && use->uid != uid)
		use = use->next_of_table;
	return use;
}

static struct queue_use *use_make(struct queues *q, uid_t uid)
{
	struct queue_use **at = &q->jobs->use_of[uid % JOBS_TABLE_BUCKETS];
	struct queue_use *use = calloc(1, sizeof(*use));

	if (!use)
		return NULL;
	use->uid = uid;
	use->owner = use;
	use->queues = q;
	use->ends.as_they_come = true;
	use->next = q->jobs->uses;
	q->jobs->uses = use;
	use->next_of_table = *at;
	*at = use;
	return use;
}

struct queue_use *queue_use_get(struct queues *q, uid_t uid, bool make)
{
	struct queue_use *use = use_find(q, uid), *owner;

	if (!make || (!use && !(use = use_make(q, uid))))
		return use;
	/* Ranges are read again while the daemon runs. */
	owner = use_find(q, owner_of(uid));
	if (!owner)
		owner = use_make(q, owner_of(uid));
	use->owner = owner ? owner : use;
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

uint64_t queue_use_gpu_ns(const struct job *job)
{
	return (uint64_t)(job_gpus(job) * (double)(now_monotonic_ns() - job->started_ns));
}

double queue_use_of(const struct queue_use *user, int64_t now)
{
	const struct queue_use *owner = user->owner;
	uint64_t monotonic = now_monotonic_ns();
	double sum = queue_decay(owner->use, now > owner->at ? (uint64_t)(now - owner->at) : 0);

	for (const struct job *job = user->queues->jobs->running.first; job; job = job->next)
		if (job->user->owner == owner)
			sum += job_gpus(job) *
			       (double)MAX(monotonic - job->started_ns, USE_LEAST_NS) / 1e9;
	return sum;
}

void queue_use_add(struct queues *q, const struct job *job, int64_t now)
{
	struct queue_use *use = job->user->owner;

	use->use = queue_decay(use->use, now > use->at ? (uint64_t)(now - use->at) : 0) +
		   (double)queue_use_gpu_ns(job) / 1e9;
	use->at = now;
	(void)job_store_use_put(q->store, use->uid, use->use, use->at);
}

static int load_one(void *arg, uid_t uid, double value, int64_t at)
{
	struct queue_use *use = queue_use_get(arg, uid, true);

	/* Others' is from before theirs counted to their owner. */
	if (use && use->owner == use) {
		use->use = value;
		use->at = at;
	}
	return 0;
}

int queue_use_load(struct queues *q)
{
	return job_store_each_use(q->store, load_one, q);
}
