#include "front/books.h"

#include <errno.h>

#include "base/macros.h"

static bool is_small(uint64_t bytes)
{
	return bytes < BOOKS_BLOCK;
}

static uint64_t blocks_of(uint64_t bytes)
{
	return ALIGN_UP(bytes, BOOKS_BLOCK);
}

/* The driver hands small ones out in steps of LEDGER_GRANULE. */
static uint64_t small_part(uint64_t bytes)
{
	return is_small(bytes) ? ALIGN_UP(bytes, LEDGER_GRANULE) : 0;
}

static uint64_t large_part(uint64_t bytes)
{
	return is_small(bytes) ? 0 : blocks_of(bytes);
}

static int resize_locked(struct process *p, uint32_t gpu, uint64_t from, uint64_t to)
{
	const struct ledger *l = &p->attachment.ledger;
	uint64_t *small = &p->gpu[gpu].small_bytes;
	uint64_t small_after = *small - small_part(from) + small_part(to);
	uint64_t before = blocks_of(*small) + large_part(from);
	uint64_t after = blocks_of(small_after) + large_part(to);

	if (after > before && ledger_charge(l, p->attachment.slot, gpu, after - before) < 0)
		return -ENOMEM;
	if (after < before)
		ledger_uncharge(l, p->attachment.slot, gpu, before - after);
	*small = small_after;
	return 0;
}

static void count_refused(struct process *p, uint32_t gpu)
{
	atomic_fetch_add_explicit(&ledger_gpu(&p->attachment.ledger, gpu)->refused, 1,
				  memory_order_relaxed);
}

int books_resize(struct process *p, uint32_t gpu, uint64_t from, uint64_t to)
{
	int r = -ENOMEM;

	lock_acquire(&p->lock);
	if (to <= BOOKS_MOST)
		r = resize_locked(p, gpu, from, to);
	lock_release(&p->lock);
	if (r < 0)
		count_refused(p, gpu);
	return r;
}

/* The slot's counters have one writer at a time: whoever holds the lock. */
static void count_up(_Atomic uint32_t *counter)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
			      memory_order_release);
}

static struct ledger_slot *own_slot(struct process *p)
{
	return ledger_slot(&p->attachment.ledger, p->attachment.slot);
}

int books_call_reserve(struct process *p, uint32_t gpu, uint64_t bytes)
{
	int r = -ENOMEM;

	lock_acquire(&p->lock);
	if (bytes <= BOOKS_MOST)
		r = resize_locked(p, gpu, 0, bytes);
	if (r == 0)
		count_up(&own_slot(p)->calls_begun);
	lock_release(&p->lock);
	if (r < 0)
		count_refused(p, gpu);
	return r;
}

void books_call_keep(struct process *p, const struct object *object)
{
	struct object stale;

	lock_acquire(&p->lock);
	if (table_take(&p->objects, object->kind, object->handle, &stale))
		resize_locked(p, stale.gpu, stale.bytes, 0);
	table_put(&p->objects, object);
	count_up(&own_slot(p)->calls_done);
	lock_release(&p->lock);
}

void books_call_return(struct process *p, uint32_t gpu, uint64_t bytes)
{
	lock_acquire(&p->lock);
	resize_locked(p, gpu, bytes, 0);
	count_up(&own_slot(p)->calls_done);
	lock_release(&p->lock);
}

bool books_call_take(struct process *p, enum object_kind kind, uint64_t handle, struct object *ret)
{
	lock_acquire(&p->lock);
	bool found = table_take(&p->objects, kind, handle, ret);
	if (found)
		count_up(&own_slot(p)->calls_begun);
	lock_release(&p->lock);
	return found;
}

uint32_t books_reference(struct process *p, enum object_kind kind, uint64_t handle, int change)
{
	lock_acquire(&p->lock);
	struct object *object = table_find(&p->objects, kind, handle);
	uint32_t count = object ? object->count += (uint32_t)change : 0;
	lock_release(&p->lock);
	return count;
}

void books_drop_context(struct process *p, uint64_t context)
{
	struct object object;

	lock_acquire(&p->lock);
	while (table_take_of_context(&p->objects, context, &object))
		resize_locked(p, object.gpu, object.bytes, 0);
	lock_release(&p->lock);
}

uint64_t books_limit(const struct process *p, uint32_t gpu)
{
	return ledger_limit(&p->attachment.ledger, gpu);
}

uint64_t books_free(const struct process *p, uint32_t gpu)
{
	uint64_t limit = books_limit(p, gpu);
	uint64_t committed = ledger_committed(&p->attachment.ledger, gpu);

	return committed < limit ? limit - committed : 0;
}
