#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "front/books_inside.h"

/* How long a call waits for the daemon's comparison, at most. */
#define STILL_NS 50000L
#define STILL_MOST 4000

static __attribute__((noinline)) void stand_still_now(struct process *p)
{
	const struct ledger_limits *limits = p->attachment.ledger.limits;

	for (int i = 0; i < STILL_MOST; i++) {
		uint64_t until =
			atomic_load_explicit(&limits->still_until_ns, memory_order_acquire);

		if (!until || now_monotonic_ns() >= until)
			return;
		nanosleep(&(struct timespec){.tv_nsec = STILL_NS}, NULL);
	}
}

/* Before a call that takes or gives memory, where the daemon has asked for it. */
static inline void stand_still(struct process *p)
{
	if (__builtin_expect(atomic_load_explicit(&p->attachment.ledger.limits->still_until_ns,
						  memory_order_relaxed) != 0,
			     0))
		stand_still_now(p);
}

int books_resize_locked(struct process *p, uint32_t gpu, uint64_t from, uint64_t to)
{
	const struct ledger *l = &p->attachment.ledger;

	if (to > BOOKS_MOST)
		return -ENOMEM;
	if (to < from)
		ledger_uncharge(l, p->attachment.slot, gpu, from - to);
	return to > from ? ledger_charge(l, p->attachment.slot, gpu, to - from) : 0;
}

/* Uncharges what the driver may have had for some time. If the daemon may have posted that, it
 * stays charged until the daemon was asked. This side counts up first and then reads the daemon's
 * word: one of the two sees what the other one did. */
void books_lessen_locked(struct process *p, uint32_t gpu, uint64_t bytes)
{
	struct ledger_slot *slot = process_slot(p);

	if (!bytes)
		return;
	atomic_fetch_add(&slot->local_release_seq, 1);
	if (atomic_load(&slot->daemon_corrected))
		books_leave_locked(p, gpu, bytes);
	else
		books_resize_locked(p, gpu, bytes, 0);
}

static bool is_packed(const struct object *object)
{
	return (object->kind == OBJECT_ARRAY || object->kind == OBJECT_MIPMAP) && object->memory;
}

/* The driver may have had that memory back before it is dropped here. */
static uint64_t freeing_bytes(const struct object *freeing)
{
	return freeing->small ? BLOCK_BYTES : freeing->bytes;
}

void books_drop_locked(struct process *p, const struct object *object)
{
	struct object leaving = *object;

	books_managed_unlisted_end_locked(p, object);
	if (object->kind == OBJECT_FREEING) {
		p->freeing_count--;
		books_growing_tell_locked(p, OBJECT_FREEING, freeing_bytes(object), 0);
		leaving.handle = object->memory;
		object = &leaving;
	}
	if (object->kind == OBJECT_BLOCK) {
		small_drop_block(p, object);
	} else if (is_packed(object)) {
		books_array_drop_locked(p, object);
	} else if (object->small) {
		small_leave(p, object);
		small_drop(p, object);
	} else if (object->exported) {
		books_leave_object_locked(p, object);
	} else if (p->lessening) {
		books_lessen_locked(p, object->gpu, object->bytes);
	} else {
		books_resize_locked(p, object->gpu, object->bytes, 0);
	}
	books_managed_end_locked(p, object);
}

void books_count_refused(struct process *p, uint32_t gpu, uint64_t bytes)
{
	struct ledger_gpu *of = ledger_gpu(&p->attachment.ledger, gpu);

	atomic_fetch_add_explicit(&of->refused, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&of->refused_bytes, bytes, memory_order_relaxed);
}

int books_reserve(struct process *p, struct object *object)
{
	stand_still(p);
	owned_lock_acquire(&p->lock);
	int r = object->small ? small_reserve(p, object)
			      : books_resize_locked(p, object->gpu, 0, object->bytes);
	if (r == 0)
		slot_count_up(&process_slot(p)->calls_begun);
	owned_lock_release(&p->lock);
	return r;
}

