/* Turns: what becomes of members as the table decides and their pages say. */
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/lease_service.h"

#define MS 1000000ull
/* Pages of who holds a contended lease, or is draining, are looked at this often; less often where
 * a look costs more than a twentieth of that, so that it takes 5% of a CPU at most. */
#define LOOK_EVERY_NS (MS / 4)
#define LOOK_BUDGET 20u
/* Who has work in for a while is not idle before that is done: a quarter of the estimate, at most.
 */
#define LOOK_BUSY_NS MS
/* Who is quiet is looked at more often: for so long it is idle, or at work again. */
#define LOOK_QUIET_NS (MS / 10)
/* Where a short burst is about to end. */
#define LOOK_END_NS (MS / 20)
/* While draining, for what the driver's own work takes: 100 us, then a quarter of the time so far.
 */
#define DRAIN_LOOK_NS (MS / 10)
/* Who was let in and hands nothing in for so long pays for its time all the same. */
#define OPENING_NS (300 * MS / 1000)
/* Processes that have the wake descriptor of a daemon before this one are looked at by the clock.
 */
#define DEAF_LOOK_NS (20 * MS)
/* Who comes to a shut gate says so; but a program can close the descriptor that its front would
 * write to. All who have processes are looked at together, that often. */
#define UNHEARD_LOOK_NS (1000 * MS)
/* Who holds a lease that nobody else wants is looked at to see whether it still works. */
#define ALONE_LOOK_NS (500 * MS)
/* Whose lease ended by time and who is not at the gate yet may come within this time. */
#define PONDER_NS MS
/* A drain is given up after this time, or 4 times the estimate of what is in flight; where all that
 * is left will report itself (a long kernel), the third more. */
#define DRAIN_MAX_NS (100 * MS)
#define DRAIN_LONG_NS (1000 * MS)
/* Whatever the estimate, which is its process's own. */
#define DRAIN_MOST_NS (5000 * MS)
/* Work that does not end for so long, or half as long again as the estimate, while a thread of the
 * process waits at the gate may wait for that thread: the gate is opened for a moment. Of work that
 * waits one knows but how long it waited last, so more of an estimate does not count. */
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
/* What may be in flight then: as ever, and twice as much each time, so often. */
#define ROOM_DOUBLED 8u
/* It has helped where something that stood still moves while it is open, or so soon after. */
#define REOPEN_HELPS_NS (5 * MS)
/* A wake descriptor that says something though nobody waits is not listened to for so long. */
#define MUTE_NS MS
/* How often to see whether work ended that a lease's end was not held up for any longer. */
#define LEAK_LOOK_NS MS
#define LEAK_LOOK_NS_MOST (100 * MS)
/* Who waits at a gate that has been open for so long, or half a lease, is asleep: stopped, or
 * without a CPU. It says so when it finds the gate closed again; if it does not, it gets a turn now
 * and then. */
#define ASLEEP_NS (10 * MS)
#define ASLEEP_MOST_NS (1000 * MS)
#define ACTIONS_MAX 1024u
/* GPU time that a process may have in flight while others want the GPU. */
#define IN_FLIGHT_MAX_US 5000u

static struct lease_member *member_find(const struct leases *l, uint64_t number)
{
	struct lease_member *m = l->members;

	while (m && m->number != number)
		m = m->next;
	return m;
}

static void wants_set(struct leases *l, struct lease_member *m, bool wants, uint64_t now)
{
	m->ponder_until = 0;
	if (m->wants == wants)
		return;
	m->wants = wants;
	lease_wants(l->table, m->number, wants, now);
}

static enum gate_state gate_state(const struct lease_member *m)
{
	return GATE_STATE(atomic_load(gate_word(m->info.ledger)));
}

static bool gate_is_open(const struct lease_member *m)
{
	return gate_state(m) == GATE_OPEN || gate_state(m) == GATE_CONTENDED;
}

static void gate_put(const struct lease_member *m, enum gate_state state)
{
	if (gate_state(m) != state)
		(void)gate_set(m->info.ledger, state);
}

static uint64_t look_interval(const struct leases *l)
{
	return MAX(LOOK_EVERY_NS, l->look_cost_ns * LOOK_BUDGET);
}

/* When to look again where each microsecond counts: in the next pass, at once, as long as the
 * thread may. Not in this one, which knows one time and holds the lock. */
