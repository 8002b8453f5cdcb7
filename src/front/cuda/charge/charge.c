#include "front/cuda/charge/charge.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "front/books.h"
#include "front/cuda/charge/grow.h"
#include "front/cuda/device.h"
#include "front/cuda/hooks.h"

/* How often, and after how long each time, room is asked for again. */
#define AGAIN_MOST 20
#define AGAIN_NS 50000L
#define OVER_AGAIN_NS 10000000L
/* For how long, and after how long each time, while memory is leaving. */
#define LEAVING_NS 1000000000ull
#define LEAVING_AGAIN_NS 1000000L
/* How often a thread looks whether another's call is over. */
#define TURNS_MOST 2000
/* For how long others know that room is looked for, after each time; and while the daemon looks. */
#define SHORT_NS 20000000ull
#define SHORT_SWEEP_NS 300000000ull
/* The same for the driver, which has it when another process's is given back. */
#define TAKE_AGAIN_MOST 100
#define TAKE_AGAIN_NS 10000000L

static inline int current_gpu(struct process *p)
{
	CUdevice device;

	return real_cuCtxGetDevice(&device) == CUDA_SUCCESS ? device_gpu(p, device) : -1;
}

int charge_current_gpu(struct process *p)
{
	return current_gpu(p);
}

/* Whether a call of another process, or of another thread of this one, is under way. The thread's
 * own call is not counted. */
static bool others_are_calling(struct process *p)
{
	const struct ledger *l = &p->attachment.ledger;

	for (uint32_t i = 1; i < p->attachment.shape.slot_count; i++) {
		const struct ledger_slot *slot = ledger_slot(l, i);

		if (atomic_load_explicit(&slot->state, memory_order_relaxed) == LEDGER_SLOT_LIVE &&
		    atomic_load_explicit(&slot->calls_begun, memory_order_relaxed) !=
			    atomic_load_explicit(&slot->calls_done, memory_order_relaxed))
			return true;
	}
	return false;
}

static _Atomic uint64_t *short_word(const struct process *p, int gpu)
{
	return &ledger_gpu(&p->attachment.ledger, (uint32_t)gpu)->short_until_ns;
}

/* Numbers that others wrote there are theirs: they are believed for as long as they may say. */
static bool is_short_until(uint64_t until, uint64_t now)
{
	return now < until && until - now <= SHORT_SWEEP_NS;
}

/* A process that comes later says it for those before, too, and leaves it said when it ends: they
 * may look still. It is never said for a shorter time than another did. */
static void say_short(struct process *p, int gpu, struct charge_tries *tries, uint64_t ns)
{
	_Atomic uint64_t *word = short_word(p, gpu);
	uint64_t now = now_monotonic_ns(), until = now + ns;
	uint64_t old = atomic_load_explicit(word, memory_order_relaxed);

	if (old != tries->said_ns && is_short_until(old, now)) {
		tries->beside = true;
		if (old >= until)
			return;
	}
	if (atomic_compare_exchange_strong_explicit(word, &old, until, memory_order_relaxed,
						    memory_order_relaxed))
		tries->said_ns = until;
}

void charge_short_begin(struct process *p, int gpu, struct charge_tries *tries)
{
	say_short(p, gpu, tries, SHORT_NS);
}

void charge_short_end(struct process *p, int gpu, const struct charge_tries *tries)
{
	uint64_t said = tries->said_ns;

	if (said && !tries->beside)
		(void)atomic_compare_exchange_strong_explicit(
			short_word(p, gpu), &said, 0, memory_order_relaxed, memory_order_relaxed);
}

bool charge_is_short(const struct process *p, int gpu)
{
	uint64_t until = atomic_load_explicit(short_word(p, gpu), memory_order_relaxed);

	return until && is_short_until(until, now_monotonic_ns());
}

static bool is_alone(const struct process *p)
{
	const struct ledger *l = &p->attachment.ledger;

	for (uint32_t i = 1; i < p->attachment.shape.slot_count; i++)
		if (i != p->attachment.slot &&
		    atomic_load_explicit(&ledger_slot(l, i)->state, memory_order_relaxed) !=
			    LEDGER_SLOT_FREE)
			return false;
	return true;
}

/* charge_sweep_in_call() outside a call that is counted. */
static bool charge_sweep(struct process *p, int gpu, uint64_t bytes)
{
	const struct ledger *l = &p->attachment.ledger;
	uint64_t limit = ledger_limit(l, (uint32_t)gpu);
	uint64_t own = ledger_slot_bytes(l, p->attachment.slot, (uint32_t)gpu);

	if (own > limit || bytes > limit - own)
		return false;
	/* A process that is alone by now may not have been when there was no room. */
	return (is_alone(p) && !ledger_kept(l, (uint32_t)gpu)) || process_sweep(p);
}

