#include "front/cuda/charge/grow.h"

#include <errno.h>
#include <time.h>

#include "front/books.h"
#include "front/cuda/gate/gate.h"
#include "front/cuda/hooks.h"

/* Pools grow in steps of this or of a larger request. */
#define GROW_STEP MIB(32)
/* A look that a later one overtook is begun anew this often. */
#define LOOKS_MOST 8
/* How often the daemon is asked where what it was told of pools was too much by then. */
#define SETTLE_MOST 3
/* After this many small arrays, made or destroyed, the driver is asked what it holds; where that is
 * to be exact, so often as there is no sure answer. */
#define MAYBE_FREED_MOST 16
#define ASKED_MOST 3
/* How often what is booked is made certain again for a call that counts on it. */
#define CERTAIN_MOST 8
/* How long calls wait for one another where one must be alone: half a second. */
#define DOZE_NS 50000L
#define DOZES_MOST 10000

struct holding {
	uint64_t reserved, used;
};

static void doze(void)
{
	nanosleep(&(struct timespec){.tv_nsec = DOZE_NS}, NULL);
}

/* Captures forbid to ask pools, and to trim them, which is not the program's doing here. */
static void relax(struct gate_relaxed *r)
{
	while (!gate_relax(r))
		doze();
}

static CUresult ask(struct holding *h, enum object_kind kind, uint64_t handle)
{
	if (kind == OBJECT_POOL) {
		CUmemoryPool pool = (CUmemoryPool)(uintptr_t)handle;
		CUresult result = real_cuMemPoolGetAttribute(
			pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &h->reserved);

		return result ? result
			      : real_cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
							   &h->used);
	}
	CUdevice device = (CUdevice)handle;
	CUresult result = real_cuDeviceGetGraphMemAttribute(
		device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &h->reserved);

	return result ? result
		      : real_cuDeviceGetGraphMemAttribute(
				device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &h->used);
}

/* A pool that is destroyed, or a device without a context, holds nothing that could be asked.
 * False: the driver does not say, as after a kernel's fault: then what is held is held still. */
static bool holding_of(struct holding *h, enum object_kind kind, uint64_t handle)
{
	struct gate_relaxed relaxed;

	*h = (struct holding){0};
	relax(&relaxed);
	CUresult result = ask(h, kind, handle);
	gate_relax_end(&relaxed);
	switch (result) {
	case CUDA_SUCCESS:
		return true;
	case CUDA_ERROR_INVALID_VALUE:
	case CUDA_ERROR_INVALID_HANDLE:
	case CUDA_ERROR_INVALID_DEVICE:
	case CUDA_ERROR_INVALID_CONTEXT:
	case CUDA_ERROR_CONTEXT_IS_DESTROYED:
		*h = (struct holding){0};
		return true;
	default:
		return false;
	}
}

void grow_track(struct process *p, enum object_kind kind, uint64_t handle, int gpu)
{
	struct object object = {.kind = kind, .handle = handle, .gpu = (uint16_t)gpu, .count = 1};

	owned_lock_acquire(&p->lock);
	if (!table_find(&p->objects, kind, handle) && table_put(&p->objects, &object, NULL) == 0 &&
	    p->growing_count < PROCESS_GROWING_MAX)
		p->growing[p->growing_count++] = object;
	owned_lock_release(&p->lock);
}

/* Books what one holds; growth is paid from *reserve first. 0 or -ENOMEM. */
static int settle(struct process *p, enum object_kind kind, uint64_t handle, bool in_call,
		  uint64_t *reserve)
{
	struct look look = {.kind = kind, .handle = handle, .in_call = in_call};
	struct holding h;
	int r;

	for (int i = 1;; i++) {
		look.last = i == LOOKS_MOST;
		books_look_begin(p, &look);
		if (!holding_of(&h, kind, handle)) {
			struct object known = {0};

			/* It may have grown by all that was reserved. */
			grow_expect_less(p);
			if (!*reserve || !books_look(p, kind, handle, &known))
				return 0;
			h = (struct holding){.reserved = known.bytes + *reserve};
		}
		r = books_look_end(p, &look, h.reserved, reserve);
		if (r != -EAGAIN)
			break;
	}
	/* Only calls that say so (grow_waits_begin()) have the driver give that back. */
	if (h.reserved > h.used)
		atomic_store(&p->growing_not_revalidated, true);
	return r;
}

/* Calls of this kind wait for a bounded time while one is to be alone. */
static void enter(struct process *p, int kind)
{
	struct process_growth *growth = process_growth_of(p, kind);

	for (int i = 0;; i++) {
		owned_lock_acquire(&p->lock);
		bool waits = growth->alone && i < DOZES_MOST;
		growth->calls += !waits;
		owned_lock_release(&p->lock);
		if (!waits)
			return;
		doze();
	}
}