static uint64_t look_soon(const struct leases *l, uint64_t now, uint64_t otherwise)
{
	return now + (l->spin_ns > 0 ? LEASES_AT_ONCE_NS : otherwise);
}

/* ---- the trace --------------------------------------------------------------------------- */

static void turn_begin(struct lease_member *m, uint64_t until, bool contended, uint64_t now)
{
	m->turn = (struct lease_turn){.uid = m->info.uid,
				      .gpus = m->info.gpus,
				      .opened = now,
				      .until = until,
				      .contended = contended};
	memcpy(m->turn.session, m->id, sizeof(m->turn.session));
}

static void turn_end(struct leases *l, struct lease_member *m, uint64_t now)
{
	if (!m->turn.opened)
		return;
	m->turn.number = ++l->turn_count;
	m->turn.closed = now;
	if (!m->turn.revoked)
		m->turn.revoked = now;
	l->turns[m->turn.number % LEASE_TURNS_KEPT] = m->turn;
	m->turn.opened = 0;
}

/* ---- how long quiet is idle -------------------------------------------------------------- */

/* It has work again. */
static void quiet_end(struct lease_member *m, uint64_t now)
{
	if (m->quiet_since)
		lease_idle_gap(&m->idle, now - m->quiet_since);
	m->quiet_since = 0;
}

/* ---- work that outlives a drain ----------------------------------------------------------- */

static bool holds(const struct lease_member *m)
{
	return m->state == MEMBER_HOLDS || m->state == MEMBER_YIELDS || m->state == MEMBER_DRAINING;
}

/* To be called before it gets or loses a lease: while it has one it pays anyway. */
static void leak_count(struct lease_member *m, uint64_t now)
{
	if (m->leaks && !holds(m))
		m->leak_ns += now - m->leak_at;
	m->leak_at = now;
}

/* What reports itself is on the GPU until then, but a simulated one's process may be stopped; of
 * what does not, nobody knows when it ended. */
static void leak_begin(const struct leases *l, struct lease_member *m,
		       const struct member_look *look, uint64_t now)
{
	uint32_t gpu = (uint32_t)__builtin_ctzll(m->info.gpus & l->sliced);
	uint64_t plan = lease_plan_ns(lease_get(l->table, gpu));

	leak_count(m, now);
	m->leaks = true;
	m->leak_ns_most = m->leak_ns +
			  (look->marked ? MAX(plan, 2 * look->in_flight_ns) : look->in_flight_ns);
}

static void leak_look(struct leases *l, struct lease_member *m, uint64_t now)
{
	uint64_t interval = MIN(MAX(LEAK_LOOK_NS, m->leak_ns / 16), LEAK_LOOK_NS_MOST);

	leak_count(m, now);
	if (member_leaks(m)) {
		m->look_at = MIN(m->look_at, now + interval);
		return;
	}
	lease_leaked(l->table, m->number, MIN(m->leak_ns, m->leak_ns_most), now);
	m->leaks = false;
	m->leak_ns = 0;
}

/* When who is shut out is looked at though it says nothing. */
static uint64_t unheard_look_at(const struct lease_member *m, uint64_t now)
{
	uint64_t at = member_sleep_ends(m, now);

	if (member_any(m->live))
		at = MIN(at, now - now % UNHEARD_LOOK_NS + 2 * UNHEARD_LOOK_NS);
	if (member_any(m->deaf))
		at = MIN(at, now + DEAF_LOOK_NS);
	return at;
}

/* ---- the beginning of a turn ------------------------------------------------------------- */

/* The table counts its time from here. */
static void opening_end(struct leases *l, struct lease_member *m, uint64_t now)
{
	if (!m->opening_until)
		return;
	m->opening_until = 0;
	lease_idle_works(&m->idle, now);
	lease_opened(l->table, m->number, now);
}

static void opening_begin(struct leases *l, struct lease_member *m, uint64_t now)
{
	struct member_look look;

	member_look(m, now, &look);
	m->opening_submitted = look.submitted;
	m->opening_until = now + OPENING_NS;
	if (!look.waiting || look.launching)
		opening_end(l, m, now);
}

