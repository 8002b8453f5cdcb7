/* The front's one thread, there only while the session is time-sliced. It puts in the markers that
 * launching threads leave out: all while the gate is open, and the last ones of a burst. It asks
 * the driver if there can be no markers, and registers the process for the closer's barrier. It
 * sleeps while the gate is open and ends some time after time-slicing was switched off. */
#include <dlfcn.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/macros.h"
#include "front/cuda/gate/gate_parts.h"
#include "front/cuda/hooks.h"
#include "front/dl.h"
#include "front/driver.h"

/* Between two looks while others want the GPU: short while something happens. */
#define TICK_NS 200000ull
#define TICK_NS_MOST 2000000ull
/* While nothing can happen; off for that long, and the thread ends. */
#define SLEEP_NS 1000000000ull
/* The time for which the process's end waits for a call of this thread's. */
#define STOP_NS_MOST 100000000ull

/* True: something was not done yet. */
static bool look_at_lane(struct gate *g, struct gate_lane *lane)
{
	const struct ledger_limits *limits = g->process->attachment.ledger.limits;
	CUstream stream = atomic_load(&lane->stream);

	if (atomic_load(&lane->state) == GATE_LANE_FREE || gate_lane_done(lane))
		return false;
	if (atomic_load(&lane->state) != GATE_LANE_LIVE)
		return true;
	/* More may be handed in there that is not counted, so that it is never done when asked. */
	if (gate_lane_by_query(lane) && !gate_is_for(limits, lane->gpu)) {
		gate_lane_settle(lane, atomic_load(&lane->record->submitted));
		return !gate_lane_done(lane);
	}
	if (stream == CU_STREAM_PER_THREAD)
		return gate_own_look(lane);
	if (gate_lane_by_query(lane) || gate_lane_unmarked(lane))
		gate_lane_mark(g, lane);
	return true;
}

static bool look(struct gate *g)
{
	uint32_t streams = MIN(atomic_load(&g->page->streams), GATE_STREAMS_MAX);
	bool busy = false;

	for (uint32_t i = 0; i < MIN(streams, GATE_STREAMS_MAX - 1); i++)
		busy |= look_at_lane(g, &g->lanes[i]);
	if (streams == GATE_STREAMS_MAX)
		busy |= !gate_strays_look(g);
	return busy;
}

static bool stopping(struct gate *g)
{
	return atomic_load(&g->helper_stop) != 0;
}

/* How long to sleep if the gate stays as it is. */
static uint64_t step(struct gate *g, enum gate_state state, uint64_t tick)
{
	struct gate_flight flight;
	bool busy = false;

	if (state != GATE_CONTENDED && state != GATE_CLOSED)
		return SLEEP_NS;
	/* Asked before the look: one that returns in between has counted its work. */
	bool launching = gate_launching(g->page);
	atomic_store(&g->helper_inside, 1);
	if (!stopping(g))
		busy = look(g);
	atomic_store(&g->helper_inside, 0);
	/* While the gate is contended launching threads do. */
	if (state == GATE_CLOSED)
		gate_in_flight(g, 0, &flight);
	if (state == GATE_CLOSED && !busy && !launching)
		return SLEEP_NS;
	return busy ? TICK_NS : MIN(tick * 2, TICK_NS_MOST);
}

static void look_until_off(struct gate *g)
{
	uint64_t tick = TICK_NS, off_since = 0;

	while (!stopping(g)) {
		uint64_t word = atomic_load(gate_at);

		if (word)
			off_since = 0;
		else if (!off_since)
			off_since = now_monotonic_ns();
		else if (now_monotonic_ns() - off_since > SLEEP_NS)
			return;
		tick = step(g, GATE_STATE(word), tick);
		gate_sleep_on_word(word, tick);
	}
}

static void *helper_main(void *data)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	struct gate *g = data;

	prctl(PR_SET_NAME, "carve-gate");
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0)
		atomic_store(&g->page->registered, 1);
	real_cuThreadExchangeStreamCaptureMode(&mode);
	do {
		look_until_off(g);
		atomic_store(&g->helper, 0);
		/* Somebody may have seen it there just before. */
	} while (!stopping(g) && !gate_is_off() && !atomic_exchange(&g->helper, 1));
	return NULL;
}

/* Before the driver takes itself down. */
static void stop_at_exit(void)
{
	struct gate *g = gate_peek();
	uint64_t begin = now_monotonic_ns();

	if (!g)
		return;
	atomic_store(&g->helper_stop, 1);
	while (atomic_load(&g->helper_inside) && now_monotonic_ns() - begin < STOP_NS_MOST)
		gate_nap(TICK_NS / 4);
}

typedef int create_fn(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

/* Not by name: where the C library keeps it elsewhere, the front would need that in every process.
 * The driver has it. */
static create_fn *find_create(void)
{
	create_fn *create = NULL;
	void *library = driver_handle();

	if (library)
		create = (create_fn *)dl_true_dlsym(library, "pthread_create");
	return create ? create : (create_fn *)dl_true_dlsym(RTLD_DEFAULT, "pthread_create");
}

static bool thread_start(struct gate *g)
{
	create_fn *create = find_create();
	sigset_t all, before;
	pthread_attr_t attributes;
	pthread_t thread;

	if (!create || pthread_attr_init(&attributes) != 0)
		return false;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	/* For this thread alone, as pthread_sigmask, which older C libraries keep elsewhere. */
	sigprocmask(SIG_SETMASK, &all, &before); /* NOLINT(concurrency-mt-unsafe) */
	int r = create(&thread, &attributes, helper_main, g);
	sigprocmask(SIG_SETMASK, &before, NULL); /* NOLINT(concurrency-mt-unsafe) */
	pthread_attr_destroy(&attributes);
	return r == 0;
}

void gate_helper_start(struct gate *g)
{
	static _Atomic bool at_exit;

	if (atomic_load_explicit(&g->helper, memory_order_relaxed) || stopping(g) ||
	    atomic_exchange(&g->helper, 1))
		return;
	if (!atomic_exchange(&at_exit, true))
		atexit(stop_at_exit);
	if (!thread_start(g))
		atomic_store(&g->helper, 0);
}
