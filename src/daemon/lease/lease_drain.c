/* The end of a turn by time: the gate is shut, and what is in flight is waited for. Where that may
 * wait for a thread at the gate, the gate is opened again for a moment. */
#include "base/macros.h"
#include "daemon/lease/lease_turns.h"

/* While draining, for what the driver's own work takes: 100 us, then a quarter of the time so far.
 */
#define DRAIN_LOOK_NS (MS / 10)
/* A drain is given up after this time, or 4 times the estimate of what is in flight. It gets
 * DRAIN_LONG_NS more where all that is left will report itself (a long kernel). */
#define DRAIN_MAX_NS (100 * MS)
#define DRAIN_LONG_NS (1000 * MS)
/* The most, whatever the estimate is: that is its process's own. */
#define DRAIN_MOST_NS (5000 * MS)
/* Work that does not end for this long, or half as long again as the estimate, may wait for a
 * thread of its process that waits at the gate. Then the gate is opened for a moment. All that is
 * known of work that waits is how long it waited last, so more of an estimate does not count. */
#define STALL_NS (20 * MS)
#define STALL_NS_MOST (200 * MS)
/* Again where that was not enough, half as long again each time. Where it has just helped, the next
 * few drains go by no estimate, and again is sooner. */
#define STALL_KNOWN_DRAINS 8u
#define STALL_AGAIN_NS (10 * MS)
/* How long the gate is open then: an eighth of what was waited, so that what needs none of it is
 * done an eighth later at most. Where it is known to help, a quarter of all that the drain took. It
 * is looked at this often meanwhile: when all is done it is closed before there is more. */
#define REOPEN_PART 8u
#define REOPEN_PART_KNOWN 4u
#define REOPEN_LOOK_NS (MS / 20)
#define REOPEN_NS MS
/* The work that may be in flight then: as ever, and twice as much each time, this often. */
#define ROOM_DOUBLED 8u
/* It has helped where something that stood still moves while it is open, or so soon after. */
#define REOPEN_HELPS_NS (5 * MS)

static uint64_t stall_ns(const struct lease_member *m, const struct member_look *look)
{
	uint64_t estimate = look->in_flight_ns + look->in_flight_ns / 2;

	return m->stalls_known ? STALL_NS : MAX(STALL_NS, MIN(estimate, STALL_NS_MOST));
}

/* Nobody knows how long a newcomer's work takes, whatever it says. */
static uint64_t believed_ns(const struct lease_member *m, const struct member_look *look)
{
	return MIN(look->in_flight_ns, 2 * m->proven_ns);
}

/* Others have their shares, whatever it says: half of the patience there is with its owner. */
static uint64_t give_up_most(struct leases *l, const struct lease_member *m, uint64_t now)
{
	uint64_t patience = owner_patience(l, m, now);

	return patience == UINT64_MAX ? patience : now + MAX(patience / 2, DRAIN_MAX_NS);
}

static void drain_plan(struct leases *l, struct lease_member *m, const struct member_look *look,
		       uint64_t now)
{
	m->progress = look->progress;
	m->progress_at = now;
	m->stall_ns = stall_ns(m, look);
	m->give_up_at = now + MIN(MAX(DRAIN_MAX_NS, 4 * believed_ns(m, look)),
				  DRAIN_MOST_NS - DRAIN_LONG_NS);
	m->give_up_most = give_up_most(l, m, now);
	m->near_end = now + look->in_flight_ns / 4 * 3;
	m->reopened_until = 0;
	m->reopens = 0;
}

void drain_begin(struct leases *l, struct lease_member *m, uint64_t now)
{
	struct member_look look;

	opening_end(l, m, now);
	turn_gate_shut(m);
	m->state = MEMBER_DRAINING;
	m->turn.revoked = now;
	m->turn.end = LEASE_END_TIME;
	member_look(m, now, &look);
	drain_plan(l, m, &look, now);
	m->planned_anew = false;
	m->look_at = now;
}

void drain_room_set(const struct lease_member *m, unsigned doubled)
{
	atomic_store(&m->info.limits->in_flight_us, m->room_us << doubled);
}

static void reopening_begin(struct lease_member *m, uint64_t now)
{
	uint64_t part = m->stalls_known ? (now - m->turn.revoked) / REOPEN_PART_KNOWN
					: m->stall_ns / REOPEN_PART;

	member_note_stalled(m);
	drain_room_set(m, m->doubled);
	m->doubled = MIN(m->doubled + 1, ROOM_DOUBLED);
	turn_gate_put(m, GATE_CONTENDED);
	m->reopened_until = MIN(now + MAX(part, REOPEN_NS),
				MIN(m->give_up_at + DRAIN_LONG_NS, m->give_up_most));
	if (m->stalls_known && !m->reopens)
		m->stall_ns = STALL_AGAIN_NS;
	else
		m->stall_ns += m->stall_ns / (m->stalls_known ? 4 : 2);
	m->reopens++;
	m->reopened++;
}

