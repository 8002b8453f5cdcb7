/* Passing the gate, waiting at it, and who passes: threads find what is theirs by their thread
 * pointer. The order of loads and stores, and why it is enough, is in docs/dev/gate.md. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/macros.h"
#include "front/cuda/gate/gate_parts.h"
#include "front/cuda/hooks.h"

/* How long the beginning of a capture waits for calls of the front's own to be over. */
#define LOOK_END_NS_MOST 1000000000ull
#define LOOK_END_NAP_NS 20000u
/* A waiter looks after the daemon that often; and how long that is gone before it is not waited for
 * any more. */
#define LOOK_NS 100000000ull
#define GONE_NS 1500000000ull
/* How long the daemon may be silent, LEDGER_BEAT_MS being what it promises, before it is taken for
 * one that hangs. Counted in looks, of this much each at most: where this process has no CPU the
 * daemon may have none either. */
#define SILENT_NS 8000000000ull
#define SILENT_LOOK_NS (2 * LOOK_NS)
/* While the gate is closed this much may be copied between host and device. */
#define BUDGET_BYTES MIB(64)
/* Markers are put in after this many launches at the latest. */
#define UNMARKED_MAX 64u
/* How long a thread at a closed gate is left alone while a host function may wait for it. */
#define HOST_LOOK_NS 300000ull

static _Atomic uint64_t off;
/* A word that is nobody's: everybody looks closer. */
static _Atomic uint64_t closer = UINT64_MAX;
_Atomic uint64_t *gate_at = &off;
_Atomic uint64_t *_Atomic gate_short = &off;
static struct gate_local nobody;
_Thread_local struct gate_local *gate_self = &nobody;
_Atomic uint32_t gate_captures;
_Atomic bool gate_watching;
/* Threads that are making calls of the front's own, which a capture would be spoiled by; and those
 * that are just beginning one. */
static _Atomic uint32_t looking, beginning;
/* Threads that may just be putting the word back. */
static _Atomic uint32_t reopening;

static void word_sleep(uint32_t *word, uint32_t seen, uint64_t ns, int operation)
{
	const struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u),
				   .tv_nsec = (long)(ns % 1000000000u)};

	syscall(SYS_futex, word, operation, seen, &t, NULL, 0);
}

void gate_nap(uint64_t ns)
{
	uint32_t never = 0;

	word_sleep(&never, 0, ns, FUTEX_WAIT_PRIVATE);
}

void gate_sleep_on_word(uint64_t seen, uint64_t ns)
{
	/* The low half, on the little-endian machines that carve runs on. */
	word_sleep((uint32_t *)gate_at, (uint32_t)seen, ns, FUTEX_WAIT);
}

void gate_bind(struct process *p)
{
	if (!p || !p->attachment.shape.time_offset)
		return;
	gate_at = gate_word(&p->attachment.ledger);
	gate_capture_begins();
	gate_capture_begun();
	gate_capture_ended();
}

bool gate_look_begin(void)
{
	atomic_fetch_add(&looking, 1);
	if (!atomic_load(&beginning))
		return true;
	gate_look_end();
	return false;
}

void gate_look_end(void)
{
	atomic_fetch_sub(&looking, 1);
}

static void wait_for_none(_Atomic uint32_t *count)
{
	if (!atomic_load(count))
		return;
	for (uint64_t begin = now_monotonic_ns();
	     atomic_load(count) && now_monotonic_ns() - begin < LOOK_END_NS_MOST;)
		gate_nap(LOOK_END_NAP_NS);
}

/* Its purpose was said before. A thread that has not seen that may put the word back still. */
static void look_closer(void)
{
	atomic_store(&gate_short, &closer);
	wait_for_none(&reopening);
	atomic_store(&gate_short, &closer);
}

static bool closer_is_needed(void)
{
	return atomic_load(&gate_captures) || atomic_load(&gate_watching);
}

/* A thread that asks for it just now has said so before, and is seen here or puts its word back. */
static void look_as_needed(void)
{
	atomic_fetch_add(&reopening, 1);
	if (!closer_is_needed())
		atomic_store(&gate_short, gate_at);
	if (closer_is_needed())
		atomic_store(&gate_short, &closer);
	atomic_fetch_sub(&reopening, 1);
}

void gate_watch(bool on)
{
	atomic_store(&gate_watching, on);
	if (on)
		look_closer();
	else
		look_as_needed();
}