void books_cancel(struct process *p, const struct object *object)
{
	owned_lock_acquire(&p->lock);
	books_managed_unlisted_end_locked(p, object);
	if (object->small)
		small_cancel(p, object);
	else
		books_resize_locked(p, object->gpu, object->bytes, 0);
	books_managed_end_locked(p, object);
	slot_count_up(&process_slot(p)->calls_done);
	owned_lock_release(&p->lock);
}

/* The object that had this handle was freed without our seeing it. It is dropped before the new one
 * is put in its block: they may have the same place there. */
static int keep_locked(struct process *p, struct object *object)
{
	struct object stale;
	uint64_t reserved = object->bytes;
	int r = 0;

	if (object->small)
		object->bytes = 0;
	/* Without memory to remember it, it stays charged until the process ends. */
	table_put(&p->objects, object, &stale);
	if (stale.kind != OBJECT_NONE)
		books_drop_locked(p, &stale);
	if (object->small && small_keep(p, object, reserved) < 0) {
		table_take(&p->objects, object->kind, object->handle, &stale);
		object->bytes = reserved;
		r = -ENOMEM;
	}
	return r;
}

int books_keep(struct process *p, struct object *object)
{
	owned_lock_acquire(&p->lock);
	int r = keep_locked(p, object);
	if (r == 0)
		slot_count_up(&process_slot(p)->calls_done);
	owned_lock_release(&p->lock);
	return r;
}

static bool is_piece(const struct object *object)
{
	return object->kind == OBJECT_LINEAR && object->memory;
}

static void piece_taken_locked(struct process *p, const struct object *object)
{
	p->pieces_freeing -= is_piece(object);
	p->pieces_freed += is_piece(object);
}

bool books_take(struct process *p, enum object_kind kind, uint64_t handle, struct object *ret)
{
	stand_still(p);
	owned_lock_acquire(&p->lock);
	bool found = table_take(&p->objects, kind, handle, ret);
	if (found)
		slot_count_up(&process_slot(p)->calls_begun);
	if (found && ret->small)
		small_leave(p, ret);
	p->pieces_freeing += found && is_piece(ret);
	owned_lock_release(&p->lock);
	return found;
}

bool books_drop(struct process *p, const struct object *object)
{
	owned_lock_acquire(&p->lock);
	uint64_t before = p->gpu[object->gpu].leaving;
	if (object->small)
		small_drop(p, object);
	else
		books_drop_locked(p, object);
	piece_taken_locked(p, object);
	slot_count_up(&process_slot(p)->calls_done);
	bool leaves = p->gpu[object->gpu].leaving != before;
	owned_lock_release(&p->lock);
	return leaves;
}

void books_restore(struct process *p, const struct object *object)
{
	owned_lock_acquire(&p->lock);
	table_put(&p->objects, object, NULL);
	if (object->small)
		small_return(p, object);
	piece_taken_locked(p, object);
	slot_count_up(&process_slot(p)->calls_done);
	owned_lock_release(&p->lock);
}

uint64_t books_freeing(struct process *p, const struct object *object)
{
	struct object leaving = *object;

	leaving.kind = OBJECT_FREEING;
	leaving.memory = object->handle;
	owned_lock_acquire(&p->lock);
	leaving.handle = ++p->last_freeing;
	/* Its place in a block stays taken. */
	if (object->small)
		leaving.count = !small_stay(p, object);
	p->freeing_count++;
	books_growing_tell_locked(p, OBJECT_FREEING, 0, freeing_bytes(&leaving));
	bool kept = table_put(&p->objects, &leaving, NULL) == 0;
	if (!kept)
		books_drop_locked(p, &leaving);
	slot_count_up(&process_slot(p)->calls_done);
	owned_lock_release(&p->lock);
	return kept ? leaving.handle : 0;
}

