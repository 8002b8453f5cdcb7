/* The holder of a lease: whether it works, is quiet, or is idle by now. */
#include "base/macros.h"
#include "daemon/lease/lease_turns.h"

/* A holder that has work in for a while is not idle before that is done: a quarter of the estimate,
 * at most.
 */
#define LOOK_BUSY_NS MS
/* A holder that is quiet is looked at more often: for this long it is idle, or at work again. */
#define LOOK_QUIET_NS (MS / 10)
/* Whether a short burst is about to end. */
#define LOOK_END_NS (MS / 20)
/* A member that is asleep at its gate says so when it finds that closed again; if it does not, it
 * gets a turn now and then. */
#define ASLEEP_MOST_NS (1000 * MS)

void holder_quiet_end(struct lease_member *m, uint64_t now)
{
	if (m->quiet_since)
		lease_idle_gap(&m->idle, now - m->quiet_since);
	m->quiet_since = 0;
}

void holder_gate(struct lease_member *m)
{
	turn_gate_put(m, m->contended ? GATE_CONTENDED : GATE_OPEN);
}

/* Takes the gate of a quiet holder away, if it still is quiet then. An idle gate can be taken back
 * without us, so it is for those whose time nobody counts. */
static bool holder_yield(struct leases *l, struct lease_member *m, uint64_t now)
{
	bool alone = !m->contended && !member_any(m->deaf);
	struct member_look look;

	turn_gate_put(m, alone ? GATE_IDLE : GATE_CLOSED);
	(void)gate_barrier();
	member_look(m, now, &look);
	if (look.launching || !look.drained || look.submitted != m->quiet_submitted ||
	    look.waiting) {
		holder_gate(m);
		return false;
	}
	m->state = MEMBER_YIELDS;
	m->turn.revoked = now;
	m->turn.end = LEASE_END_IDLE;
	turn_wants(l, m, false, now);
	return true;
}

/* When to look at a quiet one again. */
static uint64_t quiet_look_at(const struct leases *l, const struct lease_member *m, uint64_t often,
			      uint64_t now)
{
	uint64_t idle_at = m->quiet_since + lease_idle_ns(&m->idle);

	uint64_t next = lease_idle_is_brief(&m->idle) ? turn_look_soon(l, now, often) : now + often;

	return MIN(next, MAX(idle_at, now));
}

/* Within a short burst: often where it is about to be over. */
static uint64_t burst_look_at(const struct leases *l, const struct lease_member *m, uint64_t often,
			      uint64_t now)
{
	uint64_t end = lease_idle_end(&m->idle, now);

	uint64_t soon = now + MAX(LOOK_END_NS, l->look_cost_ns * LOOK_BUDGET);

	return end ? MIN(now + often, MAX(end, soon)) : now + often;
}

static uint64_t holder_look_at(const struct leases *l, const struct lease_member *m,
			       const struct member_look *look, uint64_t now)
{
	uint64_t busy = look->drained ? 0 : look->in_flight_ns / 4;
	uint64_t often = MAX(LOOK_QUIET_NS, l->look_cost_ns * LOOK_BUDGET);

	if (m->quiet_since && !look->waiting)
		return quiet_look_at(l, m, often, now);
	if (lease_idle_is_brief(&m->idle))
		return burst_look_at(l, m, often, now);
	return now + MAX(turn_look_interval(l), MIN(busy, LOOK_BUSY_NS));
}

/* Something new is in, or it was not quiet before. From a member that is looked at twice a second
 * nothing is to be learned. */
static void holder_news(struct lease_member *m, const struct member_look *look, uint64_t now)
{
	bool quiet = !look->launching && (look->drained || !m->contended);

	if (m->contended)
		holder_quiet_end(m, now);
	if (m->contended && !quiet)
		lease_idle_works(&m->idle, now);
	else
		lease_idle_rests(&m->idle, now);
	m->quiet_submitted = look->submitted;
	m->quiet_since = quiet ? now : 0;
}

void holder_look(struct leases *l, struct lease_member *m, uint64_t now)
{
	bool watched = m->contended;
	struct member_look look;

	if (opening_look(l, m, now))
		return;
	member_look(m, now, &look);
	if (!m->quiet_since || look.submitted != m->quiet_submitted) {
		holder_news(m, &look, now);
		holder_gate(m);
	} else if (look.launching || (watched && !look.drained)) {
		holder_quiet_end(m, now);
		lease_idle_works(&m->idle, now);
	} else if (!look.drained) {
		/* Alone, and nothing new for a while: marks are put in where others want. */
		turn_gate_put(m, GATE_CONTENDED);
	} else if (now - m->quiet_since >=
			   (look.waiting ? m->asleep_ns : lease_idle_ns(&m->idle)) ||
		   !look.processes) {
		if (look.waiting)
			member_note_asleep(m, now + ASLEEP_MOST_NS);
		if (holder_yield(l, m, now))
			return;
		m->quiet_since = 0;
	}
	m->look_at = watched ? holder_look_at(l, m, &look, now) : now + ALONE_LOOK_NS;
}
