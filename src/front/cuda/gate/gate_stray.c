/* Threads and streams beyond the records. They are few, or a program's that has so many that a lock
 * does not show. Their work shares one record, the last. */
#include "front/cuda/gate/gate_parts.h"
#include "front/cuda/hooks.h"

void gate_stray_note(struct gate *g, CUstream stream)
{
	struct gate_stream *record = &g->page->stream[GATE_STREAMS_MAX - 1];
	CUcontext context = gate_stream_context(stream);
	struct gate_stray *found = NULL;

	if (stream == CU_STREAM_PER_THREAD)
		gate_blocking_stream_made();
	lock_acquire(&g->lock);
	for (uint32_t i = 0; !found && i < GATE_STRAYS; i++)
		if (g->strays[i].stream == stream && g->strays[i].context == context)
			found = &g->strays[i];
	for (uint32_t i = 0; !found && i < GATE_STRAYS; i++)
		if (!atomic_load(&g->strays[i].dirty) && !atomic_load(&g->strays[i].busy))
			found = &g->strays[i];
	if (found) {
		found->stream = stream;
		found->context = context;
		atomic_store(&found->dirty, 1);
	}
	lock_release(&g->lock);
	/* Where even those are used up, what is not seen is billed to whoever comes next. */
	if (found)
		atomic_fetch_add(&record->submitted, 1);
	atomic_store(&g->page->streams, GATE_STREAMS_MAX);
}

/* Has it asked about, if it has work that was not seen done. False: not now. */
static bool stray_begin(struct gate *g, struct gate_stray *stray, struct gate_stray *ret)
{
	lock_acquire(&g->lock);
	bool dirty = atomic_exchange(&stray->dirty, 0) && stray->stream;
	/* Another thread's own stream can only be asked about by that thread. */
	bool asks = dirty && stray->stream != CU_STREAM_PER_THREAD;
	ret->stream = stray->stream;
	ret->context = stray->context;
	atomic_store(&stray->busy, asks);
	lock_release(&g->lock);
	return asks;
}

/* It may have been given up meanwhile, and be another one's. */
static void stray_end(struct gate *g, struct gate_stray *stray, const struct gate_stray *asked,
		      bool done)
{
	lock_acquire(&g->lock);
	if (!done && stray->stream == asked->stream && stray->context == asked->context)
		atomic_store(&stray->dirty, 1);
	atomic_store(&stray->busy, 0);
	lock_release(&g->lock);
}

static bool stray_is_done(const struct gate_stray *stray)
{
	struct gate_switch s;

	if (!gate_switch_to(&s, stray->context))
		return true;
	bool done = real_cuStreamQuery(stray->stream) != CUDA_ERROR_NOT_READY;
	gate_switch_back(&s);
	return done;
}

static bool strays_look(struct gate *g)
{
	struct gate_stream *record = &g->page->stream[GATE_STREAMS_MAX - 1];
	uint32_t number = atomic_load(&record->submitted);
	bool done = true;

	if (atomic_load(&record->done) == number || atomic_load(&gate_captures))
		return atomic_load(&record->done) == number;
	for (uint32_t i = 0; i < GATE_STRAYS; i++) {
		struct gate_stray asked;

		if (!atomic_load(&g->strays[i].dirty) || !stray_begin(g, &g->strays[i], &asked))
			continue;
		bool stray_done = stray_is_done(&asked);
		stray_end(g, &g->strays[i], &asked, stray_done);
		done &= stray_done;
	}
	if (done) {
		atomic_store(&record->marked, number);
		atomic_store(&record->done, number);
	}
	return done;
}

bool gate_strays_look(struct gate *g)
{
	if (!gate_look_begin())
		return false;
	bool done = strays_look(g);
	gate_look_end();
	return done;
}

void gate_strays_forget(struct gate *g, CUstream stream, CUcontext context)
{
	uint64_t begin = now_monotonic_ns();

	for (uint32_t i = 0; i < GATE_STRAYS; i++) {
		struct gate_stray *stray = &g->strays[i];

		lock_acquire(&g->lock);
		bool found = stream ? stray->stream == stream : stray->context == context;
		if (found) {
			stray->stream = NULL;
			stray->context = NULL;
			atomic_store(&stray->dirty, 0);
		}
		lock_release(&g->lock);
		while (found && atomic_load(&stray->busy) &&
		       now_monotonic_ns() - begin < GATE_BUSY_NS_MOST)
			gate_nap(GATE_END_NAP_NS);
	}
}