void books_freed(struct process *p, uint64_t number, bool freed)
{
	struct object leaving;

	owned_lock_acquire(&p->lock);
	if (table_take(&p->objects, OBJECT_FREEING, number, &leaving)) {
		struct object small = leaving;

		small.handle = leaving.memory;
		if (!freed && leaving.small)
			small_export(p, &small);
		leaving.exported |= !freed;
		p->lessening = true;
		books_drop_locked(p, &leaving);
		p->lessening = false;
	}
	owned_lock_release(&p->lock);
}

int books_resize(struct process *p, uint32_t gpu, uint64_t from, uint64_t to)
{
	owned_lock_acquire(&p->lock);
	int r = books_resize_locked(p, gpu, from, to);
	owned_lock_release(&p->lock);
	return r;
}

bool books_look(struct process *p, enum object_kind kind, uint64_t handle, struct object *ret)
{
	owned_lock_acquire(&p->lock);
	const struct object *object = table_find(&p->objects, kind, handle);
	if (object)
		*ret = *object;
	owned_lock_release(&p->lock);
	return object != NULL;
}

bool books_pieces_quiet(struct process *p, uint64_t *ret_freed)
{
	owned_lock_acquire(&p->lock);
	*ret_freed = p->pieces_freed;
	bool quiet = !p->pieces_freeing;
	owned_lock_release(&p->lock);
	return quiet;
}

size_t books_list(struct process *p, enum object_kind kind, uint64_t memory, uint64_t *handles,
		  size_t room)
{
	owned_lock_acquire(&p->lock);
	size_t count = table_list(&p->objects, kind, memory, handles, room);
	owned_lock_release(&p->lock);
	return count;
}

bool books_unreference(struct process *p, enum object_kind kind, uint64_t handle,
		       struct object *ret)
{
	owned_lock_acquire(&p->lock);
	struct object *object = table_find(&p->objects, kind, handle);
	if (object) {
		object->count--;
		*ret = *object;
		if (!ret->count)
			table_take(&p->objects, kind, handle, ret);
	}
	owned_lock_release(&p->lock);
	return object != NULL;
}

bool books_remove(struct process *p, enum object_kind kind, uint64_t handle, struct object *ret)
{
	owned_lock_acquire(&p->lock);
	bool found = table_take(&p->objects, kind, handle, ret);
	owned_lock_release(&p->lock);
	return found;
}

bool books_export(struct process *p, enum object_kind kind, uint64_t handle)
{
	owned_lock_acquire(&p->lock);
	struct object *object = table_find(&p->objects, kind, handle);
	if (object)
		object->exported = true;
	if (object && object->small)
		small_export(p, object);
	if (object)
		atomic_store_explicit(&process_slot(p)->exported, 1, memory_order_release);
	owned_lock_release(&p->lock);
	return object != NULL;
}

void books_import(struct process *p)
{
	if (p)
		atomic_store_explicit(&process_slot(p)->imported, 1, memory_order_release);
}

void books_call_begin(struct process *p)
{
	stand_still(p);
	slot_count_up_alone(p, &process_slot(p)->calls_begun);
}

void books_question_begin(struct process *p)
{
	slot_count_up_alone(p, &process_slot(p)->calls_begun);
}

void books_call_end(struct process *p)
{
	slot_count_up_alone(p, &process_slot(p)->calls_done);
}

uint32_t books_reference(struct process *p, enum object_kind kind, uint64_t handle, int change)
{
	owned_lock_acquire(&p->lock);
	struct object *object = table_find(&p->objects, kind, handle);
	uint32_t count = object ? object->count += (uint32_t)change : 0;
	owned_lock_release(&p->lock);
	return count;
}

void books_drop_context(struct process *p, uint64_t context)
{
	struct object object;
	size_t cursor = 0;

	owned_lock_acquire(&p->lock);
	while (table_take_of_context(&p->objects, context, &cursor, &object))
		books_drop_locked(p, &object);
	owned_lock_release(&p->lock);
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