static void leave(struct process *p, int kind, bool alone)
{
	struct process_growth *growth = process_growth_of(p, kind);

	owned_lock_acquire(&p->lock);
	growth->calls--;
	growth->alone = growth->alone && !alone;
	owned_lock_release(&p->lock);
}

/* Enters when all others have left. False: they don't, or another one is to be alone. */
static bool enter_alone(struct process *p, int kind)
{
	struct process_growth *growth = process_growth_of(p, kind);
	bool mine = false, entered = false;

	for (int i = 0; i < DOZES_MOST && !entered; i++) {
		if (i)
			doze();
		owned_lock_acquire(&p->lock);
		mine = mine || !growth->alone;
		growth->alone = true;
		entered = mine && !growth->calls;
		growth->calls += entered;
		owned_lock_release(&p->lock);
	}
	if (mine && !entered) {
		owned_lock_acquire(&p->lock);
		growth->alone = false;
		owned_lock_release(&p->lock);
	}
	return entered;
}

CUresult grow_begin(struct growing *g, struct process *p, enum object_kind kind, uint64_t handle,
		    int gpu, uint64_t bytes)
{
	uint64_t bound = bytes > BOOKS_MOST ? UINT64_MAX : ALIGN_UP(bytes, GROW_STEP);

	*g = (struct growing){.kind = kind, .handle = handle};
	grow_track(p, kind, handle, gpu);
	CUresult result = taking_try_on(&g->taking, p, gpu, OBJECT_NONE, bound);
	if (result == CUDA_SUCCESS)
		enter(p, kind);
	return result;
}

