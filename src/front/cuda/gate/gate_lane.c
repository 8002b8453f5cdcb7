/* Records of threads' work in streams: finding them, the markers that say how far the GPU is, and
 * what happens to them when a stream or a context goes.
 *
 * A marker is a write of the stream's, behind what it has so far. There is never one in the NULL
 * stream where the process has streams that wait for that and it for them. A marker there would be
 * a barrier that the program didn't ask for, and can be one too many (docs/dev/gate.md). Then, as
 * where the driver has no such writes, the driver is asked whether the stream is done. */
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/macros.h"
#include "front/cuda/device.h"
#include "front/cuda/gate/gate_parts.h"
#include "front/cuda/hooks.h"

/* How long it waits for work that no marker can tell of. */
#define END_NS_MOST 20000000ull
/* Launches that were handed in while nobody counted may be thousands, each of a microsecond. So at
 * most this many of them are taken for launches of unknown duration. */
#define UNCOUNTED_MAX 64u
#define VIEW_BYTES ALIGN_UP(sizeof(struct gate_process), (size_t)sysconf(_SC_PAGESIZE))

/* Streams were made that the NULL stream waits for: see above. */
static _Atomic bool blocking_streams;

void gate_blocking_stream_made(void)
{
	if (!atomic_load_explicit(&blocking_streams, memory_order_relaxed))
		atomic_store(&blocking_streams, true);
}

/* ---- calls of our own ---------------------------------------------------------------------- */

bool gate_relax(struct gate_relaxed *r)
{
	*r = (struct gate_relaxed){.before = CU_STREAM_CAPTURE_MODE_RELAXED};
	if (!gate_look_begin())
		return false;
	if (atomic_load(&gate_captures))
		r->changed = real_cuThreadExchangeStreamCaptureMode(&r->before) == CUDA_SUCCESS;
	return true;
}

void gate_relax_end(const struct gate_relaxed *r)
{
	CUstreamCaptureMode before = r->before;

	if (r->changed)
		real_cuThreadExchangeStreamCaptureMode(&before);
	gate_look_end();
}

bool gate_switch_to(struct gate_switch *s, CUcontext context)
{
	CUcontext current = NULL;

	s->pushed = false;
	if (real_cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context)
		return true;
	s->pushed = real_cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
	return s->pushed;
}

void gate_switch_back(const struct gate_switch *s)
{
	CUcontext context;

	if (s->pushed)
		real_cuCtxPopCurrent_v2(&context);
}

/* ---- contexts ------------------------------------------------------------------------------ */

/* Maps the page once more, so that the registration ends with this context and no other's, and has
 * the context's driver register it. */
static void context_prepare(struct gate *g, struct gate_context *context)
{
	void *view = mremap(g->page, 0, VIEW_BYTES, MREMAP_MAYMOVE);
	struct gate_relaxed relaxed;
	CUdeviceptr at = 0;

	context->state = GATE_CONTEXT_QUERIES;
	if (view == MAP_FAILED)
		return;
	while (!gate_relax(&relaxed))
		gate_nap(GATE_END_NAP_NS);
	if (real_cuMemHostRegister_v2(view, VIEW_BYTES,
				      CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE) ==
	    CUDA_SUCCESS) {
		if (real_cuMemHostGetDevicePointer_v2(&at, view, 0) == CUDA_SUCCESS)
			context->state = GATE_CONTEXT_MARKS;
		else
			real_cuMemHostUnregister(view);
	}
	gate_relax_end(&relaxed);
	if (context->state == GATE_CONTEXT_MARKS) {
		context->view = view;
		context->at = at;
		context->origin = g->page;
	} else {
		munmap(view, VIEW_BYTES);
	}
}

static void context_unprepare(struct gate_context *context)
{
	if (!context->view)
		return;
	real_cuMemHostUnregister(context->view);
	munmap(context->view, VIEW_BYTES);
}

static uint32_t context_gpu(struct gate *g, CUcontext handle)
{
	struct gate_switch s;
	CUdevice device;
	int gpu = -1;

	if (!gate_switch_to(&s, handle))
		return GATE_GPU_NONE;
	if (real_cuCtxGetDevice(&device) == CUDA_SUCCESS)
		gpu = device_gpu(g->process, device);
	gate_switch_back(&s);
	return gpu < 0 ? GATE_GPU_NONE : (uint32_t)gpu;
}

/* The context's entry, made and prepared at the first need; NULL: there are too many. Two threads
 * race to create one, the loser's copy is discarded. */
