#include "front/books.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"

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

static uint32_t arrays_extra(const struct process_arrays *arrays)
{
	uint32_t least = (uint32_t)(books_blocks(arrays->bytes) / BLOCK_BYTES);

	return arrays->blocks > least ? arrays->blocks - least : 0;
}

/* Tells the daemon how much of what is charged need not be held. */
static void unsure_tell_locked(struct process *p)
{
	uint64_t unsure = 0;

	for (uint32_t gpu = 0; gpu < p->attachment.gpu_count; gpu++)
		unsure += p->gpu[gpu].leaving + arrays_extra(&p->gpu[gpu].arrays) * BLOCK_BYTES;
	/* Of graphs that are gone it goes without a call. */
	if (!p->graph_count)
		unsure += p->graph_bytes;
	atomic_store_explicit(&process_slot(p)->unsure, unsure, memory_order_release);
}

/* A pool or what graphs hold is booked with so much. */
static void growing_tell_locked(struct process *p, enum object_kind kind, uint64_t before,
				uint64_t now)
{
	p->growing_bytes += now - before;
	atomic_store_explicit(&process_slot(p)->growing, p->growing_bytes, memory_order_release);
	if (kind != OBJECT_GRAPH_POOL)
		return;
	p->graph_bytes += now - before;
	unsure_tell_locked(p);
}

/* Given back, but the driver may keep it: it stays charged. */
void books_leave_locked(struct process *p, uint32_t gpu, uint64_t bytes)
{
	p->gpu[gpu].leaving += bytes;
	unsure_tell_locked(p);
}

/* The daemon is to know of descriptors that were given out before it is told that this leaves. */
static void object_leave_locked(struct process *p, const struct object *object)
{
	if (object->described)
		atomic_fetch_add(&process_slot(p)->described, object->bytes);
	books_leave_locked(p, object->gpu, object->bytes);
}

static int resize_locked(struct process *p, uint32_t gpu, uint64_t from, uint64_t to)
{
	const struct ledger *l = &p->attachment.ledger;

	if (to > BOOKS_MOST)
		return -ENOMEM;
	if (to > from)
		return ledger_charge(l, p->attachment.slot, gpu, to - from);
	if (to < from)
		ledger_uncharge(l, p->attachment.slot, gpu, from - to);
	return 0;
}

/* Uncharges what the driver may have had for some time. Where the daemon may have posted that, it
 * stays charged until the daemon was asked: of this count and that word, one of the two sees what
 * the other one did. */
void books_lessen_locked(struct process *p, uint32_t gpu, uint64_t bytes)
{
	struct ledger_slot *slot = process_slot(p);

	if (!bytes)
		return;
	atomic_fetch_add(&slot->lessened, 1);
	if (atomic_load(&slot->lowered))
		books_leave_locked(p, gpu, bytes);
	else
		resize_locked(p, gpu, bytes, 0);
}

static bool is_packed(const struct object *object)
{
	return (object->kind == OBJECT_ARRAY || object->kind == OBJECT_MIPMAP) && object->memory;
}

static void arrays_release_locked(struct process *p, uint32_t gpu, uint32_t blocks)
{
	books_lessen_locked(p, gpu, blocks * BLOCK_BYTES);
	p->gpu[gpu].arrays.blocks -= blocks;
	unsure_tell_locked(p);
}

static void array_drop_locked(struct process *p, const struct object *array)
{
	struct process_arrays *arrays = &p->gpu[array->gpu].arrays;

	arrays->bytes -= array->memory;
	arrays->unsure = MIN(arrays->unsure + 1, arrays->blocks);
	if (!--arrays->count) {
		arrays_release_locked(p, array->gpu, arrays->blocks);
		arrays->unsure = 0;
	}
	unsure_tell_locked(p);
}

/* What modules took perhaps can be asked about again. */
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