/* Nobody looks from here on until it has begun; who does already is waited for. */
void gate_capture_begins(void)
{
	atomic_fetch_add(&beginning, 1);
	atomic_fetch_add(&gate_captures, 1);
	look_closer();
	wait_for_none(&looking);
}

void gate_capture_begun(void)
{
	atomic_fetch_sub(&beginning, 1);
}

void gate_capture_ended(void)
{
	if (atomic_fetch_sub(&gate_captures, 1) == 1)
		look_as_needed();
}

/* ---- the process's, and the thread's ------------------------------------------------------- */

struct gate *gate_peek(void)
{
	struct process *p = process_peek();

	return p ? atomic_load_explicit(&p->gate, memory_order_acquire) : NULL;
}

/* The process's, made at the first need. NULL: there is none to be had. */
static struct gate *gate_get(struct process *p)
{
	struct gate *g = atomic_load_explicit(&p->gate, memory_order_acquire), *none = NULL;
	struct gate_process *page = gate_process(&p->attachment.ledger, p->attachment.slot);

	if (g || !page || p->attachment.slot == LEDGER_SLOT_DAEMON)
		return g;
	g = mmap(NULL, sizeof(*g), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (g == MAP_FAILED)
		return NULL;
	g->process = p;
	g->page = page;
	if (madvise(g, sizeof(*g), MADV_WIPEONFORK) < 0 ||
	    !atomic_compare_exchange_strong(&p->gate, &none, g)) {
		munmap(g, sizeof(*g));
		return atomic_load(&p->gate);
	}
	atomic_store(&page->armed, 1);
	return g;
}

/* The record of a thread that ended may be had again. Holding the lock. */
static bool thread_is_gone(const struct gate_thread *record)
{
	return syscall(SYS_tgkill, getpid(), (int)atomic_load(&record->thread), 0) < 0 &&
	       errno == ESRCH;
}

static struct gate_local *local_choose(struct gate *g, uint32_t self)
{
	struct gate_local *gone = NULL;

	for (uint32_t i = 0; i < GATE_THREADS_MAX; i++) {
		struct gate_thread *record = &g->page->thread[i];
		uint32_t thread = atomic_load(&record->thread);

		if (!thread || thread == self)
			return &g->locals[i];
	}
	for (uint32_t i = 0; !gone && i < GATE_THREADS_MAX; i++)
		if (thread_is_gone(&g->page->thread[i]))
			gone = &g->locals[i];
	return gone;
}

static struct gate_local *gate_local_take(struct gate *g)
{
	struct gate_local *l = gate_local_find();