bool charge_sweep_in_call(struct process *p, int gpu, uint64_t bytes)
{
	books_waiting_begin(p);
	bool again = charge_sweep(p, gpu, bytes);
	books_waiting_end(p);
	return again;
}

/* Which threads and processes are asking the daemon about memory that leaves; 0: none. One that is
 * stopped there stays the same. */
static uint64_t releases_of(const struct process *p)
{
	const struct ledger *l = &p->attachment.ledger;
	uint64_t all = 0;

	for (uint32_t i = 1; i < p->attachment.shape.slot_count; i++) {
		const struct ledger_slot *slot = ledger_slot(l, i);

		if (atomic_load_explicit(&slot->releases_in_progress, memory_order_relaxed) &&
		    atomic_load_explicit(&slot->state, memory_order_relaxed) == LEDGER_SLOT_LIVE)
			all = all * 31 +
			      ((uint64_t)i << 32 |
			       atomic_load_explicit(&slot->calls_begun, memory_order_relaxed));
	}
	return all;
}

/* The daemon keeps some charged until it knows more, or other threads and processes are asking. */
static bool memory_is_leaving(struct process *p, uint32_t gpu)
{
	uint64_t kept = ledger_kept(&p->attachment.ledger, gpu), releasing;

	if (kept && kept != atomic_load(&p->gpu[gpu].kept_in_vain))
		return true;
	releasing = releases_of(p);
	return releasing && releasing != atomic_load(&p->gpu[gpu].releases_in_vain);
}

static bool leaving_is_waited_for(struct charge_tries *tries)
{
	uint64_t now = now_monotonic_ns();

	if (!tries->leaving_until_ns)
		tries->leaving_until_ns = now + LEAVING_NS;
	return now < tries->leaving_until_ns;
}

/* False: it has been waited for long enough, or there is nothing to wait for. */
static bool nap(struct process *p, int gpu, struct charge_tries *tries)
{
	const struct ledger *l = &p->attachment.ledger;
	bool over = ledger_committed(l, (uint32_t)gpu) > ledger_limit(l, (uint32_t)gpu);

	if (memory_is_leaving(p, (uint32_t)gpu) && leaving_is_waited_for(tries)) {
		nanosleep(&(struct timespec){.tv_nsec = LEAVING_AGAIN_NS}, NULL);
		return true;
	}
	if (!over && !others_are_calling(p)) {
		bool again = !tries->last;

		tries->last = true;
		return again;
	}
	tries->naps += over ? 2 : 1;
	if (tries->naps > AGAIN_MOST)
		return false;
	nanosleep(&(struct timespec){.tv_nsec = over ? OVER_AGAIN_NS : AGAIN_NS}, NULL);
	return true;
}

/* Something has the memory, as an open descriptor or a stopped process does: that is not waited for
 * again. On a busy machine the process may only have had no processor, so this is not known before
 * it was waited for after a sweep, too. */
static void waited_in_vain(struct process *p, int gpu, const struct charge_tries *tries)
{
	if (!tries->leaving_until_ns || now_monotonic_ns() < tries->leaving_until_ns)
		return;
	atomic_store(&p->gpu[gpu].kept_in_vain, ledger_kept(&p->attachment.ledger, (uint32_t)gpu));
	atomic_store(&p->gpu[gpu].releases_in_vain, releases_of(p));
}

bool charge_again(struct process *p, int gpu, uint64_t bytes, struct charge_tries *tries)
{
	charge_short_begin(p, gpu, tries);
	if (nap(p, gpu, tries))
		return true;
	if (!tries->swept) {
		say_short(p, gpu, tries, SHORT_SWEEP_NS);
		if (charge_sweep(p, gpu, bytes)) {
			*tries = (struct charge_tries){
				.swept = true, .said_ns = tries->said_ns, .beside = tries->beside};
			charge_short_begin(p, gpu, tries);
			return true;
		}
	}
	waited_in_vain(p, gpu, tries);
	return false;
}

/* Where there is no room, what the process's own pools hold unused is given back first. 0 or
 * -errno, which is counted as refused. */
static __attribute__((noinline)) int reserve_again(struct taking *t, struct process *p, int r)
{
	struct charge_tries tries = {0};

	charge_short_begin(p, t->object.gpu, &tries);
	for (int turn = 0; r == -EAGAIN && turn < TURNS_MOST; turn++) {
		nanosleep(&(struct timespec){.tv_nsec = AGAIN_NS}, NULL);
		r = books_reserve(p, &t->object);
	}
	if (r < 0) {
		grow_trim(p, t->object.gpu);
		r = books_reserve(p, &t->object);
	}
	while (r < 0 && t->object.bytes <= books_limit(p, t->object.gpu) &&
	       charge_again(p, t->object.gpu, t->object.bytes, &tries)) {
		grow_exact_arrays(p, t->object.gpu, false);
		r = books_reserve(p, &t->object);
	}
	charge_short_end(p, t->object.gpu, &tries);
	if (r < 0)
		books_count_refused(p, t->object.gpu, t->object.bytes);
	return r;
}

