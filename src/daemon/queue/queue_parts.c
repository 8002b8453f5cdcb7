/* Work on many jobs, in parts. Each part takes FAIR_STEP_NS at most and comes from the loop's
 * budget (host/fair.h), in its user's turn, as calls do. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/queue/queue_private.h"

/* ---- changing ----------------------------------------------------------------------------- */

/* In one step on the disk. */
static void part_change(struct queues *q, struct queue_parts *p)
{
	uint64_t end = now_monotonic_ns() + FAIR_STEP_NS;
	int rc = job_store_begin(q->store);

	for (; p->done < p->count && now_monotonic_ns() < end; p->done++) {
		struct job *job = job_find(q, p->ids[p->done]);

		if (job && job->record.array == p->array)
			p->cb(job, p->arg);
	}
	if (rc == 0)
		rc = job_store_commit(q->store);
	if (rc == 0)
		queue_overs_tell(q);
	if (p->rc == 0)
		p->rc = rc;
}

static void halt(struct queues *q, int64_t id)
{
	struct job_array *array = job_array_find(q, id);

	if (array)
		array->halts++;
}

/* The array may have ended meanwhile. */
static void halt_end(struct queues *q, int64_t id)
{
	struct job_array *array = job_array_find(q, id);

	if (array && array->halts)
		array->halts--;
	q->dirty = true;
}

static void on_durable(struct disk_waiter *waiter, int rc)
{
	struct queue_parts *p = CONTAINER_OF(waiter, struct queue_parts, durable);

	p->done_cb(p->arg, p->rc < 0 ? p->rc : rc);
	free(p->ids);
	free(p);
}

/* All jobs were changed. */
static void parts_end(struct queue_parts *p)
{
	p->durable.cb = on_durable;
	job_store_await(p->queues->store, &p->durable);
}

static void parts_add(struct queues *q, struct queue_parts *p, uid_t owner)
{
	if (p->array)
		halt(q, p->array);
	turns_add(&q->parts, &p->turn, owner);
}

static struct queue_parts *parts_new(struct queues *q, const struct job *first, bool all)
{
	struct queue_parts *p = calloc(1, sizeof(*p));
	uint32_t count = all ? first->array->living : 1;

	if (p)
		p->ids = calloc(count, sizeof(*p->ids));
	if (!p || !p->ids) {
		free(p);
		return NULL;
	}
	p->queues = q;
	p->array = first->record.array;
	for (const struct job *job = first; p->count < count; job = job->next_of)
		p->ids[p->count++] = job->record.id;
	return p;
}

void jobs_change(struct queues *q, uid_t owner, int64_t id, int32_t index, jobs_cb cb,
		 jobs_done_cb done, void *arg)
{
	const struct job *first = job_meant(q, id, index);
	bool all = first && first->array && index < 0;
	struct queue_parts *p = first ? parts_new(q, first, all) : NULL;

	if (!p) {
		done(arg, first ? -ENOMEM : 0);
		return;
	}
	p->cb = cb;
	p->done_cb = done;
	p->arg = arg;
	if (p->count <= QUEUE_SHORT && !q->parts.first && !job_store_holds(q->store))
		part_change(q, p);
	if (p->done < p->count)
		parts_add(q, p, owner);
	else
		parts_end(p);
}

/* ---- the loop ----------------------------------------------------------------------------- */

static struct queue_parts *parts_first(const struct queues *q)
{
	return q->parts.first ? CONTAINER_OF(q->parts.first, struct queue_parts, turn) : NULL;
}

bool jobs_change_owner(const struct queues *q, uid_t *ret)
{
	if (q->parts.first)
		*ret = q->parts.first->user;
	return q->parts.first;
}

void jobs_change_part(struct queues *q)
{
	struct queue_parts *p = parts_first(q);

	part_change(q, p);
	turns_pass(&q->parts, p->turn.user);
	if (p->done < p->count)
		return;
	turns_remove(&q->parts, &p->turn);
	if (p->array)
		halt_end(q, p->array);
	parts_end(p);
}

void jobs_change_free(struct queues *q)
{
	for (struct queue_parts *p; (p = parts_first(q));) {
		turns_remove(&q->parts, &p->turn);
		free(p->ids);
		free(p);
	}
}
