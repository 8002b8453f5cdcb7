/* Threads' own default streams (CU_STREAM_PER_THREAD), into which nobody but the thread can put a
 * marker. So the thread puts one in at once, while others want the GPU. If it puts none in, as
 * nobody wanted the GPU then, the work that it left before it ended or went to sleep has none. Work
 * without a marker is done when its context is, or when a wait for it was in vain. The work that is
 * left may be of any length: no estimate makes it done. */
#include "base/macros.h"
#include "front/cuda/gate/gate_parts.h"
#include "front/cuda/hooks.h"

/* Work that is left without a marker is waited for this long, while the gate is contended or
 * closed. Then other sessions have waited for it, and nobody will ever tell. */
#define LOST_WAIT_NS 200000000ull
/* While another thread takes a look at it, which is soon over. */
#define BUSY_NAP_NS 20000u
#define BUSY_NAPS_MOST 100u

static bool is_own(const struct gate_lane *lane)
{
	return atomic_load(&lane->stream) == CU_STREAM_PER_THREAD;
}

void gate_own_submitted(struct gate *g, struct gate_lane *lane)
{
	if (!lane || !is_own(lane) || !gate_lane_unmarked(lane))
		return;
	for (uint32_t i = 0; i < BUSY_NAPS_MOST && !gate_lane_mark(g, lane); i++)
		gate_nap(BUSY_NAP_NS);
}

bool gate_own_look(struct gate_lane *lane)
{
	uint32_t submitted = atomic_load(&lane->record->submitted);
	uint64_t now = now_monotonic_ns();
	/* A marker says so itself, however long that takes. */
	bool tells = !gate_lane_unmarked(lane) ||
		     atomic_load(&lane->record->marked) != atomic_load(&lane->record->done);
	/* Nobody looked for a while: the gate was open. */
	bool afresh = now - lane->looked_at > LOST_WAIT_NS;

	lane->looked_at = now;
	if (tells || afresh || lane->waited_for != submitted) {
		lane->waited_for = submitted;
		lane->waited_since = now;
		return true;
	}
	if (now - lane->waited_since < LOST_WAIT_NS)
		return true;
	gate_lane_settle(lane, submitted);
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