CUresult grow_begin_alone(struct growing *g, struct process *p, enum object_kind kind,
			  uint64_t handle, int gpu)
{
	*g = (struct growing){.kind = kind, .handle = handle, .alone = true};
	for (int i = 0; gpu >= 0 && i < CERTAIN_MOST; i++) {
		if (i)
			grow_settle_exactly(p, gpu);
		if (!enter_alone(p, kind))
			return CUDA_ERROR_OUT_OF_MEMORY;
		CUresult result = taking_try_on(&g->taking, p, gpu, OBJECT_NONE, 0);
		/* It counts on what is booked, which is to be in the sum. While it is in a call,
		 * the daemon leaves it there; one of the two sees what the other one did. */
		atomic_thread_fence(memory_order_seq_cst);
		if (result != CUDA_SUCCESS || !atomic_load(&process_slot(p)->daemon_corrected))
			return result;
		books_cancel(p, &g->taking.object);
		leave(p, kind, true);
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

bool grow_end(struct growing *g)
{
	struct process *p = g->taking.process;
	int r = settle(p, g->kind, g->handle, true, &g->taking.object.bytes);

	bool leaves = books_cancel_growing(p, &g->taking.object);
	leave(p, g->kind, g->alone);
	if (leaves)
		grow_settle_leaving(p);
	return r == 0;
}

/* From now on, memory that is booked need not be held. */
static void revalidate_later(struct process *p)
{
	_Atomic uint32_t *not_revalidated = &process_slot(p)->not_revalidated;

	if (!atomic_load(not_revalidated))
		atomic_store(not_revalidated, 1);
}

void grow_expect_less(struct process *p)
{
	atomic_store(&p->growing_not_revalidated, true);
	revalidate_later(p);
}

/* Without a call of the process's. */
static bool may_go_alone(struct process *p)
{
	owned_lock_acquire(&p->lock);
	bool goes = p->freeing_count;
	for (uint32_t i = 0; grow_is_not_revalidated(p) && i < p->growing_count; i++)
		goes |= p->growing[i].kind == OBJECT_GRAPH_POOL;
	owned_lock_release(&p->lock);
	return goes;
}

/* All was just looked at, so that what is booked is held. There are two exceptions: other threads
 * have the driver give something back just now; or it may give back without a call what graphs held
 * or streams are to free. */
static void certain_begin(struct process *p)
{
	atomic_store(&process_slot(p)->not_revalidated, 0);
	if (atomic_load(&p->growing_waits))
		revalidate_later(p);
	grow_settle_all(p);
	if (may_go_alone(p))
		revalidate_later(p);
}

static void certain_end(struct process *p)
{
	if (p->growing_count || p->freeing_count)
		revalidate_later(p);
}

/* A copy of the list's entry, as pools come and go meanwhile. False: no such entry. */
static bool list_entry(struct process *p, uint32_t i, struct object *ret)
{
	owned_lock_acquire(&p->lock);
	bool found = i < p->growing_count;
	if (found)
		*ret = p->growing[i];
	owned_lock_release(&p->lock);
	return found;
}

void grow_settle_one(struct process *p, enum object_kind kind, uint64_t handle)
{
	uint64_t nothing = 0;

	settle(p, kind, handle, false, &nothing);
}

struct process *grow_waits_begin(void)
{
	struct process *p = process_peek();

	if (!p || !p->growing_count)
		return NULL;
	atomic_fetch_add(&p->growing_waits, 1);
	revalidate_later(p);
	return p;
}

void grow_waits_end(struct process *waiting)
{
	if (waiting)
		atomic_fetch_sub(&waiting->growing_waits, 1);
}

CUresult grow_waited(struct process *waiting, CUresult result)
{
	struct process *p = process_peek();

	if (p)
		grow_settle(p);
	grow_waits_end(waiting);
	return result;
}

uint64_t grow_pool_used(CUmemoryPool pool)
{
	struct holding h;

	return holding_of(&h, OBJECT_POOL, (uintptr_t)pool) ? h.used : 0;
}

/* A wait for all of a context spoils each capture on its device, in whatever mode. */
static CUresult synchronize(void)
{
	CUresult result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;

	if (!gate_look_begin())
		return result;
	if (!atomic_load(&gate_captures))
		result = real_cuCtxSynchronize();
	gate_look_end();
	return result;
}

bool grow_quiesce(void)
{
	struct process *waiting = grow_waits_begin();
	CUresult result = synchronize();

	if (waiting)
		grow_settle_all(waiting);
	grow_waits_end(waiting);
	return result == CUDA_SUCCESS;
}

void grow_settle(struct process *p)
{
	if (!grow_is_not_revalidated(p))
		return;
	atomic_store_explicit(&p->growing_not_revalidated, false, memory_order_relaxed);
	grow_settle_all(p);
	grow_settle_leaving(p);
}

void grow_settle_leaving(struct process *p)
{
	for (uint32_t gpu = 0; gpu < p->attachment.gpu_count; gpu++)
		if (books_leaving(p, gpu))
			grow_settle_exactly(p, (int)gpu);
}

static bool less_is_used(const struct process *p, const int64_t *used)
{
	bool less = false;

	for (uint32_t gpu = 0; gpu < p->attachment.gpu_count; gpu++)
		less |= ledger_slot_gpu(&p->attachment.ledger, p->attachment.slot, gpu)->used <
			used[gpu];
	return less;
}

/* A daemon from before there was ATTACH_FLAG_LEAVING looks at what is charged. */
static uint64_t leave_first(struct process *p, struct attach_settling *s)
{
	books_leaving_end(p, (uint32_t)s->gpu, s->leaving, true);
	s->leaving = 0;
	process_settle(p, false, s);
	return s->over;
}

static void ask_daemon(struct process *p, bool contexts, struct attach_settling *s)
{
	bool waits = !s->leaving;

	if (waits)
		books_waiting_begin(p);
	process_settle(p, contexts, s);
	if (waits)
		books_waiting_end(p);
}

/* Within a call that is counted. */
static uint64_t settle_in_call(struct process *p, int gpu, bool contexts, bool *ret_sure)
{
	struct attach_settling s = {.gpu = gpu};
	int64_t used[LEDGER_GPUS_MAX] = {0};
	bool less = true;

	if (atomic_load(&process_slot(p)->daemon_corrected)) {
		grow_settle_all(p);
		books_maybe_freed_leave(p);
	}
	if (gpu >= 0)
		s.leaving = books_leaving_begin(p, (uint32_t)gpu, ATTACH_LEAVING_MOST);
	for (int tries = 0; less && tries < SETTLE_MOST; tries++) {
		certain_begin(p);
		for (uint32_t i = 0; i < p->attachment.gpu_count; i++)
			used[i] =
				ledger_slot_gpu(&p->attachment.ledger, p->attachment.slot, i)->used;
		ask_daemon(p, contexts, &s);
		grow_settle_all(p);
		less = p->growing_count && less_is_used(p, used);
	}
	certain_end(p);
	if (ret_sure)
		*ret_sure = s.sure && !less;
	if (s.leaving && s.asked && !s.taken_over)
		return leave_first(p, &s);
	/* Memory that other threads gave back meanwhile counts as too much, too. */
	if (s.leaving && books_leaving_end(p, (uint32_t)gpu, s.leaving, s.taken_over))
		return 0;
	return less ? 0 : s.over;
}

/* A question is a call that waits, so that the daemon can tell those that wait from others. */
static uint64_t settle_exactly(struct process *p, int gpu, bool contexts)
{
	books_question_begin(p);
	uint64_t over = settle_in_call(p, gpu, contexts, NULL);
	books_call_end(p);
	return over;
}

uint64_t grow_settle_exactly(struct process *p, int gpu)
{
	return settle_exactly(p, gpu, false);
}

uint64_t grow_settle_in_call(struct process *p, int gpu, bool *ret_sure)
{
	return settle_in_call(p, gpu, false, ret_sure);
}

/* The daemon has posted more than the process charged itself. */
static bool is_posted(const struct process *p, uint32_t gpu)
{
	return ledger_slot_gpu(&p->attachment.ledger, p->attachment.slot, gpu)->settled > 0;
}

void grow_import_closed(struct process *p)
{
	for (uint32_t gpu = 0; gpu < p->attachment.gpu_count; gpu++)
		if (is_posted(p, gpu)) {
			grow_settle_exactly(p, (int)gpu);
			return;
		}
}

void grow_settle_contexts(struct process *p, int gpu, bool contexts, bool in_call)
{
	if (in_call)
		settle_in_call(p, gpu, contexts, NULL);
	else
		settle_exactly(p, gpu, contexts);
}

void grow_settle_all(struct process *p)
{
	struct object object;

	for (uint32_t i = 0; list_entry(p, i, &object); i++)
		grow_settle_one(p, object.kind, object.handle);
}

/* As a call of its own, which whoever is alone is not disturbed by. */
static void trim(struct process *p, const struct object *object)
{
	struct process *waiting = grow_waits_begin();
	struct gate_relaxed relaxed;
	uint64_t nothing = 0;

	enter(p, object->kind);
	relax(&relaxed);
	if (object->kind == OBJECT_POOL) {
		real_cuMemPoolTrimTo((CUmemoryPool)(uintptr_t)object->handle, 0);
	} else {
		books_graphs_changed(p);
		real_cuDeviceGraphMemTrim((CUdevice)object->handle);
	}
	gate_relax_end(&relaxed);
	settle(p, object->kind, object->handle, true, &nothing);
	leave(p, object->kind, false);
	grow_waits_end(waiting);
}

/* Memory that may be elsewhere is charged and not held: then nothing can be told from what is. A
 * caller that is short of room waits for the answer. False: another thread asks. */
static bool arrays_ask(struct process *p, int gpu, bool in_call)
{
	bool sure = false;

	if (!books_arrays_ask(p, (uint32_t)gpu))
		return false;
	books_over_begin(p);
	if (!in_call)
		books_question_begin(p);
	uint64_t over = settle_in_call(p, gpu, false, &sure);
	books_arrays_asked(p, (uint32_t)gpu, over, sure);
	/* Memory that this gave back may be the daemon's to give. */
	if (books_leaving(p, (uint32_t)gpu))
		settle_in_call(p, gpu, false, NULL);
	if (!in_call)
		books_call_end(p);
	books_release_end(p);
	return true;
}

void grow_settle_arrays(struct process *p, int gpu, bool in_call)
{
	if (gpu >= 0 && books_arrays_maybe_freed(p, (uint32_t)gpu) >= MAYBE_FREED_MOST &&
	    books_figures_tell(p))
		arrays_ask(p, gpu, in_call);
}

/* A call that dozes changes nothing, and the daemon need not wait for its end. */
static void doze_in(struct process *p, bool in_call)
{
	if (in_call)
		books_waiting_begin(p);
	doze();
	if (in_call)
		books_waiting_end(p);
}

/* The answer to another thread's question says nothing of what came meanwhile. */
void grow_exact_arrays(struct process *p, int gpu, bool in_call)
{
	if (gpu < 0 || books_arrays_exact(p, (uint32_t)gpu) || !books_figures_tell(p))
		return;
	for (int i = 0, asked = 0;
	     i < DOZES_MOST && asked < ASKED_MOST && !books_arrays_exact(p, (uint32_t)gpu); i++)
		if (arrays_ask(p, gpu, in_call))
			asked++;
		else
			doze_in(p, in_call);
}

void grow_trim(struct process *p, int gpu)
{
	struct object object;

	grow_exact_arrays(p, gpu, false);
	for (uint32_t i = 0; list_entry(p, i, &object); i++)
		if (object.gpu == gpu)
			trim(p, &object);
	/* A process that is refused all the time is never quiescent, and the daemon does not lower
	 * what it posted.
	 */
	if (books_leaving(p, (uint32_t)gpu) ||
	    (atomic_load(&p->has_remains) && is_posted(p, (uint32_t)gpu)))
		grow_settle_exactly(p, gpu);
}