/* False: there is no room for it. */
static inline bool reserve(struct taking *t, struct process *p)
{
	int r = books_reserve(p, &t->object);

	if (__builtin_expect(r < 0, 0))
		r = reserve_again(t, p, r);
	t->process = r < 0 ? NULL : p;
	return r >= 0;
}

CUresult taking_begin_on(struct taking *t, struct process *p, int gpu, enum object_kind kind,
			 uint64_t bytes)
{
	*t = (struct taking){.object = {.kind = kind, .gpu = (uint16_t)gpu, .bytes = bytes}};
	return gpu >= 0 && reserve(t, p) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult taking_try_on(struct taking *t, struct process *p, int gpu, enum object_kind kind,
		       uint64_t bytes)
{
	*t = (struct taking){.object = {.kind = kind, .gpu = (uint16_t)gpu, .bytes = bytes}};
	if (gpu < 0 || books_reserve(p, &t->object) < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	t->process = p;
	return CUDA_SUCCESS;
}

CUresult charge_refusal(void)
{
	size_t free_bytes, total;
	CUresult result = real_cuMemGetInfo_v2(&free_bytes, &total);

	return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

/* In the context that is current; false: its GPU is none of the slice's, or has no room. */
static inline bool reserve_in(struct taking *t, struct process *p, CUcontext context)
{
	int gpu = current_gpu(p);

	t->object.gpu = (uint16_t)gpu;
	t->object.context = (uintptr_t)context;
	return gpu >= 0 && reserve(t, p);
}

CUresult taking_begin(struct taking *t, enum object_kind kind, uint64_t bytes)
{
	struct process *p = process_get();
	CUresult result = p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	CUcontext context = NULL;

	*t = (struct taking){.object = {.kind = kind, .bytes = books_blocks(bytes)}};
	if (kind == OBJECT_LINEAR && bytes < BLOCK_BYTES)
		t->object.small = (uint32_t)ALIGN_UP(bytes, LEDGER_GRANULE);
	/* Without a context the driver has the better word for what is wrong. */
	if (p && real_cuCtxGetCurrent(&context) == CUDA_SUCCESS && context &&
	    __builtin_expect(!reserve_in(t, p, context), 0))
		result = charge_refusal();
	return result;
}

bool taking_again(const struct taking *t, int *tries)
{
	if (!t->process || !t->object.bytes || (*tries)++ >= TAKE_AGAIN_MOST)
		return false;
	nanosleep(&(struct timespec){.tv_nsec = TAKE_AGAIN_NS}, NULL);
	return true;
}

bool taking_resize(struct taking *t, uint64_t bytes)
{
	if (!t->process || t->object.small)
		return true;
	if (books_resize(t->process, t->object.gpu, t->object.bytes, books_blocks(bytes)) < 0)
		return false;
	t->object.bytes = books_blocks(bytes);
	return true;
}

/* One in a shared block may need another block than was thought. */
static int keep(struct taking *t)
{
	int r = books_keep(t->process, &t->object);

	if (__builtin_expect(r < 0, 0) &&
	    charge_sweep_in_call(t->process, t->object.gpu, BLOCK_BYTES))
		r = books_keep(t->process, &t->object);
	return r;
}

CUresult taking_end(struct taking *t, CUresult result, uint64_t handle)
{
	struct process *p = t->process;

	t->object.handle = handle;
	if (p && result == CUDA_SUCCESS && keep(t) < 0) {
		real_cuMemFree_v2(handle);
		books_count_refused(p, t->object.gpu, t->object.bytes);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (p && result != CUDA_SUCCESS)
		books_cancel(p, &t->object);
	return result;
}

void giving_begin(struct giving *g, enum object_kind kind, uint64_t handle)
{
	struct process *p = process_peek();

	g->in_call = false;
	/* Taken out before the driver's call: once freed, another thread may get the same handle.
	 */
	g->process = p && books_take(p, kind, handle, &g->object) ? p : NULL;
	g->releasing = g->process && (g->object.exported || kind == OBJECT_CONTEXT) &&
		       books_release_begin(p);
}

void giving_left(struct giving *g)
{
	if (g->releasing)
		books_release_end(g->process);
	g->releasing = false;
}

static __attribute__((noinline)) void left(const struct giving *g)
{
	if (g->in_call)
		grow_settle_in_call(g->process, g->object.gpu, NULL);
	else
		grow_settle_exactly(g->process, g->object.gpu);
}

CUresult giving_end(struct giving *g, CUresult result)
{
	if (!g->process)
		return result;
	if (result != CUDA_SUCCESS)
		books_restore(g->process, &g->object);
	else if (__builtin_expect(books_drop(g->process, &g->object), 0))
		left(g);
	giving_left(g);
	return result;
}
