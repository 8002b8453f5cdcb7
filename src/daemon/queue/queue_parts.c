/* Work on long arrays: a part in each round of the loop, in users' turns, so that the loop serves
 * others meanwhile. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/queue/queue_private.h"

/* ---- the handle that keeps the loop going ------------------------------------------------- */

static void on_idle(uv_idle_t *idle)
{
	/* The work is queues_run()'s: this only keeps the loop from sleeping before it. */
}

void queue_parts_wake(struct queues *q)
{
	if (!q->idle) {
		q->idle = malloc(sizeof(*q->idle));
		if (!q->idle)
			return; /* the next event goes on with it */
		uv_idle_init(q->host.sessions->loop, q->idle);
	}
	uv_idle_start(q->idle, on_idle);
}

static void on_closed(uv_handle_t *handle)
{
	free(handle);
}

/* ---- changing ----------------------------------------------------------------------------- */

/* In one step on the disk. */
static void part_change(struct queues *q, struct queue_parts *p)
{
	uint64_t end = now_monotonic_ns() + QUEUE_PART_NS;
	int rc = job_store_begin(q->store);

	for (; p->done < p->count && now_monotonic_ns() < end; p->done++) {
		struct job *job = job_find(q, p->ids[p->done]);

		if (job && job->record.array == p->array)
			p->cb(job, p->arg);
	}
	if (rc == 0)
		rc = job_store_commit(q->store);
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
	queue_parts_wake(q);
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
	if (p->count <= QUEUE_PART && !q->parts.first && !job_store_holds(q->store))
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

static bool part_run(struct queues *q)
{
	struct queue_parts *p = parts_first(q);

	if (!p)
		return enqueue_part(q);
	part_change(q, p);
	turns_pass(&q->parts, p->turn.user);
	if (p->done == p->count) {
		turns_remove(&q->parts, &p->turn);
		if (p->array)
			halt_end(q, p->array);
		parts_end(p);
	}
	return enqueue_part(q) || q->parts.first;
}

void queue_parts_run(struct queues *q)
{
	/* While the store holds there is nothing to do: it wakes this when it is free. */
	if ((job_store_holds(q->store) || !part_run(q)) && q->idle)
		uv_idle_stop(q->idle);
}

void queue_parts_free(struct queues *q)
{
	for (struct queue_parts *p; (p = parts_first(q));) {
		turns_remove(&q->parts, &p->turn);
		free(p->ids);
		free(p);
	}
	if (q->idle)
		uv_close((uv_handle_t *)steal_ptr(&q->idle), on_closed);
}
