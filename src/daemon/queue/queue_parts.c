/* Work on long arrays: a part in each round of the loop, so that the loop serves others
 * meanwhile. */
#include <errno.h>
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
		rc = job_store_commit(q->store, p->done == p->count);
	if (p->rc == 0)
		p->rc = rc;
}

static void halt(struct queues *q, int64_t id, bool halted)
{
	struct job_array *array = job_array_find(q, id);

	if (array)
		array->halted = halted;
	q->dirty = true;
}

static void parts_end(struct queues *q)
{
	struct queue_parts *p = q->parts;

	q->parts = p->next;
	halt(q, p->array, false);
	p->done_cb(p->arg, p->rc);
	free(p->ids);
	free(p);
}

static void change_at_once(struct queues *q, int64_t id, int32_t index, jobs_cb cb,
			   jobs_done_cb done, void *arg)
{
	struct job_store *store = q->store;
	int rc = job_store_begin(store);

	jobs_meant(q, id, index, cb, arg);
	if (rc == 0)
		rc = job_store_commit(store, true);
	done(arg, rc);
}

void jobs_change(struct queues *q, int64_t id, int32_t index, jobs_cb cb, jobs_done_cb done,
		 void *arg)
{
	const struct job_array *array = index < 0 ? job_array_find(q, id) : NULL;
	bool is_long = array && array->living > QUEUE_PART;
	struct queue_parts *p = is_long ? calloc(1, sizeof(*p)) : NULL, **at = &q->parts;

	if (p)
		p->ids = calloc(array->living, sizeof(*p->ids));
	if (!p || !p->ids) {
		free(p);
		change_at_once(q, id, index, cb, done, arg);
		return;
	}
	p->array = id;
	p->cb = cb;
	p->done_cb = done;
	p->arg = arg;
	for (const struct job *job = array->jobs; job; job = job->next_of)
		p->ids[p->count++] = job->record.id;
	halt(q, id, true);
	while (*at)
		at = &(*at)->next;
	*at = p;
	queue_parts_wake(q);
}

/* ---- the loop ----------------------------------------------------------------------------- */

void queue_parts_run(struct queues *q)
{
	if (q->parts)
		part_change(q, q->parts);
	if (q->parts && q->parts->done == q->parts->count)
		parts_end(q);
	if (!enqueue_part(q) && !q->parts && q->idle)
		uv_idle_stop(q->idle);
}

void queue_parts_free(struct queues *q)
{
	while (q->parts) {
		struct queue_parts *p = q->parts;

		q->parts = p->next;
		free(p->ids);
		free(p);
	}
	if (q->idle)
		uv_close((uv_handle_t *)steal_ptr(&q->idle), on_closed);
}