static void reopening_end(struct lease_member *m, uint64_t now)
{
	turn_gate_shut(m);
	drain_room_set(m, 0);
	m->reopened_until = 0;
	m->reopened_at = now;
	m->progress_at = now;
}

/* Whether that was what was waited for. The estimate is asked again now and then: work that takes
 * long can be done just then, and would have been without. */
static bool reopening_helped(struct lease_member *m, uint64_t now)
{
	if (!m->stalled || !member_stalled_moved(m))
		return false;
	if (!m->stalls_known && (m->reopened_until || now - m->reopened_at <= REOPEN_HELPS_NS)) {
		m->stalls_known = STALL_KNOWN_DRAINS;
		m->stall_ns = STALL_AGAIN_NS;
	}
	member_forget_stalled(m);
	return true;
}

/* The work that is left may wait for a thread that the gate holds up: lets it through for a moment.
 */
static bool drain_reopen(struct lease_member *m, const struct member_look *look, uint64_t now)
{
	bool helped = reopening_helped(m, now);

	if (m->reopened_until) {
		if (helped || now >= m->reopened_until)
			reopening_end(m, now);
		return true;
	}
	/* Work that was handed in uncounted is estimated after the gate is shut. */
	if (!m->reopens)
		m->stall_ns = MAX(m->stall_ns, stall_ns(m, look));
	if (!look->waiting || now - m->progress_at < m->stall_ns)
		return false;
	reopening_begin(m, now);
	return true;
}

/* The bound that it needed this time is where it begins the next time, nearly. */
static void drain_learn(struct lease_member *m, bool done)
{
	if (!m->reopens)
		m->doubled /= 2;
	else
		m->doubled -= done ? MIN(m->doubled, 2u) : m->doubled;
	if (m->reopens && m->stalls_known)
		m->stalls_known--;
	member_forget_stalled(m);
}

static bool drain_given_up(const struct lease_member *m, const struct member_look *look,
			   uint64_t now)
{
	/* Work that was let in just now is about to be marked. */
	bool fresh = m->reopens && now - m->reopened_at < REOPEN_HELPS_NS;
	uint64_t more = look->marked || fresh ? DRAIN_LONG_NS : 0;

	return now >= MIN(m->give_up_at + more, m->give_up_most);
}

/* Often where it is short, and where by the estimate it is about to be over. */
static uint64_t drain_look_next(const struct leases *l, const struct lease_member *m, uint64_t now)
{
	uint64_t interval =
		MAX(DRAIN_LOOK_NS, MIN((now - m->turn.revoked) / 4, turn_look_interval(l)));

	if (m->reopened_until)
		return now + MAX(REOPEN_LOOK_NS, l->look_cost_ns * LOOK_BUDGET);
	if (now >= m->near_end)
		return turn_look_soon(l, now, interval);
	return MIN(now + interval, m->near_end);
}

void drain_look(struct leases *l, struct lease_member *m, uint64_t now)
{
	struct member_look look;
	enum gate_change change = m->reopened_until ? GATE_SAME : turn_gate_find(l, m);

	if (change == GATE_SPOILT)
		turn_gate_forged(l, m, now);
	else if (change != GATE_SAME)
		turn_gate_shut(m);
	member_look(m, now, &look);
	/* By a waiter, while this daemon was stopped. Once: what is opened again and again is
	 * drained all the same. */
	if (change == GATE_FORSAKEN && !m->planned_anew) {
		drain_plan(l, m, &look, now);
		m->planned_anew = true;
	}
	if (look.progress != m->progress) {
		m->progress = look.progress;
		m->progress_at = now;
	}
	if (!m->reopened_until && !look.launching && look.drained) {
		drain_learn(m, true);
		m->proven_ns = MAX(m->proven_ns, now - m->turn.revoked);
		turn_shut(l, m, look.waiting, now);
		return;
	}
	bool reopened = drain_reopen(m, &look, now);
	m->look_at = drain_look_next(l, m, now);
	if (reopened || !drain_given_up(m, &look, now))
		return;
	drain_learn(m, false);
	member_note_stuck(m);
	if (!look.drained)
		leak_begin(l, m, &look, now);
	m->stalls++;
	m->turn.end = LEASE_END_STALLED;
	turn_shut(l, m, look.waiting, now);
}