/* It is uncharged. Without any the driver's figures tell all again. */
static void managed_end_locked(struct process *p, const struct object *object)
{
	if (!object->managed || atomic_fetch_sub(&p->managed_count, 1) > 1)
		return;
	atomic_store(&process_slot(p)->managed, 0);
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

static void drop_locked(struct process *p, const struct object *object)
{
	struct object leaving = *object;

	if (object->kind == OBJECT_FREEING) {
		leaving.handle = object->memory;
		object = &leaving;
	}
	if (object->kind == OBJECT_BLOCK) {
		small_drop_block(p, object);
	} else if (is_packed(object)) {
		array_drop_locked(p, object);
	} else if (object->small) {
		small_leave(p, object);
		small_drop(p, object);
	} else if (object->exported) {
		object_leave_locked(p, object);
	} else if (p->lessening) {
		books_lessen_locked(p, object->gpu, object->bytes);
	} else {
		resize_locked(p, object->gpu, object->bytes, 0);
	}
	managed_end_locked(p, object);
}

void books_count_refused(struct process *p, uint32_t gpu)
{
	atomic_fetch_add_explicit(&ledger_gpu(&p->attachment.ledger, gpu)->refused, 1,
				  memory_order_relaxed);
}

/* The slot's counters have one writer at a time: whoever holds the lock. */
static void count_up(_Atomic uint32_t *counter)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
			      memory_order_release);
}

static void count_down(_Atomic uint32_t *counter)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) - 1,
			      memory_order_release);
}

int books_reserve(struct process *p, struct object *object)
{
	stand_still(p);
	owned_lock_acquire(&p->lock);
	int r = object->small ? small_reserve(p, object)
			      : resize_locked(p, object->gpu, 0, object->bytes);
	if (r == 0)
		count_up(&process_slot(p)->calls_begun);
	owned_lock_release(&p->lock);
	return r;
}

void books_cancel(struct process *p, const struct object *object)
{
	owned_lock_acquire(&p->lock);
	if (object->small)
		small_cancel(p, object);
	else
		resize_locked(p, object->gpu, object->bytes, 0);
	managed_end_locked(p, object);
	count_up(&process_slot(p)->calls_done);
	owned_lock_release(&p->lock);
}

void books_unsure_leave(struct process *p)
{
	owned_lock_acquire(&p->lock);
	for (uint32_t gpu = 0; gpu < p->attachment.gpu_count; gpu++) {
		struct process_arrays *arrays = &p->gpu[gpu].arrays;
		uint32_t extra = arrays_extra(arrays);

		if (!extra)
			continue;
		arrays->blocks -= extra;
		arrays->unsure = 0;
		books_leave_locked(p, gpu, extra * BLOCK_BYTES);
		/* What was taken of them is posted by the daemon from now on. */
		atomic_store(&p->has_remains, true);
	}
	owned_lock_release(&p->lock);
}

void books_managed(struct process *p, struct object *object)
{
	owned_lock_acquire(&p->lock);
	object->managed = true;
	atomic_fetch_add(&p->managed_count, 1);
	atomic_store(&process_slot(p)->managed, 1);
	owned_lock_release(&p->lock);
}

bool books_cancel_growing(struct process *p, const struct object *object)
{
	owned_lock_acquire(&p->lock);
	uint64_t before = p->gpu[object->gpu].leaving;
	books_lessen_locked(p, object->gpu, object->bytes);
	count_up(&process_slot(p)->calls_done);
	bool leaves = p->gpu[object->gpu].leaving != before;
	owned_lock_release(&p->lock);
	return leaves;
}

/* What had that handle was freed without our seeing it. It is dropped before the new one is put in
 * its block: they may have the same place there. */
static int keep_locked(struct process *p, struct object *object)
{
	struct object stale;
	uint64_t reserved = object->bytes;

	if (object->small)
		object->bytes = 0;
	/* Without memory to remember it, it stays charged until the process ends. */
	table_put(&p->objects, object, &stale);
	if (stale.kind != OBJECT_NONE)
		drop_locked(p, &stale);
	if (!object->small || small_keep(p, object, reserved) == 0)
		return 0;
	table_take(&p->objects, object->kind, object->handle, &stale);
	object->bytes = reserved;
	return -ENOMEM;
}

int books_keep(struct process *p, struct object *object)
{
	owned_lock_acquire(&p->lock);
	int r = keep_locked(p, object);
	if (r == 0)
		count_up(&process_slot(p)->calls_done);
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
		count_up(&process_slot(p)->calls_begun);
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
		drop_locked(p, object);
	piece_taken_locked(p, object);
	count_up(&process_slot(p)->calls_done);
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
	count_up(&process_slot(p)->calls_done);
	owned_lock_release(&p->lock);
}

