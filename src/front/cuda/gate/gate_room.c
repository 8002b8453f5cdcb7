/* Room: what a process may have in flight while others want its GPUs, on each GPU by itself, since
 * they work at the same time. A thread that finds none naps until there is; it passes without where
 * nothing completes, as what is in flight may wait for what it launches. */
#include "base/macros.h"
#include "front/cuda/gate/gate_parts.h"

/* For this long nothing may complete before a launch passes though there is no room; twice what is
 * in flight by the estimate must have passed, too. The reason: a stream may wait for what this
 * thread launches. The second is how long again, where nothing has completed since. */
#define STALL_NS 20000000ull
#define STALL_NS_AGAIN 40000000ull
/* An eighth of the bound passes then, and twice as much each time in a row: what is in
 * flight may all wait for the last of many launches. */
#define STALLS_DOUBLED 8u
/* Where that has helped, the next this many times wait no longer than what is in flight takes and
 * this, and begin with nearly as much as helped. */
#define HELPED_MOST 8u
#define STALL_NS_HELPED 1000000ull
/* Work that will be done so soon is as good as done: about what this thread takes to hear of it. */
#define SOON_NS 500000ull
#define ROOM_NAP_NS 20000ull
#define ROOM_NAP_NS_MOST 160000ull

/* The part of it that the bound counts. A stream that holds more than the bound by itself, as one
 * launch or because it waits, is as long as it is; beside it others have the bound. */
static uint64_t in_the_way(const struct gate_flight *f, const struct gate_lane *own, uint64_t bound)
{
	return f->most > bound && f->longest != own ? f->sum - f->most : f->sum;
}

/* How long nothing has completed, and what for. */
struct stall {
	uint64_t since; /* 0: it has just begun */
	uint32_t done;
};

/* Whether nothing has completed for too long, with so much in flight. */
static bool stalled(struct stall *s, const struct gate_room *room, uint32_t done, uint64_t sum,
		    uint64_t now)
{
	if (!s->since || done != s->done) {
		*s = (struct stall){.since = now, .done = done};
		return false;
	}
	uint64_t patience = room->stalls ? STALL_NS_AGAIN : MAX(2 * sum, STALL_NS);

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
static bool ends_soon(struct gate_room *room, const struct stall *s, uint64_t sum, uint64_t now,
		      uint64_t bound)
{
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

static bool passes_stalled(struct gate_room *room, struct stall *s, const struct gate_flight *f,
			   uint64_t counted, uint64_t ns, uint64_t bound, uint64_t now)
{
	if (f->done != room->stall_done)
		stall_over(room);
	if (!stalled(s, room, f->done, counted, now))
		return false;
	stall_pass(room, ns, bound, f->done);
	return true;
}

/* A host function may wait for this thread, and what is in flight for that. */
static bool room_for_host(struct gate *g, struct gate_room *room, uint64_t ns, uint64_t sum)
{
	if (sum >= GATE_HOST_NS_MOST || !gate_host_waits(g))
		return false;
	room->ns = MAX(ns, MIN(ns * GATE_HOST_BURST, GATE_HOST_NS_MOST - sum));
	return true;
}

void gate_room_forget(struct gate *g, const struct gate_local *l)
{
	for (uint32_t i = 0; i < GATE_GPUS_MAX; i++)
		g->rooms[l->index][i].ns = 0;
}

void gate_room_make(struct gate *g, struct gate_local *l, const struct gate_lane *lane, uint64_t ns)
{
	struct gate_room *room = gate_room(g, l, lane);
	uint64_t bound, nap = ROOM_NAP_NS, counted;
	struct stall stall = {0};
	struct gate_flight f;
	bool fits;

	gate_lanes_count_own(g, l, false);
	for (;;) {
		bound = gate_bound_ns(g);
		gate_lanes_mark_own(g, l, NULL);
		gate_in_flight(g, lane->gpu, &f);
		counted = in_the_way(&f, lane, bound);
		fits = !f.sum || counted + ns <= bound;
		if (fits || GATE_STATE(atomic_load(gate_at)) != GATE_CONTENDED)
			break;
		uint64_t now = now_monotonic_ns();
		if (passes_stalled(room, &stall, &f, counted, ns, bound, now) ||
		    (nap == ROOM_NAP_NS_MOST && room_for_host(g, room, ns, f.sum)))
			return;
		if (ends_soon(room, &stall, f.sum, now, bound))
			break;
		gate_nap(nap);
		nap = MIN(nap * 2, ROOM_NAP_NS_MOST);
	}
	/* If the gate closed meanwhile, there is nothing to divide. */
	room->ns = MAX(ns, bound / 8);
	if (f.sum && fits)
		room->ns = MAX(ns, MIN(bound - counted, bound / 8));
}
