/* Room: what a process may have in flight while others want its GPUs, on each GPU by itself, since
 * they work at the same time. A thread that finds none naps until there is; it passes without where
 * nothing completes, as what is in flight may wait for what it launches. */
#include "base/macros.h"
#include "front/cuda/gate/gate_parts.h"

/* For this long nothing may complete before a launch passes though there is no room. Twice the
 * estimate of what is in flight must have passed, too. The reason: a stream may wait for what this
 * thread launches. The second is how long again, where nothing has completed since. The third is
 * for a launch of unknown duration: a kernel in flight may well be as long. It is longer than a
 * drain, which would open the gate for another such kernel, and for a third one. */
#define STALL_NS 20000000ull
#define STALL_NS_AGAIN 40000000ull
#define STALL_NS_UNKNOWN 1000000000ull
/* An eighth of the bound passes then, and twice as much each time in a row: what is in
 * flight may all wait for the last of many launches. */
#define STALLS_DOUBLED 8u
/* Where that has helped, the next this many times wait no longer than what is in flight takes and
 * this, and begin with nearly as much as helped. */
#define HELPED_MOST 8u
#define STALL_NS_HELPED 1000000ull
/* Work that will be done so soon is as good as done: about what this thread takes to hear of it. */
#define SOON_NS 500000ull
/* A launch that takes longer does not pass for the moment in which a drain opens the gate. */
#define LONG_NS 50000000ull
#define ROOM_NAP_NS 20000ull
#define ROOM_NAP_NS_MOST 160000ull

/* The part of it that the bound counts for a launch of `ns`. A stream that holds more than the
 * bound by itself, as one launch or because it waits, is as long as it is. Beside it others have
 * the bound, but for a launch that is longer than the bound, too: a turn would be outstayed by one
 * of each stream. */
static uint64_t in_the_way(const struct gate_flight *f, const struct gate_lane *own, uint64_t ns,
			   uint64_t bound)
{
	bool beside = f->most > bound && f->longest != own && ns <= bound;

	return beside ? f->sum - f->most : f->sum;
}

/* Whether nothing has completed for too long, with so much in flight. */
static bool stalled(struct gate_room *room, uint32_t done, uint64_t sum, bool unknown, uint64_t now)
{
	struct gate_stall *s = &room->stall;

	if (!s->since || done != s->done) {
		*s = (struct gate_stall){.since = now, .done = done};
		return false;
	}
	uint64_t patience = unknown        ? STALL_NS_UNKNOWN
			    : room->stalls ? STALL_NS_AGAIN
					   : MAX(2 * sum, STALL_NS);

	if (room->helped)
		patience = MIN(patience, sum + STALL_NS_HELPED);
	return now - s->since > patience;
}

/* The work that passed without room was what the rest waited for: then it is likely to be so again,
 * and needs no long wait. */
static void stall_over(struct gate_room *room)
{
	if (!room->stalls)
		return;
	room->helped = HELPED_MOST;
	room->helped_by = room->stalls - 1;
	room->stalls = 0;
}

/* The work in flight is about to end. One more may be handed in, however long it takes, or the GPU
 * would have nothing to do until this thread has heard of the end. Once for each completion, since
 * what is known of durations may be wrong. */
static bool ends_soon(struct gate_room *room, uint64_t sum, uint64_t now, uint64_t bound)
{
	const struct gate_stall *s = &room->stall;

	if ((room->ahead && room->ahead_done == s->done) ||
	    sum > now - s->since + MIN(SOON_NS, bound / 2))
		return false;
	room->ahead = true;
	room->ahead_done = s->done;
	return true;
}

/* It passes without room, for what it hands in next as well. */
static void stall_pass(struct gate_room *room, uint64_t ns, uint64_t bound, uint32_t done)
{
	if (room->helped && !room->stalls) {
		room->helped--;
		room->stalls = room->helped_by;
	}
	room->ns = MAX(ns, bound / 8 << MIN(room->stalls, STALLS_DOUBLED));
	room->stalls++;
	room->stall_done = done;
}

static bool passes_stalled(struct gate_room *room, const struct gate_flight *f, uint64_t counted,
			   uint64_t ns, bool unknown, uint64_t bound, uint64_t now)
{
	if (f->done != room->stall_done)
		stall_over(room);
	if (!stalled(room, f->done, counted, unknown, now))
		return false;
	stall_pass(room, ns, bound, f->done);
	room->stall.since = 0;
	return true;
}

/* A host function may wait for this thread, and what is in flight for that. */
static bool room_for_host(struct gate *g, struct gate_room *room, uint64_t ns, bool unknown,
			  uint64_t sum)
{
	if (sum >= GATE_HOST_NS_MOST || !gate_host_waits(g))
		return false;
	room->ns = unknown ? ns : MAX(ns, MIN(ns * GATE_HOST_BURST, GATE_HOST_NS_MOST - sum));
	return true;
}

/* The work that a thread hands in before it looks for room again: its own `ns`, and more where so
 * much is `free`. */
static uint64_t allowance(uint64_t ns, uint64_t bound, uint64_t free)
{
	return MAX(ns, MIN(free, bound / 8));
}

void gate_room_forget(struct gate *g, const struct gate_local *l)
{
	for (uint32_t i = 0; i < GATE_GPUS_MAX; i++)
		g->rooms[l->index][i].ns = 0;
}

void gate_room_make(struct gate *g, struct gate_local *l, const struct gate_lane *lane, uint64_t ns,
		    bool unknown)
{
	struct gate_room *room = gate_room(g, l, lane);
	uint64_t bound, nap = ROOM_NAP_NS, counted;
	struct gate_flight f;
	bool fits, ahead = false, is_long = unknown || ns > LONG_NS;

	/* Over a closed gate something long goes on waiting. */
	if (!is_long)
		room->stall.since = 0;
	gate_lanes_count_own(g, l, false);
	for (;;) {
		bound = gate_bound_ns(g);
		gate_lanes_mark_own(g, l, NULL);
		gate_in_flight(g, lane->gpu, &f);
		counted = in_the_way(&f, lane, ns, bound);
		fits = !f.sum || counted + ns <= bound;
		if (fits || GATE_STATE(atomic_load(gate_at)) != GATE_CONTENDED)
			break;
		uint64_t now = now_monotonic_ns();
		if (passes_stalled(room, &f, counted, ns, unknown, bound, now) ||
		    (nap == ROOM_NAP_NS_MOST && room_for_host(g, room, ns, unknown, f.sum)))
			return;
		if (!unknown && ends_soon(room, f.sum, now, bound)) {
			ahead = true;
			break;
		}
		gate_nap(nap);
		nap = MIN(nap * 2, ROOM_NAP_NS_MOST);
	}
	if (fits)
		room->stall.since = 0;
	/* The gate closed meanwhile. When it is open again, maybe for a moment because this work
	 * seems to wait for another launch, that may be just what is needed. Something long looks
	 * for room again: the turn would be outstayed by as much each time. */
	if (!fits && is_long && !ahead) {
		room->ns = 0;
		return;
	}
	room->ns = allowance(ns, bound, fits && f.sum ? bound - counted : bound);
}