/* True: not yet. */
static bool opening_look(struct leases *l, struct lease_member *m, uint64_t now)
{
	struct member_look look;

	if (!m->opening_until)
		return false;
	member_look(m, now, &look);
	if (!look.launching && look.submitted == m->opening_submitted && now < m->opening_until) {
		m->look_at = MIN(look_soon(l, now, look_interval(l)), m->opening_until);
		return true;
	}
	opening_end(l, m, now);
	return false;
}

/* ---- the end of a turn ------------------------------------------------------------------- */

static void shut(struct leases *l, struct lease_member *m, bool waiting, uint64_t now)
{
	bool was_idle = !m->wants;

	opening_end(l, m, now);
	lease_idle_rests(&m->idle, now);
	leak_count(m, now);
	m->state = MEMBER_SHUT;
	m->look_at = m->leaks ? now + LEAK_LOOK_NS : unheard_look_at(m, now);
	turn_end(l, m, now);
	lease_closed(l->table, m->number, now);
	if (waiting) {
		wants_set(l, m, true, now);
	} else if (!was_idle) {
		m->ponder_until = now + PONDER_NS;
		m->look_at = MIN(m->look_at, m->ponder_until);
	}
}

static uint64_t stall_ns(const struct lease_member *m, const struct member_look *look)
{
	uint64_t estimate = look->in_flight_ns + look->in_flight_ns / 2;

	return m->stalls_known ? STALL_NS : MAX(STALL_NS, MIN(estimate, STALL_NS_MOST));
}

static void drain_plan(struct lease_member *m, const struct member_look *look, uint64_t now)
{
	m->progress = look->progress;
	m->progress_at = now;
	m->stall_ns = stall_ns(m, look);
	m->give_up_at =
		now + MIN(MAX(DRAIN_MAX_NS, 4 * look->in_flight_ns), DRAIN_MOST_NS - DRAIN_LONG_NS);
	m->near_end = now + look->in_flight_ns / 4 * 3;
	m->reopened_until = 0;
	m->reopens = 0;
}

/* The gate is shut, and who passed it before shows in its page. */
static void gate_shut(const struct lease_member *m)
{
	gate_put(m, GATE_CLOSED);
	(void)gate_barrier();
}

static void drain_begin(struct leases *l, struct lease_member *m, uint64_t now)
{
	struct member_look look;

	opening_end(l, m, now);
	gate_shut(m);
	m->state = MEMBER_DRAINING;
	m->turn.revoked = now;
	m->turn.end = LEASE_END_TIME;
	member_look(m, now, &look);
	drain_plan(m, &look, now);
	m->planned_anew = false;
	m->look_at = now;
}

/* What its processes may have in flight: as the settings have it, doubled so often. */
static void room_set(const struct lease_member *m, unsigned doubled)
{
	atomic_store(&m->info.limits->in_flight_us, m->room_us << doubled);
}

static void reopening_begin(struct lease_member *m, uint64_t now)
{
	uint64_t part = m->stalls_known ? (now - m->turn.revoked) / REOPEN_PART_KNOWN
					: m->stall_ns / REOPEN_PART;

	member_note_stalled(m);
	room_set(m, m->doubled);
	m->doubled = MIN(m->doubled + 1, ROOM_DOUBLED);
	gate_put(m, GATE_CONTENDED);
	m->reopened_until = MIN(now + MAX(part, REOPEN_NS), m->give_up_at + DRAIN_LONG_NS);
	if (m->stalls_known && !m->reopens)
		m->stall_ns = STALL_AGAIN_NS;
	else
		m->stall_ns += m->stall_ns / (m->stalls_known ? 4 : 2);
	m->reopens++;
	m->reopened++;
}

static void reopening_end(struct lease_member *m, uint64_t now)
{
	gate_shut(m);
	room_set(m, 0);
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

/* What is left may wait for a thread that the gate holds up: lets it through for a moment. */
static bool drain_reopen(struct lease_member *m, const struct member_look *look, uint64_t now)
{
	bool helped = reopening_helped(m, now);

	if (m->reopened_until) {
		if (helped || now >= m->reopened_until)
			reopening_end(m, now);
		return true;
	}
	/* What was handed in uncounted is estimated after the gate is shut. */
	if (!m->reopens)
		m->stall_ns = MAX(m->stall_ns, stall_ns(m, look));
	if (!look->waiting || now - m->progress_at < m->stall_ns)
		return false;
	reopening_begin(m, now);
	return true;
}

/* What it needed this time is where it begins the next time, nearly. */
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
	/* What was let in just now is about to be marked. */
	bool fresh = m->reopens && now - m->reopened_at < REOPEN_HELPS_NS;
	uint64_t more = look->marked || fresh ? DRAIN_LONG_NS : 0;

	return now >= m->give_up_at + more;
}