void books_array_packed(struct process *p, struct object *array, uint64_t bytes)
{
	struct process_arrays *arrays = &p->gpu[array->gpu].arrays;

	array->memory = bytes;
	array->bytes = 0;
	owned_lock_acquire(&p->lock);
	arrays->count++;
	arrays->blocks++;
	arrays->bytes += bytes;
	arrays->unsure += arrays->blocks > 1;
	unsure_tell_locked(p);
	owned_lock_release(&p->lock);
}

uint32_t books_arrays_unsure(struct process *p, uint32_t gpu)
{
	owned_lock_acquire(&p->lock);
	uint32_t unsure = p->gpu[gpu].arrays.unsure;
	owned_lock_release(&p->lock);
	return unsure;
}

bool books_arrays_ask(struct process *p, uint32_t gpu)
{
	struct process_arrays *arrays = &p->gpu[gpu].arrays;

	owned_lock_acquire(&p->lock);
	bool first = !arrays->asking;
	arrays->asking = true;
	owned_lock_release(&p->lock);
	return first;
}

/* Never fewer than they fill. An answer that says nothing may be none: then it is asked again, but
 * ever less often. */
void books_arrays_asked(struct process *p, uint32_t gpu, uint64_t over)
{
	struct process_arrays *arrays = &p->gpu[gpu].arrays;

	owned_lock_acquire(&p->lock);
	arrays_release_locked(p, gpu, (uint32_t)MIN(over / BLOCK_BYTES, arrays_extra(arrays)));
	arrays->unsure = over ? 0 : arrays->unsure / 2;
	arrays->asking = false;
	owned_lock_release(&p->lock);
}

/* That the driver may have had back before it is dropped. */
static uint64_t freeing_bytes(const struct object *freeing)
{
	return freeing->small ? BLOCK_BYTES : freeing->bytes;
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
		small_return(p, object);
	bool kept = table_put(&p->objects, &leaving, NULL) == 0;
	if (kept) {
		p->freeing_count++;
		growing_tell_locked(p, OBJECT_FREEING, 0, freeing_bytes(&leaving));
	} else {
		drop_locked(p, &leaving);
	}
	count_up(&process_slot(p)->calls_done);
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
		drop_locked(p, &leaving);
		p->lessening = false;
		p->freeing_count--;
		growing_tell_locked(p, OBJECT_FREEING, freeing_bytes(&leaving), 0);
	}
	owned_lock_release(&p->lock);
}

void books_leave(struct process *p, uint32_t gpu, uint64_t bytes)
{
	owned_lock_acquire(&p->lock);
	books_leave_locked(p, gpu, bytes);
	owned_lock_release(&p->lock);
}