static struct gate_context *context_of(struct gate *g, CUcontext handle)
{
	struct gate_context fresh = {.handle = handle}, *found = NULL;
	bool prepared = false;

	for (;;) {
		struct gate_context *spare = NULL;

		lock_acquire(&g->lock);
		for (uint32_t i = 0; !found && i < GATE_CONTEXTS_MAX; i++) {
			if (g->contexts[i].handle == handle)
				found = &g->contexts[i];
			else if (!g->contexts[i].handle && !spare)
				spare = &g->contexts[i];
		}
		if (!found && spare && prepared) {
			*spare = fresh;
			found = spare;
		}
		lock_release(&g->lock);
		if (prepared && (!found || found->view != fresh.view))
			context_unprepare(&fresh);
		if (found || !spare)
			return found;
		context_prepare(g, &fresh);
		fresh.gpu = context_gpu(g, handle);
		prepared = true;
	}
}

/* ---- finding ------------------------------------------------------------------------------- */

CUcontext gate_stream_context(CUstream stream)
{
	CUcontext context = NULL;

	if (stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD &&
	    real_cuStreamGetCtx(stream, &context) == CUDA_SUCCESS && context)
		return context;
	return real_cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : NULL;
}

/* Holding the lock. */
static bool lane_may_be_taken(struct gate_lane *lane)
{
	uint32_t state = atomic_load(&lane->state);

	return state == GATE_LANE_FREE || (state == GATE_LANE_ENDING && gate_lane_done(lane));
}

/* Holding the lock. The numbers go on: what was before is done. */
static void lane_take(struct gate *g, struct gate_lane *lane, struct gate_local *l,
		      struct gate_context *context, CUstream stream)
{
	uint32_t index = (uint32_t)(lane - g->lanes);
	struct gate_stream *record = &g->page->stream[index];

	lane->record = record;
	lane->context = context;
	lane->gpu = context->gpu;
	atomic_store(&lane->owner, l);
	atomic_store(&lane->stream, stream);
	atomic_store(&lane->state, GATE_LANE_LIVE);
	if (atomic_load(&g->page->streams) <= index)
		atomic_store(&g->page->streams, index + 1);
	if (stream == CU_STREAM_PER_THREAD)
		gate_blocking_stream_made();
}

/* One that the thread has; else one that its predecessor on the same record left, or none. */
static struct gate_lane *lane_find(struct gate *g, struct gate_local *l, CUcontext context,
				   CUstream stream)
{
	struct gate_lane *spare = NULL, *found = NULL;
	struct gate_context *owner = context_of(g, context);

	if (!owner)
		return NULL;
	lock_acquire(&g->lock);
	/* The last record is the strays'. */
	for (uint32_t i = 0; !found && i < GATE_STREAMS_MAX - 1; i++) {
		struct gate_lane *lane = &g->lanes[i];

		/* The analyser takes the array's first element for NULL. */
		/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference) */
		if (atomic_load(&lane->state) == GATE_LANE_LIVE && lane->context == owner &&
		    gate_lane_is(lane, l, stream))
			found = lane;
		else if (!spare && lane_may_be_taken(lane))
			spare = lane;
	}
	if (!found && spare) {
		lane_take(g, spare, l, owner, stream);
		found = spare;
	}
	lock_release(&g->lock);
	return found;
}

struct gate_lane *gate_lane_of(struct gate *g, struct gate_local *l, CUstream stream)
{
	if (atomic_load_explicit(&l->stream, memory_order_relaxed) == stream)
		return atomic_load_explicit(&l->last, memory_order_relaxed);
	uint32_t near = (uint32_t)((uintptr_t)stream * 0x9e3779b97f4a7c15ull >> 61) % GATE_NEAR;
	struct gate_lane *lane = l->near[near];

	if (!lane || !gate_lane_is(lane, l, stream)) {
		CUcontext context = gate_stream_context(stream);

		lane = context ? lane_find(g, l, context, stream) : NULL;
		l->near[near] = lane;
	}
	return lane;
}

void gate_lane_aim(struct gate_local *l, struct gate_lane *lane, CUstream stream)
{
	if (atomic_load(&l->stream) == stream && atomic_load(&l->last) == lane)
		return;
	/* A thread that ends the stream meanwhile leaves no stream there. */
	atomic_store(&l->stream, NULL);
	atomic_store(&l->last, lane);
	l->submitted = &lane->record->submitted;
	atomic_store(&l->stream, stream);
}

