/* Threads' own default streams (CU_STREAM_PER_THREAD), into which nobody but the thread can put a
 * marker. So it does at once what others' streams have from the helper thread, and where it cannot,
 * as it ended, or sleeps, what it left is done when its context is, or was waited for in vain. */
#include "base/macros.h"
#include "front/cuda/gate_parts.h"
#include "front/cuda/hooks.h"

/* So much may be unmarked while others want the GPU, by the estimate, and so many launches. */
#define UNMARKED_NS_MOST 50000u
#define UNMARKED_MOST 16u
/* What is unmarked and no more than that is done when all markers are reached and nothing was
 * handed in for so long. */
#define LITTLE_WAIT_NS 1000000ull
/* Anything else, as nobody will ever tell; other sessions have waited for it by then. */
#define LOST_WAIT_NS 200000000ull
/* While another thread takes a look at it, which is soon over. */
#define BUSY_NAP_NS 20000u
#define BUSY_NAPS_MOST 100u

static bool is_own(const struct gate_lane *lane)
{
	return atomic_load(&lane->stream) == CU_STREAM_PER_THREAD;
}

static uint64_t unmarked_ns(struct gate_lane *lane)
{
	return atomic_load(&lane->handed_ns) - atomic_load(&lane->marked_ns);
}

static uint32_t unmarked_launches(const struct gate_lane *lane)
{
	return atomic_load(&lane->record->submitted) - atomic_load(&lane->record->marked);
}

void gate_own_submitted(struct gate *g, struct gate_lane *lane)
{
	if (!lane || !is_own(lane) ||
	    (unmarked_ns(lane) < UNMARKED_NS_MOST && unmarked_launches(lane) < UNMARKED_MOST))
		return;
	for (uint32_t i = 0; i < BUSY_NAPS_MOST && !gate_lane_mark(g, lane); i++)
		gate_nap(BUSY_NAP_NS);
}

bool gate_own_look(struct gate_lane *lane)
{
	uint32_t submitted = atomic_load(&lane->record->submitted);
	uint64_t now = now_monotonic_ns();

	if (!lane->waited_since || lane->waited_for != submitted || !gate_lane_unmarked(lane)) {
		lane->waited_for = submitted;
		lane->waited_since = now;
		return true;
	}
	/* A marker says so itself, however long that takes. */
	if (atomic_load(&lane->record->marked) != atomic_load(&lane->record->done))
		return true;
	bool little =
		unmarked_ns(lane) < UNMARKED_NS_MOST && unmarked_launches(lane) < UNMARKED_MOST;
	if (now - lane->waited_since < (little ? LITTLE_WAIT_NS : LOST_WAIT_NS))
		return true;
	gate_lane_settle(lane, submitted);
	lane->waited_since = 0;
	return false;
}

/* ---- a context that is waited for ------------------------------------------------------------ */

void gate_own_note(struct gate_own_numbers *n, CUcontext context)
{
	struct gate *g = gate_is_off() ? NULL : gate_peek();

	n->count = 0;
	if (!g || (!context && real_cuCtxGetCurrent(&context) != CUDA_SUCCESS))
		return;
	for (uint32_t i = 0; i < MIN(atomic_load(&g->page->streams), GATE_STREAMS_MAX - 1); i++) {
		struct gate_lane *lane = &g->lanes[i];

		if (atomic_load(&lane->state) != GATE_LANE_LIVE || !is_own(lane) ||
		    !gate_lane_unmarked(lane) || lane->context->handle != context)
			continue;
		n->lane[n->count] = (uint8_t)i;
		n->number[n->count++] =
			atomic_load_explicit(&lane->record->submitted, memory_order_acquire);
	}
}

CUresult gate_own_waited(const struct gate_own_numbers *n, CUresult result)
{
	struct gate *g = gate_peek();

	for (uint32_t i = 0; g && result == CUDA_SUCCESS && i < n->count; i++)
		gate_lane_settle(&g->lanes[n->lane[i]], n->number[i]);
	return result;
}