void books_doubt(struct process *p, struct object *object, uint64_t bytes)
{
	owned_lock_acquire(&p->lock);
	bool tells = !atomic_load(&p->managed_count);

	if (tells) {
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
	if (!atomic_load(&p->managed_count))
		doubts_end_locked(p);
	owned_lock_release(&p->lock);
}

void books_leave_object(struct process *p, const struct object *object)
{
	owned_lock_acquire(&p->lock);
	object_leave_locked(p, object);
	owned_lock_release(&p->lock);
}

bool books_are_leaving(struct process *p, uint32_t gpu)
{
	owned_lock_acquire(&p->lock);
	bool leaving = p->gpu[gpu].leaving;
	owned_lock_release(&p->lock);
	return leaving;
}

uint64_t books_leaving_begin(struct process *p, uint32_t gpu, uint64_t most)
{
	owned_lock_acquire(&p->lock);
	uint64_t bytes = MIN(p->gpu[gpu].leaving, most);
	p->gpu[gpu].leaving -= bytes;
	unsure_tell_locked(p);
	if (bytes) {
		count_up(&process_slot(p)->leaving);
		count_up(&process_slot(p)->parting);
	}
	owned_lock_release(&p->lock);
	return bytes;
}

void books_waiting_begin(struct process *p)
{
	owned_lock_acquire(&p->lock);
	count_up(&process_slot(p)->leaving);
	owned_lock_release(&p->lock);
}

void books_waiting_end(struct process *p)
{
	owned_lock_acquire(&p->lock);
	count_down(&process_slot(p)->leaving);
	owned_lock_release(&p->lock);
}

bool books_parting_begin(struct process *p)
{
	if (!atomic_load_explicit(&process_slot(p)->exported, memory_order_relaxed))
		return false;
	books_over_begin(p);
	return true;
}

void books_over_begin(struct process *p)
{
	owned_lock_acquire(&p->lock);
	count_up(&process_slot(p)->parting);
	owned_lock_release(&p->lock);
}

void books_parting_end(struct process *p)
{
	owned_lock_acquire(&p->lock);
	count_down(&process_slot(p)->parting);
	owned_lock_release(&p->lock);
}

bool books_leaving_end(struct process *p, uint32_t gpu, uint64_t bytes, bool gone)
{
	owned_lock_acquire(&p->lock);
	if (gone)
		resize_locked(p, gpu, bytes, 0);
	else
		books_leave_locked(p, gpu, bytes);
	count_down(&process_slot(p)->leaving);
	count_down(&process_slot(p)->parting);
	bool others = atomic_load_explicit(&process_slot(p)->leaving, memory_order_relaxed);
	owned_lock_release(&p->lock);
	return others;
}

int books_resize(struct process *p, uint32_t gpu, uint64_t from, uint64_t to)
{
	owned_lock_acquire(&p->lock);
	int r = resize_locked(p, gpu, from, to);
	owned_lock_release(&p->lock);
	return r;
}

void books_look_begin(struct process *p, struct look *look)
{
	owned_lock_acquire(&p->lock);
	look->number = ++p->growing_looks;
	owned_lock_release(&p->lock);
}

/* Why no amount that is booked is ever below what is held: a call that made the object grow looks
 * afterwards, and has its reserve charged until it has booked what it saw. So a look that is not
 * overtaken saw the growth of every call that ended before, and that of the others is in their
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
		/* Who is alone counts on what is booked, reserving nothing. */
		if (stale || (growth->alone && !look->in_call)) {
			if (bytes < object->bytes)
				atomic_store(&process_slot(p)->restless, 1);
			return 0;
		}
		uint64_t less = object->bytes - bytes;

		growing_tell_locked(p, look->kind, object->bytes, bytes);
		object->bytes = bytes;
		if (object->exported)
			books_leave_locked(p, object->gpu, less);
		else
			books_lessen_locked(p, object->gpu, less);
		return 0;
	}
	uint64_t paid = MIN(*reserve, bytes - object->bytes);
	*reserve -= paid;
	growing_tell_locked(p, look->kind, object->bytes, object->bytes + paid);
	object->bytes += paid;
	if (object->bytes == bytes || growth->calls > look->in_call)
		return 0;
	int r = resize_locked(p, object->gpu, object->bytes, bytes);
	if (r == 0) {
		growing_tell_locked(p, look->kind, object->bytes, bytes);
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
		drop_locked(p, &stale);
	if (object->kind == OBJECT_GRAPH && stale.kind == OBJECT_NONE) {
		p->graph_count++;
		unsure_tell_locked(p);
	}
	owned_lock_release(&p->lock);
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

static void forget_locked(struct process *p, enum object_kind kind, uint64_t handle,
			  struct object *ret)
{
	bool found = table_take(&p->objects, kind, handle, ret);

	if (found && (kind == OBJECT_POOL || kind == OBJECT_GRAPH_POOL))
		growing_tell_locked(p, kind, ret->bytes, 0);
	if (found && kind == OBJECT_GRAPH) {
		p->graph_count--;
		unsure_tell_locked(p);
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
	if (atomic_load(&p->managed_count))
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
	} else {
		if (p->growing_count < PROCESS_GROWING_MAX)
			p->growing[p->growing_count++] = *pool;
		growing_tell_locked(p, OBJECT_POOL, 0, pool->bytes);
	}
	owned_lock_release(&p->lock);
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

void books_call_begin(struct process *p)
{
	stand_still(p);
	owned_lock_acquire(&p->lock);
	count_up(&process_slot(p)->calls_begun);
	owned_lock_release(&p->lock);
}

void books_question_begin(struct process *p)
{
	owned_lock_acquire(&p->lock);
	count_up(&process_slot(p)->calls_begun);
	owned_lock_release(&p->lock);
}

void books_call_end(struct process *p)
{
	owned_lock_acquire(&p->lock);
	count_up(&process_slot(p)->calls_done);
	owned_lock_release(&p->lock);
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
		drop_locked(p, &object);
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