uint32_t gate_gpu_of_stream(struct gate *g, CUstream stream)
{
	CUcontext handle = gate_stream_context(stream);
	const struct gate_context *context = handle ? context_of(g, handle) : NULL;

	if (context)
		return context->gpu;
	return handle ? context_gpu(g, handle) : GATE_GPU_NONE;
}

/* The owner doesn't take the short way to it any more. */
static void lane_leave_owner(struct gate_lane *lane)
{
	struct gate_local *l = atomic_load(&lane->owner);

	atomic_store(&lane->stream, NULL);
	if (l && atomic_load(&l->last) == lane)
		atomic_store(&l->stream, NULL);
}

/* ---- how far the GPU is -------------------------------------------------------------------- */

bool gate_lane_by_query(const struct gate_lane *lane)
{
	return lane->context->state == GATE_CONTEXT_QUERIES ||
	       (atomic_load(&lane->stream) == CU_STREAM_LEGACY &&
		atomic_load_explicit(&blocking_streams, memory_order_relaxed));
}

static bool lane_try_busy(struct gate_lane *lane)
{
	uint32_t free = 0;

	return atomic_compare_exchange_strong(&lane->busy, &free, 1);
}

/* The release of what was noted while busy. */
static void lane_leave_busy(struct gate_lane *lane)
{
	atomic_store_explicit(&lane->busy, 0, memory_order_release);
}

static CUresult write_number(const struct gate_lane *lane, CUstream stream, uint32_t number)
{
	const struct gate_context *context = lane->context;
	CUdeviceptr at = context->at +
			 (CUdeviceptr)((char *)&lane->record->done - (char *)lane->context->origin);
	CUresult result = real_cuStreamWriteValue32_v2(stream, at, number, 0);

	return result == CUDA_ERROR_NOT_SUPPORTED ? real_cuStreamWriteValue32(stream, at, number, 0)
						  : result;
}

static void ring_note(struct gate_lane *lane, uint32_t number, uint64_t handed_ns)
{
	uint32_t units = (uint32_t)(handed_ns / GATE_UNIT_NS);

	atomic_store_explicit(&lane->ring[lane->ring_at], (uint64_t)number << 32 | units,
			      memory_order_release);
	lane->ring_at = (lane->ring_at + 1) % GATE_RING;
}

/* Busy. All of it is done: its stream says so, or is dead. */
static void lane_settle(struct gate_lane *lane, uint32_t number, uint64_t handed_ns)
{
	atomic_store(&lane->record->marked, number);
	atomic_store_explicit(&lane->done_units, (uint32_t)(handed_ns / GATE_UNIT_NS),
			      memory_order_relaxed);
	atomic_store_explicit(&lane->record->done, number, memory_order_release);
}

/* Busy, its context current. */
static void lane_ask(struct gate_lane *lane, CUstream stream)
{
	uint32_t number = atomic_load_explicit(&lane->record->submitted, memory_order_acquire);
	uint64_t handed = atomic_load(&lane->handed_ns);

	/* Asking a stream that captures, or the NULL stream beside one, spoils the capture. */
	if (atomic_load(&gate_captures))
		return;
	if (real_cuStreamQuery(stream) != CUDA_ERROR_NOT_READY)
		lane_settle(lane, number, handed);
}

/* Busy, its context current. */
static void lane_write(struct gate_lane *lane, CUstream stream)
{
	uint32_t number = atomic_load_explicit(&lane->record->submitted, memory_order_acquire);
	uint64_t handed = atomic_load(&lane->handed_ns);

	if (number == atomic_load(&lane->record->marked))
		return;
	CUresult result = write_number(lane, stream, number);
	if (result == CUDA_SUCCESS) {
		ring_note(lane, number, handed);
		atomic_store(&lane->record->marked, number);
	} else {
		/* It cannot be written to; one whose context is broken is done. */
		lane->context->state = GATE_CONTEXT_QUERIES;
		lane_ask(lane, stream);
	}
}

/* Markers before it have been reached, those behind it say so themselves. */
void gate_lane_settle(struct gate_lane *lane, uint32_t number)
{
	if (!lane_try_busy(lane))
		return;
	uint64_t handed = atomic_load(&lane->handed_ns);
	if (atomic_load(&lane->state) == GATE_LANE_LIVE &&
	    (int32_t)(number - atomic_load(&lane->record->marked)) > 0)
		lane_settle(lane, number, handed);
	lane_leave_busy(lane);
}