	if (l)
		return l;
	uint32_t self = (uint32_t)syscall(SYS_gettid);
	lock_acquire(&g->lock);
	l = local_choose(g, self);
	if (l) {
		uint32_t index = (uint32_t)(l - g->locals);

		*l = (struct gate_local){
			.record = &g->page->thread[index], .index = index, .gate = g};
		memset(g->rooms[index], 0, sizeof(g->rooms[index]));
		atomic_store(&l->record->in_launch, 0);
		atomic_store(&l->record->thread, self);
		if (atomic_load(&g->page->threads) <= index)
			atomic_store(&g->page->threads, index + 1);
	}
	lock_release(&g->lock);
	gate_self = l ? l : &nobody;
	return l;
}

/* ---- waiting ------------------------------------------------------------------------------- */

/* No daemon opens it any more. */
static void open_by_oneself(struct gate *g)
{
	uint64_t seen = atomic_load(gate_at);

	if (GATE_STATE(seen) == GATE_CLOSED || GATE_STATE(seen) == GATE_IDLE)
		gate_replace(&g->process->attachment.ledger, seen, GATE_OPEN);
}

/* The last of the daemon's beats that a waiter heard. */
struct pulse {
	uint32_t beat;
	uint64_t silent_ns;
};

/* After `passed` ns more; whether the daemon hangs. */
static bool pulse_is_gone(struct pulse *pulse, const struct gate *g, uint64_t passed)
{
	const struct ledger_limits *limits = g->process->attachment.ledger.limits;
	uint32_t beat = atomic_load(&limits->beat);
	uint16_t generation = (uint16_t)atomic_load(&limits->generation);

	/* One of another generation is of a daemon before this one, which may not tell. */
	if (beat != pulse->beat || beat >> LEDGER_BEAT_COUNT_BITS != generation)
		*pulse = (struct pulse){.beat = beat};
	else
		pulse->silent_ns += MIN(passed, SILENT_LOOK_NS);
	return pulse->silent_ns > SILENT_NS;
}

/* A daemon that cannot be reached (its socket is out of sight, or a filter of system calls is in
 * the way) but beats is there. It takes an owner who opens the gate for a cheat. */
static bool beats(struct gate *g)
{
	uint32_t beat = atomic_load(&g->process->attachment.ledger.limits->beat);
	uint32_t before = atomic_exchange(&g->beat_seen, beat);

	return before && before != beat;
}

/* Looks whether the daemon is there; where it has been gone for 1.5 s, opens a closed gate. One
 * thread at a time; the others go on waiting. */
static void gate_look_after_daemon(struct gate *g)
{
	struct process *p = g->process;
	uint64_t since, now = now_monotonic_ns();

	if (!lock_try(&p->attaching))
		return;
	bool there = attach_refresh(&p->attachment), alive = beats(g);
	lock_release(&p->attaching);
	since = atomic_load(&g->gone_since);
	if (there)
		atomic_store(&g->gone_since, 0);
	else if (!since || alive)
		atomic_store(&g->gone_since, now);
	else if (now - since > GONE_NS)
		open_by_oneself(g);
}

/* The work in flight on the GPU that has most, work without a record included. */
static uint64_t in_flight(struct gate *g)
{
	const struct gate_stream *strays = &g->page->stream[GATE_STREAMS_MAX - 1];
	struct gate_flight f;

	return gate_in_flight(g, 0, &f) +
	       (atomic_load(&strays->submitted) != atomic_load(&strays->done));
}

/* Work is in flight that waits for a host function, and that may wait for this thread. Work that is
 * handed in now would be in the way of others, but without it nothing ends. */
static bool passes_beside(struct gate *g, struct gate_local *l, uint64_t word)
{
	if (!l || !gate_host_runs(g))
		return false;
	uint64_t ns = in_flight(g);
	if (!ns || ns >= GATE_HOST_NS_MOST || !gate_host_waits(g))
		return false;
	l->beside = GATE_HOST_BURST;
	l->beside_word = word;
	return true;
}

/* One of those that may, as long as something is in flight. */
static bool pass_beside(struct gate *g, struct gate_local *l, uint64_t word)
{
	if (!l || !l->beside || l->beside_word != word)
		return false;
	uint64_t ns = in_flight(g);
	l->beside = ns && ns < GATE_HOST_NS_MOST ? l->beside - 1 : 0;
	return ns > 0;
}

/* Whether the gate is for the GPU of that stream, or of the current context. */
static bool gates(struct gate *g, const struct gate_lane *lane, CUstream stream)
{
	const struct ledger_limits *limits = g->process->attachment.ledger.limits;

	return gate_is_for_all(limits) ||
	       gate_is_for(limits, lane ? lane->gpu : gate_gpu_of_stream(g, stream));
}

static bool gates_work(struct gate *g, const struct gate_call *c, struct gate_work work)
{
	return work.anywhere || gates(g, c->lane, c->stray);
}

/* Until the gate is not closed any more to that work in that stream, or lets this thread pass
 * beside it. */
static void wait_while_closed(struct gate *g, const struct gate_call *c, struct gate_work work)
{
	uint64_t begin = now_monotonic_ns(), looked = begin, seen = atomic_load(gate_at);
	struct gate_local *l = gate_local_find();
	struct pulse pulse = {0};

	/* Also work that no other thread can put a marker into. */
	if (l)
		gate_lanes_mark_own(g, l, NULL);
	atomic_fetch_add(&g->page->waiting, 1);
	attach_wake(&g->process->attachment);
	for (;;) {
		uint64_t word = atomic_load(gate_at), now;

		if (GATE_STATE(word) != GATE_CLOSED || !gates_work(g, c, work))
			break;
		/* It was open meanwhile, and this thread was too late, or stopped: one that does
		 * not come is not taken for one that waits. */
		if (word != seen)
			attach_wake(&g->process->attachment);
		seen = word;
		gate_sleep_on_word(word, gate_host_runs(g) ? HOST_LOOK_NS : LOOK_NS);
		now = now_monotonic_ns();
		if (passes_beside(g, l, word))
			break;
		if (now - looked < LOOK_NS)
			continue;
		if (pulse_is_gone(&pulse, g, now - looked))
			open_by_oneself(g);
		looked = now;
		gate_look_after_daemon(g);
	}
	atomic_fetch_sub(&g->page->waiting, 1);
	atomic_fetch_add(&g->page->waits, 1);
	atomic_fetch_add(&g->page->wait_ns, now_monotonic_ns() - begin);
}

/* The driver's threads that call the program back may not call it, and are never held up. */
static bool is_callback_thread(void)
{
	CUcontext context;

	return real_cuCtxGetCurrent(&context) == CUDA_ERROR_NOT_PERMITTED;
}

/* An idle lease is taken up again. */
static void take_up(struct gate *g, uint64_t word)
{
	if (gate_replace(&g->process->attachment.ledger, word, GATE_CONTENDED))
		attach_wake(&g->process->attachment);
}

/* ---- a launch ------------------------------------------------------------------------------ */

static void enter(struct gate *g, struct gate_call *c)
{
	if (c->crowded)
		atomic_fetch_add(&g->page->launching_others, 1);
	else
		atomic_store_explicit(&c->local->record->in_launch, 1, memory_order_relaxed);
	/* Until the closer's barrier reaches this process. */
	if (!atomic_load_explicit(&g->page->registered, memory_order_relaxed))
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_signal_fence(memory_order_seq_cst);
}

static void leave(struct gate *g, const struct gate_call *c)
{
	if (c->crowded)
		atomic_fetch_sub(&g->page->launching_others, 1);
	else
		atomic_store_explicit(&c->local->record->in_launch, 0, memory_order_release);
}

bool gate_is_capturing(CUstream stream)
{
	CUstreamCaptureStatus status;

	if (!atomic_load(&gate_captures))
		return false;
	/* Where it cannot be said, the launch will be refused likewise. */
	return real_cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static void hand_in(struct gate_lane *lane, uint64_t ns)
{
	atomic_store_explicit(&lane->handed_ns,
			      atomic_load_explicit(&lane->handed_ns, memory_order_relaxed) + ns,
			      memory_order_relaxed);
}

/* The thread is in the launch; false: it has to come again. */
static bool pass_contended(struct gate *g, struct gate_call *c, struct gate_work work)
{
	struct gate_local *l = c->local;

	c->contended = true;
	if (!l || !c->lane)
		return true;
	struct gate_learned *learned = gate_learned_find(g, work);
	uint64_t ns = gate_learned_ns(learned, work, &c->unknown);
	/* Its first launch may have ended just now. If that was long and this counted as unknown,
	 * the next one would pass behind it within the turn. */
	if (c->unknown) {
		gate_samples_look(g, c->lane);
		ns = gate_learned_ns(learned, work, &c->unknown);
	}
	if (l->open_word) {
		l->open_word = 0;
		gate_room_forget(g, l);
		gate_lanes_count_own(g, l, true);
	}
	struct gate_room *room = gate_room(g, l, c->lane);
	if (room->ns < ns) {
		leave(g, c);
		gate_room_make(g, l, c->lane, ns, c->unknown);
		return false;
	}
	room->ns -= ns;
	hand_in(c->lane, ns);
	c->sample = gate_sample_begin(g, learned, c->lane);
	return true;
}

static void pass_closed(struct gate *g, struct gate_call *c, struct gate_work work)
{
	enter(g, c);
	c->contended = true;
	if (c->lane)
		hand_in(c->lane, gate_learned_ns(gate_learned_find(g, work), work, &c->unknown));
}

/* True: go on, the thread is in the launch. False: look again. */
static bool try_pass(struct gate *g, struct gate_call *c, struct gate_work work)
{
	enter(g, c);
	uint64_t word = atomic_load_explicit(gate_at, memory_order_acquire);

	switch (GATE_STATE(word)) {
	case GATE_CONTENDED:
		return pass_contended(g, c, work);
	case GATE_IDLE:
		leave(g, c);
		take_up(g, word);
		return false;
	case GATE_CLOSED:
		leave(g, c);
		if (is_callback_thread()) {
			enter(g, c);
			return true;
		}
		if (pass_beside(g, c->local, word)) {
			pass_closed(g, c, work);
			return true;
		}
		wait_while_closed(g, c, work);
		return false;
	default: /* off by now, open, or of a later version */
		if (c->local && c->lane && atomic_load(&g->page->registered) &&
		    gates(g, c->lane, NULL))
			c->local->open_word = word;
		return true;
	}
}

bool gate_is_for_stream(CUstream stream)
{
	struct process *p = gate_is_off() ? NULL : process_get();
	struct gate *g = p ? gate_get(p) : NULL;

	return g && gates(g, NULL, stream);
}

/* The process's, which the thread keeps that has a record. */
static struct gate *gate_of(const struct gate_local *l)
{
	struct process *p = l ? NULL : process_get();

	if (l)
		return l->gate;
	return p ? gate_get(p) : NULL;
}

static void begin(struct gate_call *c, CUstream stream, struct gate_work work)
{
	struct gate_local *l = gate_local_find();
	struct gate *g = gate_of(l);

	if (!g || gate_is_capturing(stream))
		return;
	gate_helper_start(g);
	if (!l)
		l = gate_local_take(g);
	struct gate_lane *lane = l ? gate_lane_of(g, l, stream) : NULL;

	c->local = l;
	c->crowded = !l;
	c->lane = lane;
	c->stray = lane ? NULL : stream;
	bool passed = false;
	while (!passed && gates_work(g, c, work)) {
		if (lane)
			gate_lane_aim(l, lane, stream);
		passed = try_pass(g, c, work);
	}
	if (!passed)
		*c = (struct gate_call){0};
}

void gate_begin(struct gate_call *c, CUstream stream, struct gate_work work)
{
	*c = (struct gate_call){0};
	/* Captures bring launches here through a gate that is off, too. */
	if (!gate_is_off())
		begin(c, stream, work);
}

static void count(struct gate *g, struct gate_lane *lane, CUstream stream)
{
	if (!lane) {
		gate_stray_note(g, stream);
		return;
	}
	_Atomic uint32_t *submitted = &lane->record->submitted;

	atomic_store_explicit(submitted, atomic_load(submitted) + 1, memory_order_release);
}

void gate_count_more(const struct gate_call *c, CUstream stream)
{
	struct gate *g = gate_peek();

	if (!g || (!c->local && !c->crowded))
		return;
	struct gate_lane *lane = c->local ? gate_lane_of(g, c->local, stream) : NULL;
	if (gates(g, lane, stream))
		count(g, lane, stream);
}

CUresult gate_end(struct gate_call *c, CUresult result)
{
	struct gate *g = c->local ? c->local->gate : c->crowded ? gate_peek() : NULL;

	if (!g)
		return result;
	if (result == CUDA_SUCCESS)
		count(g, c->lane, c->stray);
	if (c->sample)
		gate_sample_end(c->sample, c->lane, result);
	if (c->contended && c->local && (c->unknown || ++c->local->unmarked >= UNMARKED_MAX))
		gate_lanes_mark_own(g, c->local, NULL);
	else if (c->contended)
		gate_own_submitted(g, c->lane);
	leave(g, c);
	return result;
}

/* ---- work that is not a launch ------------------------------------------------------------- */

void gate_host_copy(uint64_t bytes)
{
	uint64_t word = atomic_load_explicit(gate_at, memory_order_acquire);
	struct gate *g = GATE_STATE(word) == GATE_CLOSED ? gate_peek() : NULL;

	if (!g || !gates(g, NULL, CU_STREAM_LEGACY))
		return;
	if (atomic_exchange(&g->budget_word, word) != word)
		atomic_store(&g->budget_used, 0);
	if (atomic_fetch_add(&g->budget_used, bytes) + bytes > BUDGET_BYTES &&
	    !atomic_load(&gate_captures) && !is_callback_thread())
		wait_while_closed(g, &(struct gate_call){.stray = CU_STREAM_LEGACY},
				  (struct gate_work){0});
}

/* While nobody else wants the GPU, only what no other thread can put a marker into. */
void gate_before_wait(void)
{
	uint64_t word = atomic_load_explicit(gate_at, memory_order_acquire);
	struct gate *g = word ? gate_peek() : NULL;
	struct gate_local *l = g ? gate_local_find() : NULL;

	if (l)
		gate_lanes_mark_own(g, l,
				    GATE_STATE(word) == GATE_OPEN ? CU_STREAM_PER_THREAD : NULL);
}

void gate_context_changed(void)
{
	struct gate_local *l = gate_local_find();

	if (!l)
		return;
	atomic_store(&l->stream, NULL);
	for (uint32_t i = 0; i < GATE_NEAR; i++)
		if (l->near[i] && gate_lane_is_default(l->near[i]))
			l->near[i] = NULL;
}
