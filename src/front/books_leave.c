/* The books of what stays charged though it was given back, or may be elsewhere, until the daemon
 * was asked. */
#include "front/books_inside.h"

void books_maybe_freed_tell_locked(struct process *p)
{
	uint64_t maybe_freed = 0;

	for (uint32_t gpu = 0; gpu < p->attachment.gpu_count; gpu++)
		maybe_freed +=
			p->gpu[gpu].leaving + books_arrays_extra(&p->gpu[gpu].arrays) * BLOCK_BYTES;
	/* The driver may give back memory of graphs that are gone without a call. */
	if (!p->graph_count)
		maybe_freed += p->graph_bytes;
	atomic_store_explicit(&process_slot(p)->maybe_freed, maybe_freed, memory_order_release);
}

void books_leave_locked(struct process *p, uint32_t gpu, uint64_t bytes)
{
	p->gpu[gpu].leaving += bytes;
	books_maybe_freed_tell_locked(p);
}

void books_leave_object_locked(struct process *p, const struct object *object)
{
	if (object->marked)
		atomic_fetch_add(&process_slot(p)->exported_fd_bytes, object->bytes);
	books_leave_locked(p, object->gpu, object->bytes);
}

/* Memory that modules took perhaps can be asked about again. */
static void doubts_end_locked(struct process *p)
{
	for (uint32_t i = 0; p->doubts && i < p->objects.numbers; i++) {
		struct object *object = &p->objects.objects[i];

		if (object->kind != OBJECT_IMAGE || !object->memory)
			continue;
		object->bytes -= object->memory;
		books_leave_locked(p, object->gpu, object->memory);
		object->memory = 0;
	}
	p->doubts = false;
}

bool books_figures_tell(struct process *p)
{
	/* Memory that is apart is so for good; a daemon of an earlier version does not know of it.
	 */
	return !atomic_load(&p->managed_count) &&
	       (!atomic_load(&p->managed_unlisted_count) ||
		ledger_managed_unlisted_gpus(p->attachment.ledger.limits));
}

static void managed_tell_locked(struct process *p)
{
	uint32_t managed = atomic_load(&p->managed_unlisted_count) ? LEDGER_MANAGED_UNLISTED
								   : LEDGER_MANAGED_NONE;

	if (atomic_load(&p->managed_count))
		managed = LEDGER_MANAGED_SOME;
	atomic_store(&process_slot(p)->managed, managed);
}

static _Atomic uint64_t *managed_unlisted_of(const struct process *p, uint32_t gpu)
{
	return ledger_managed_unlisted(&p->attachment.ledger, p->attachment.slot, gpu);
}

void books_managed_unlisted_end_locked(struct process *p, const struct object *object)
{
	if (object->unlisted)
		atomic_fetch_sub(managed_unlisted_of(p, object->gpu), object->bytes);
}

void books_managed_end_locked(struct process *p, const struct object *object)
{
	if (!object->managed && !object->unlisted)
		return;
	atomic_fetch_sub(object->unlisted ? &p->managed_unlisted_count : &p->managed_count, 1);
	managed_tell_locked(p);
	if (!books_figures_tell(p))
		return;
	doubts_end_locked(p);
	for (uint32_t gpu = 0; gpu < p->attachment.gpu_count; gpu++) {
		uint64_t bytes = p->gpu[gpu].remains;

		p->gpu[gpu].remains = 0;
		if (!bytes)
			continue;
		books_leave_locked(p, gpu, bytes);
		atomic_store(&p->has_remains, true);
	}
}

void books_managed(struct process *p, struct object *object)
{
	owned_lock_acquire(&p->lock);
	object->unlisted =
		managed_unlisted_of(p, object->gpu) &&
		ledger_managed_unlisted_gpus(p->attachment.ledger.limits) >> object->gpu & 1;
	object->managed = !object->unlisted;
	atomic_fetch_add(object->unlisted ? &p->managed_unlisted_count : &p->managed_count, 1);
	if (object->unlisted)
		atomic_fetch_add(managed_unlisted_of(p, object->gpu), object->bytes);
	managed_tell_locked(p);
	owned_lock_release(&p->lock);
}

void books_leave(struct process *p, uint32_t gpu, uint64_t bytes)
{
	owned_lock_acquire(&p->lock);
	books_leave_locked(p, gpu, bytes);
	owned_lock_release(&p->lock);
}

void books_leave_object(struct process *p, const struct object *object)
{
	owned_lock_acquire(&p->lock);
	books_leave_object_locked(p, object);
	owned_lock_release(&p->lock);
}

void books_doubt(struct process *p, struct object *object, uint64_t bytes)
{
	owned_lock_acquire(&p->lock);
	if (books_figures_tell(p)) {
		object->bytes -= bytes;
		books_leave_locked(p, object->gpu, bytes);
	} else if (object->kind == OBJECT_IMAGE) {
		object->memory = bytes;
	}
	owned_lock_release(&p->lock);
}

void books_doubted(struct process *p)
{
	owned_lock_acquire(&p->lock);
	p->doubts = true;
	if (books_figures_tell(p))
		doubts_end_locked(p);
	owned_lock_release(&p->lock);
}

uint64_t books_leaving(struct process *p, uint32_t gpu)
{
	owned_lock_acquire(&p->lock);
	uint64_t bytes = p->gpu[gpu].leaving;
	owned_lock_release(&p->lock);
	return bytes;
}

uint64_t books_leaving_begin(struct process *p, uint32_t gpu, uint64_t most)
{
	owned_lock_acquire(&p->lock);
	uint64_t bytes = MIN(p->gpu[gpu].leaving, most);
	p->gpu[gpu].leaving -= bytes;
	books_maybe_freed_tell_locked(p);
	if (bytes) {
		slot_count_up(&process_slot(p)->release_pending);
		slot_count_up(&process_slot(p)->releases_in_progress);
	}
	owned_lock_release(&p->lock);
	return bytes;
}

bool books_leaving_end(struct process *p, uint32_t gpu, uint64_t bytes, bool gone)
{
	owned_lock_acquire(&p->lock);
	if (gone)
		books_resize_locked(p, gpu, bytes, 0);
	else
		books_leave_locked(p, gpu, bytes);
	slot_count_down(&process_slot(p)->release_pending);
	slot_count_down(&process_slot(p)->releases_in_progress);
	bool others = atomic_load_explicit(&process_slot(p)->release_pending, memory_order_relaxed);
	owned_lock_release(&p->lock);
	return others;
}

void books_waiting_begin(struct process *p)
{
	slot_count_up_alone(p, &process_slot(p)->release_pending);
}

void books_waiting_end(struct process *p)
{
	slot_count_down_alone(p, &process_slot(p)->release_pending);
}

bool books_release_begin(struct process *p)
{
	if (!atomic_load_explicit(&process_slot(p)->exported, memory_order_relaxed))
		return false;
	books_over_begin(p);
	return true;
}

void books_over_begin(struct process *p)
{
	slot_count_up_alone(p, &process_slot(p)->releases_in_progress);
}

void books_release_end(struct process *p)
{
	slot_count_down_alone(p, &process_slot(p)->releases_in_progress);
}