static void lane_look(struct gate_lane *lane, CUstream stream)
{
	struct gate_relaxed relaxed;
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	if (!gate_relax(&relaxed))
		return;
	if (gate_lane_by_query(lane))
		lane_ask(lane, stream);
	else if (!atomic_load(&gate_captures) ||
		 (stream != CU_STREAM_LEGACY &&
		  real_cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
		  status == CU_STREAM_CAPTURE_STATUS_NONE))
		lane_write(lane, stream);
	gate_relax_end(&relaxed);
}

bool gate_lane_mark(struct gate *g, struct gate_lane *lane)
{
	struct gate_switch s;

	if (!lane_try_busy(lane))
		return false;
	CUstream stream = atomic_load(&lane->stream);
	if (atomic_load(&lane->state) == GATE_LANE_LIVE && stream &&
	    gate_switch_to(&s, lane->context->handle)) {
		lane_look(lane, stream);
		gate_switch_back(&s);
	}
	lane_leave_busy(lane);
	return true;
}

void gate_lanes_mark_own(struct gate *g, struct gate_local *l, CUstream only)
{
	uint32_t lanes = MIN(atomic_load(&g->page->streams), GATE_STREAMS_MAX - 1);

	l->unmarked = 0;
	for (uint32_t i = 0; i < lanes; i++) {
		struct gate_lane *lane = &g->lanes[i];

		if (atomic_load_explicit(&lane->owner, memory_order_relaxed) != l ||
		    atomic_load(&lane->state) != GATE_LANE_LIVE ||
		    (only && atomic_load(&lane->stream) != only))
			continue;
		if (gate_lane_by_query(lane) ? !gate_lane_done(lane) : gate_lane_unmarked(lane))
			gate_lane_mark(g, lane);
	}
}

/* The furthest of its markers that the GPU has passed. */
static uint32_t done_units(struct gate_lane *lane)
{
	uint32_t done = atomic_load_explicit(&lane->record->done, memory_order_acquire);
	uint32_t units = atomic_load_explicit(&lane->done_units, memory_order_relaxed);

	for (uint32_t i = 0; i < GATE_RING; i++) {
		uint64_t mark = atomic_load_explicit(&lane->ring[i], memory_order_acquire);

		if ((int32_t)(done - (uint32_t)(mark >> 32)) >= 0 &&
		    (int32_t)((uint32_t)mark - units) > 0)
			units = (uint32_t)mark;
	}
	atomic_store_explicit(&lane->done_units, units, memory_order_relaxed);
	return units;
}

static uint64_t uncounted_ns(const struct gate_lane *lane)
{
	uint32_t launches = atomic_load_explicit(&lane->record->submitted, memory_order_relaxed) -
			    atomic_load_explicit(&lane->record->done, memory_order_relaxed);

	return MIN(launches, UNCOUNTED_MAX) * (uint64_t)(GATE_BOUND_NS / 4);
}

/* The time of the counted launches that are not done. */
static uint64_t lane_counted_ns(struct gate_lane *lane)
{
	uint32_t handed = (uint32_t)(atomic_load(&lane->handed_ns) / GATE_UNIT_NS);

	return (uint64_t)(handed - done_units(lane)) * GATE_UNIT_NS;
}

/* Estimate of its work in flight. */
static uint64_t gate_lane_in_flight(struct gate_lane *lane)
{
	if (gate_lane_done(lane)) {
		atomic_store_explicit(&lane->done_units,
				      (uint32_t)(atomic_load(&lane->handed_ns) / GATE_UNIT_NS),
				      memory_order_relaxed);
		return 0;
	}
	uint64_t ns = lane_counted_ns(lane);
	return ns ? ns : MAX(uncounted_ns(lane), 1);
}

void gate_lanes_count_own(struct gate *g, const struct gate_local *l, bool opened)
{
	uint32_t lanes = MIN(atomic_load(&g->page->streams), GATE_STREAMS_MAX - 1);
	uint64_t bound = gate_bound_ns(g);

	for (uint32_t i = 0; i < lanes; i++) {
		struct gate_lane *lane = &g->lanes[i];

		if (atomic_load_explicit(&lane->owner, memory_order_relaxed) != l ||
		    atomic_load(&lane->state) == GATE_LANE_FREE || gate_lane_done(lane))
			continue;
		if ((opened && gate_lane_unmarked(lane)) || !lane_counted_ns(lane))
			atomic_store(&lane->handed_ns, atomic_load(&lane->handed_ns) +
							       MAX(bound, uncounted_ns(lane)));
	}
}