/* Often where it is short, and where by the estimate it is about to be over. */
static uint64_t drain_look_next(const struct leases *l, const struct lease_member *m, uint64_t now)
{
	uint64_t interval = MAX(DRAIN_LOOK_NS, MIN((now - m->turn.revoked) / 4, look_interval(l)));

	if (m->reopened_until)
		return now + MAX(REOPEN_LOOK_NS, l->look_cost_ns * LOOK_BUDGET);
	if (now >= m->near_end)
		return look_soon(l, now, interval);
	return MIN(now + interval, m->near_end);
}

static void drain_look(struct leases *l, struct lease_member *m, uint64_t now)
{
	struct member_look look;
	/* By a waiter, while this daemon was stopped. */
	bool opened = !m->reopened_until && gate_is_open(m);

	if (opened)
		gate_shut(m);
	member_look(m, now, &look);
	/* Once: what opens its gate again and again is drained all the same. */
	if (opened && !m->planned_anew) {
		drain_plan(m, &look, now);
		m->planned_anew = true;
	}
	if (look.progress != m->progress) {
		m->progress = look.progress;
		m->progress_at = now;
	}
	if (!m->reopened_until && !look.launching && look.drained) {
		drain_learn(m, true);
		shut(l, m, look.waiting, now);
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
	shut(l, m, look.waiting, now);
}

/* ---- a holder ---------------------------------------------------------------------------- */

static void holder_gate(const struct lease_member *m)
{
	gate_put(m, m->contended ? GATE_CONTENDED : GATE_OPEN);
}

/* Takes the gate of a quiet holder away, if it still is quiet then. An idle gate can be taken back
 * without us, so it is for those whose time nobody counts. */
static bool holder_yield(struct leases *l, struct lease_member *m, uint64_t now)
{
	bool alone = !m->contended && !member_any(m->deaf);
	struct member_look look;

	(void)gate_set(m->info.ledger, alone ? GATE_IDLE : GATE_CLOSED);
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
	wants_set(l, m, false, now);
	return true;
}

/* When to look at a quiet one again. */
static uint64_t quiet_look_at(const struct leases *l, const struct lease_member *m, uint64_t often,
			      uint64_t now)
{
	uint64_t idle_at = m->quiet_since + lease_idle_ns(&m->idle);

	uint64_t next = lease_idle_is_brief(&m->idle) ? look_soon(l, now, often) : now + often;

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
	return now + MAX(look_interval(l), MIN(busy, LOOK_BUSY_NS));
}

/* Something new is in, or it was not quiet before. Of one that is looked at twice a second nothing
 * is to be learned. */
static void holder_news(struct lease_member *m, const struct member_look *look, uint64_t now)
{
	bool quiet = !look->launching && (look->drained || !m->contended);

	if (m->contended)
		quiet_end(m, now);
	if (m->contended && !quiet)
		lease_idle_works(&m->idle, now);
	else
		lease_idle_rests(&m->idle, now);
	m->quiet_submitted = look->submitted;
	m->quiet_since = quiet ? now : 0;
}

static void holder_look(struct leases *l, struct lease_member *m, uint64_t now)
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
		quiet_end(m, now);
		lease_idle_works(&m->idle, now);
	} else if (!look.drained) {
		/* Alone, and nothing new for a while: marks are put in where others want. */
		gate_put(m, GATE_CONTENDED);
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

/* ---- who waits --------------------------------------------------------------------------- */

/* Says something though nobody waits: once is a matter of timing, for ever would be an attack. */
static void wake_was_idle(struct leases *l, struct lease_member *m, uint64_t now)
{
	if (!m->muted_until)
		leases_listen(l, m, false);
	m->muted_until = now + MUTE_NS;
	m->look_at = MIN(m->look_at, m->muted_until);
}

/* Its process opened the gate by itself: the idle one, or while there was no daemon to ask. It
 * holds a lease, or loses it at once. */
static void taken_back(struct leases *l, struct lease_member *m, uint64_t now)
{
	leak_count(m, now);
	m->state = MEMBER_HOLDS;
	m->contended = true; /* as lease_opened() takes it */
	m->look_at = now + look_interval(l);
	quiet_end(m, now);
	holder_gate(m);
	turn_begin(m, UINT64_MAX, false, now);
	wants_set(l, m, true, now);
	lease_opened(l->table, m->number, now);
}

static void shut_look(struct leases *l, struct lease_member *m, uint64_t now)
{
	bool woken = m->woken;
	struct member_look look;

	m->woken = false;
	m->look_at = UINT64_MAX;
	if (gate_is_open(m)) {
		taken_back(l, m, now);
		return;
	}
	if (woken)
		member_rouse(m);
	member_look(m, now, &look);
	if (look.waiting) {
		quiet_end(m, now);
		wants_set(l, m, true, now);
	} else if (m->ponder_until && now >= m->ponder_until) {
		m->quiet_since = m->turn.closed;
		wants_set(l, m, false, now);
	} else if (!look.processes) {
		wants_set(l, m, false, now);
	} else if (woken) {
		wake_was_idle(l, m, now);
	}
	if (m->ponder_until)
		m->look_at = MIN(m->look_at, m->ponder_until);
	m->look_at = MIN(m->look_at, unheard_look_at(m, now));
}

/* Its gate is shut though it holds a lease: somebody may have come in between. */
static void yield_look(struct leases *l, struct lease_member *m, uint64_t now)
{
	struct member_look look;

	if (m->woken)
		member_rouse(m);
	m->woken = false;
	m->look_at = unheard_look_at(m, now);
	member_look(m, now, &look);
	if (!look.waiting && !gate_is_open(m))
		return;
	m->state = MEMBER_HOLDS;
	m->turn.revoked = 0;
	m->turn.end = LEASE_END_NONE;
	m->look_at = now + look_interval(l);
	wants_set(l, m, true, now);
	holder_gate(m);
}

static void member_run(struct leases *l, struct lease_member *m, uint64_t now)
{
	if (m->muted_until && now >= m->muted_until) {
		m->muted_until = 0;
		leases_listen(l, m, true);
	}
	switch (m->state) {
	case MEMBER_SHUT:
		shut_look(l, m, now);
		break;
	case MEMBER_YIELDS:
		yield_look(l, m, now);
		break;
	case MEMBER_DRAINING:
		drain_look(l, m, now);
		break;
	case MEMBER_HOLDS:
		holder_look(l, m, now);
		break;
	case MEMBER_FREE:
		m->look_at = UINT64_MAX;
		break;
	}
	if (m->state != MEMBER_SHUT)
		m->woken = false;
	if (m->leaks)
		leak_look(l, m, now);
}

/* ---- what the table says ----------------------------------------------------------------- */

/* Idle gates on these GPUs could be taken back: from now on their owners ask. Where one was taken
 * back just now, the table hears of two holders, and settles it. */
static void idle_gates_shut(struct leases *l, const struct lease_member *but, uint64_t now)
{
	for (struct lease_member *m = l->members; m; m = m->next) {
		uint64_t word = atomic_load(gate_word(m->info.ledger));

		if (m == but || m->state != MEMBER_SHUT || !(m->info.gpus & but->info.gpus))
			continue;
		if (GATE_STATE(word) == GATE_IDLE &&
		    !gate_replace(m->info.ledger, word, GATE_CLOSED))
			taken_back(l, m, now);
	}
}

static void act_grant(struct leases *l, struct lease_member *m, const struct lease_action *action,
		      uint64_t now)
{
	idle_gates_shut(l, m, now);
	leak_count(m, now);
	m->state = MEMBER_HOLDS;
	m->contended = action->contended;
	m->quiet_since = 0;
	m->ponder_until = 0;
	turn_begin(m, action->until, action->contended, now);
	opening_begin(l, m, now);
	holder_gate(m);
	m->look_at = now + (m->contended ? look_interval(l) : ALONE_LOOK_NS);
	if (m->opening_until)
		m->look_at = look_soon(l, now, look_interval(l));
}

static void act_revoke(struct leases *l, struct lease_member *m, uint64_t now)
{
	if (m->state == MEMBER_HOLDS)
		drain_begin(l, m, now);
	else if (m->state == MEMBER_YIELDS)
		shut(l, m, false, now);
}

static void act_change(struct leases *l, struct lease_member *m, const struct lease_action *action,
		       uint64_t now)
{
	m->contended = action->contended;
	m->turn.contended |= action->contended;
	if (m->state != MEMBER_HOLDS)
		return;
	holder_gate(m);
	m->quiet_since = 0;
	if (m->opening_until)
		return;
	m->look_at = now + (m->contended ? look_interval(l) : ALONE_LOOK_NS);
}

static void act(struct leases *l, const struct lease_action *action, uint64_t now)
{
	struct lease_member *m = member_find(l, action->id);

	if (!m || m->state == MEMBER_FREE)
		return;
	switch (action->kind) {
	case LEASE_GRANT:
		act_grant(l, m, action, now);
		break;
	case LEASE_REVOKE:
		act_revoke(l, m, now);
		break;
	case LEASE_CHANGE:
		act_change(l, m, action, now);
		break;
	case LEASE_NONE:
		break;
	}
}

static bool members_run(struct leases *l, uint64_t now)
{
	bool any = false;

	for (struct lease_member *m = l->members; m; m = m->next) {
		if (!m->woken && m->look_at > now)
			continue;
		member_run(l, m, now);
		any = true;
	}
	return any;
}

uint64_t turns_run(struct leases *l, uint64_t now)
{
	uint64_t next = now; /* where there is more to do than is done at once */

	if (!l->sliced)
		return UINT64_MAX;
	(void)members_run(l, now);
	for (unsigned i = 0; i < ACTIONS_MAX; i++) {
		struct lease_action action = lease_next(l->table, now, &next);

		if (action.kind != LEASE_NONE) {
			act(l, &action, now);
			continue;
		}
		/* A drain that is over already lets the next one in. */
		if (!members_run(l, now))
			break;
	}
	for (const struct lease_member *m = l->members; m; m = m->next)
		next = MIN(next, m->look_at);
	return next;
}

/* ---- members ----------------------------------------------------------------------------- */

/* What follows from its GPUs' settings: the shortest lease, a strict one among them. */
static void settings_take(const struct leases *l, struct lease_member *m)
{
	uint64_t shortest = UINT64_MAX;

	m->idle.dear = false;
	for (uint64_t gpus = m->info.gpus & l->sliced; gpus; gpus &= gpus - 1) {
		const struct lease_setting *setting =
			lease_get(l->table, (uint32_t)__builtin_ctzll(gpus));

		shortest = MIN(shortest, setting->lease_ns);
		m->idle.dear |= setting->mode == COMPUTE_STRICT;
	}
	m->room_us = (uint32_t)MIN(IN_FLIGHT_MAX_US, shortest / 4000);
	room_set(m, 0);
	m->asleep_ns = MIN(ASLEEP_NS, shortest / 2);
}

static void lease_drop(struct leases *l, struct lease_member *m, uint64_t now)
{
	bool held = holds(m);

	opening_end(l, m, now);
	member_forget_stalled(m);
	m->leaks = false;
	m->leak_ns = 0;
	turn_end(l, m, now);
	wants_set(l, m, false, now);
	if (held)
		lease_closed(l->table, m->number, now);
	m->look_at = UINT64_MAX;
	m->quiet_since = 0;
}

void turns_member_changed(struct leases *l, struct lease_member *m, uint64_t now)
{
	bool sliced = m->info.gpus & l->sliced;

	settings_take(l, m);
	if (!sliced) {
		lease_drop(l, m, now);
		m->state = MEMBER_FREE;
		gate_put(m, GATE_OFF);
	} else if (m->state == MEMBER_FREE) {
		m->state = MEMBER_SHUT;
		/* A daemon that stops before its first beat would be waited for forever. */
		member_beat(m);
		gate_shut(m);
		m->look_at = now;
	} else if (m->state == MEMBER_HOLDS) {
		holder_gate(m);
		m->look_at = now;
	}
}

void turns_member_remove(struct leases *l, struct lease_member *m, uint64_t now)
{
	lease_drop(l, m, now);
	lease_client_remove(l->table, m->number, now);
	while (m->stuck)
		member_forget_stuck(m, m->stuck->slot);
}
