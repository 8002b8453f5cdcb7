/* The books of what grows by itself: pools, and what the driver holds for graphs. */
#include <errno.h>

#include "front/books_inside.h"

void books_growing_tell_locked(struct process *p, enum object_kind kind, uint64_t before,
			       uint64_t now)
{
	p->growing_bytes += now - before;
	atomic_store_explicit(&process_slot(p)->growing, p->growing_bytes, memory_order_release);
	if (kind != OBJECT_GRAPH_POOL)
		return;
	p->graph_bytes += now - before;
	books_maybe_freed_tell_locked(p);
}

bool books_cancel_growing(struct process *p, const struct object *object)
{
	owned_lock_acquire(&p->lock);
	uint64_t before = p->gpu[object->gpu].leaving;
	books_lessen_locked(p, object->gpu, object->bytes);
	slot_count_up(&process_slot(p)->calls_done);
	bool leaves = p->gpu[object->gpu].leaving != before;
	owned_lock_release(&p->lock);
	return leaves;
}

void books_look_begin(struct process *p, struct look *look)
{
	owned_lock_acquire(&p->lock);
	look->number = ++p->growing_looks;
	owned_lock_release(&p->lock);
}

/* No amount that is booked is ever below what is held. A call that made the object grow looks
 * afterwards, and has its reserve charged until it has booked what it saw. So a look that is not
 * overtaken saw the growth of every call that ended before. The growth of the others is in their
 * reserves: what is held beyond what is booked is at most the sum of those. */
static int hold_locked(struct process *p, struct object *object, const struct look *look,
		       uint64_t bytes, uint64_t *reserve)
{
	const struct process_growth *growth = process_growth_of(p, look->kind);
	bool stale = look->number < object->memory;

	if (stale && !look->last)
		return -EAGAIN;
	if (!stale)
		object->memory = look->number;
	if (bytes <= object->bytes) {
		/* A process that is alone counts on what is booked, and reserves nothing. */
		if (stale || (growth->alone && !look->in_call)) {
			if (bytes < object->bytes)
				atomic_store(&process_slot(p)->not_revalidated, 1);
			return 0;
		}
		uint64_t less = object->bytes - bytes;

		books_growing_tell_locked(p, look->kind, object->bytes, bytes);
		object->bytes = bytes;
		if (object->exported)
			books_leave_locked(p, object->gpu, less);
		else
			books_lessen_locked(p, object->gpu, less);
		return 0;
	}
	uint64_t paid = MIN(*reserve, bytes - object->bytes);
	*reserve -= paid;
	books_growing_tell_locked(p, look->kind, object->bytes, object->bytes + paid);
	object->bytes += paid;
	if (object->bytes == bytes || growth->calls > look->in_call)
		return 0;
	int r = books_resize_locked(p, object->gpu, object->bytes, bytes);
	if (r == 0) {
		books_growing_tell_locked(p, look->kind, object->bytes, bytes);
		object->bytes = bytes;
	}
	return r;
}

int books_look_end(struct process *p, const struct look *look, uint64_t bytes, uint64_t *reserve)
{
	owned_lock_acquire(&p->lock);
	struct object *object = table_find(&p->objects, look->kind, look->handle);
	int r = object ? hold_locked(p, object, look, bytes, reserve) : 0;
	owned_lock_release(&p->lock);
	return r;
}

void books_note(struct process *p, const struct object *object)
{
	struct object stale = {0};

	owned_lock_acquire(&p->lock);
	table_put(&p->objects, object, &stale);
	if (stale.kind == OBJECT_LINEAR)
		books_drop_locked(p, &stale);
	if (object->kind == OBJECT_GRAPH && stale.kind == OBJECT_NONE) {
		p->graph_count++;
		books_maybe_freed_tell_locked(p);
	}
	owned_lock_release(&p->lock);
}

static void forget_locked(struct process *p, enum object_kind kind, uint64_t handle,
			  struct object *ret)
{
	bool found = table_take(&p->objects, kind, handle, ret);

	if (found && (kind == OBJECT_POOL || kind == OBJECT_GRAPH_POOL))
		books_growing_tell_locked(p, kind, ret->bytes, 0);
	if (found && kind == OBJECT_GRAPH) {
		p->graph_count--;
		books_maybe_freed_tell_locked(p);
	}
	for (uint32_t i = 0; i < p->growing_count; i++)
		if (p->growing[i].kind == kind && p->growing[i].handle == handle)
			p->growing[i] = p->growing[--p->growing_count];
}

void books_forget(struct process *p, enum object_kind kind, uint64_t handle)
{
	struct object object;

	owned_lock_acquire(&p->lock);
	forget_locked(p, kind, handle, &object);
	owned_lock_release(&p->lock);
}

void books_pool_ending(struct process *p, uint64_t handle, struct object *ret)
{
	*ret = (struct object){0};
	owned_lock_acquire(&p->lock);
	forget_locked(p, OBJECT_POOL, handle, ret);
	owned_lock_release(&p->lock);
}

void books_pool_ended(struct process *p, const struct object *pool, uint64_t keep)
{
	owned_lock_acquire(&p->lock);
	if (pool->bytes > keep)
		books_leave_locked(p, pool->gpu, pool->bytes - keep);
	/* That may have gone meanwhile. */
	if (!books_figures_tell(p))
		p->gpu[pool->gpu].remains += MIN(keep, pool->bytes);
	else
		books_leave_locked(p, pool->gpu, MIN(keep, pool->bytes));
	owned_lock_release(&p->lock);
}

void books_pool_restore(struct process *p, const struct object *pool)
{
	owned_lock_acquire(&p->lock);
	if (table_find(&p->objects, OBJECT_POOL, pool->handle) ||
	    table_put(&p->objects, pool, NULL) < 0) {
		books_leave_locked(p, pool->gpu, pool->bytes);
	} else if (pool->count) {
		if (p->growing_count < PROCESS_GROWING_MAX)
			p->growing[p->growing_count++] = *pool;
		books_growing_tell_locked(p, OBJECT_POOL, 0, pool->bytes);
	}
	owned_lock_release(&p->lock);
}

void books_graphs_changed(struct process *p)
{
	owned_lock_acquire(&p->lock);
	p->graph_epoch++;
	owned_lock_release(&p->lock);
}

bool books_graph_has_memory(struct process *p, uint64_t exec, uint64_t stream)
{
	owned_lock_acquire(&p->lock);
	const struct object *object = table_find(&p->objects, OBJECT_GRAPH, exec);
	bool has = object && object->count && object->count == p->graph_epoch &&
		   stream == p->graph_stream;
	owned_lock_release(&p->lock);
	return has;
}

void books_graph_launched(struct process *p, uint64_t exec, uint64_t stream)
{
	owned_lock_acquire(&p->lock);
	struct object *object = table_find(&p->objects, OBJECT_GRAPH, exec);
	if (!p->graph_epoch || stream != p->graph_stream) {
		p->graph_epoch++;
		p->graph_stream = stream;
	}
	if (object)
		object->count = p->graph_epoch;
	owned_lock_release(&p->lock);
}