uint64_t gate_in_flight(struct gate *g, uint32_t gpu, struct gate_flight *ret)
{
	uint32_t lanes = atomic_load(&g->page->streams);
	uint64_t sums[GATE_GPUS_MAX] = {0}, fullest = 0;

	*ret = (struct gate_flight){0};
	for (uint32_t i = 0; i < MIN(lanes, GATE_STREAMS_MAX - 1); i++) {
		struct gate_lane *lane = &g->lanes[i];

		if (atomic_load_explicit(&lane->state, memory_order_acquire) == GATE_LANE_FREE)
			continue;
		uint64_t ns = gate_lane_in_flight(lane);
		sums[lane->gpu] += ns;
		fullest = MAX(fullest, sums[lane->gpu]);
		if (lane->gpu != gpu)
			continue;
		if (ns > ret->most) {
			ret->most = ns;
			ret->longest = lane;
		}
		ret->done += atomic_load_explicit(&lane->record->done, memory_order_relaxed);
	}
	ret->sum = sums[gpu];
	atomic_store_explicit(&g->page->in_flight_ns, fullest, memory_order_relaxed);
	return fullest;
}

/* ---- ends ---------------------------------------------------------------------------------- */

/* Nobody marks it from now on. A thread that is just doing so is waited for, with no lock held. */
static void lane_seize(struct gate_lane *lane)
{
	uint64_t begin = now_monotonic_ns();

	while (!lane_try_busy(lane) && now_monotonic_ns() - begin < GATE_BUSY_NS_MOST)
		gate_nap(GATE_END_NAP_NS);
}

/* Busy, its context current. A stream that is destroyed finishes its work all the same. */
static void lane_end(struct gate_lane *lane, CUstream stream)
{
	uint64_t begin = now_monotonic_ns();

	lane_look(lane, stream);
	while (gate_lane_by_query(lane) && !gate_lane_done(lane) &&
	       now_monotonic_ns() - begin < END_NS_MOST) {
		gate_nap(GATE_END_NAP_NS);
		lane_look(lane, stream);
	}
	if (gate_lane_by_query(lane) || gate_lane_unmarked(lane))
		lane_settle(lane, atomic_load(&lane->record->submitted),
			    atomic_load(&lane->handed_ns));
	lane_leave_owner(lane);
	atomic_store(&lane->state, GATE_LANE_ENDING);
}

void gate_stream_destroy(CUstream stream)
{
	struct gate *g = gate_peek();
	struct gate_switch s;

	for (uint32_t i = 0; g && i < GATE_STREAMS_MAX - 1; i++) {
		struct gate_lane *lane = &g->lanes[i];

		if (atomic_load(&lane->stream) != stream)
			continue;
		lane_seize(lane);
		if (atomic_load(&lane->stream) == stream &&
		    gate_switch_to(&s, lane->context->handle)) {
			lane_end(lane, stream);
			gate_switch_back(&s);
		}
		lane_leave_busy(lane);
	}
	if (g)
		gate_strays_forget(g, stream, NULL);
}

void gate_context_destroy_begin(CUcontext context)
{
	struct gate *g = context ? gate_peek() : NULL;

	for (uint32_t i = 0; g && i < GATE_STREAMS_MAX - 1; i++)
		if (atomic_load(&g->lanes[i].state) == GATE_LANE_LIVE &&
		    g->lanes[i].context->handle == context)
			lane_seize(&g->lanes[i]);
	if (g)
		gate_strays_forget(g, NULL, context);
}

/* All of it ended with the context. */
static void context_forget(struct gate *g, struct gate_context *context)
{
	struct gate_process *view = context->view;

	gate_samples_drop(g, context->handle);
	gate_strays_forget(g, NULL, context->handle);
	lock_acquire(&g->lock);
	*context = (struct gate_context){0};
	lock_release(&g->lock);
	if (view)
		munmap(view, VIEW_BYTES);
}

void gate_context_destroy_end(CUcontext context, bool gone)
{
	struct gate *g = context ? gate_peek() : NULL;

	for (uint32_t i = 0; g && i < GATE_STREAMS_MAX - 1; i++) {
		struct gate_lane *lane = &g->lanes[i];

		if (atomic_load(&lane->state) == GATE_LANE_FREE || !lane->context ||
		    lane->context->handle != context)
			continue;
		if (gone) {
			lane_settle(lane, atomic_load(&lane->record->submitted),
				    atomic_load(&lane->handed_ns));
			lane_leave_owner(lane);
			atomic_store(&lane->state, GATE_LANE_FREE);
		}
		lane_leave_busy(lane);
	}
	for (uint32_t i = 0; g && gone && i < GATE_CONTEXTS_MAX; i++)
		if (g->contexts[i].handle == context)
			context_forget(g, &g->contexts[i]);
	gate_context_changed();
}
