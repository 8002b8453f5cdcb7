/* Turns: what becomes of members as the table decides and their pages say. */
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/lease/lease_turns.h"

/* Pages of a member that holds a contended lease, or is draining, are looked at this often. It is
 * less often where a look costs more than a twentieth of that, so that it takes 5% of a CPU at
 * most. */
#define LOOK_EVERY_NS (MS / 4)
/* A member that was let in and hands nothing in for this long pays for its time all the same. */
#define OPENING_NS (300 * MS / 1000)
/* Processes that have the wake descriptor of a daemon before this one are looked at by the clock.
 */
#define DEAF_LOOK_NS (20 * MS)
/* A thread that comes to a shut gate says so; but a program can close the descriptor that its front
 * would write to. All who have processes are looked at together, that often. */
#define UNHEARD_LOOK_NS (1000 * MS)
/* A member whose lease ended by time and that is not at the gate yet may come within this time. */
#define PONDER_NS MS
/* A wake descriptor that says something though nobody waits is not listened to for this long. */
#define MUTE_NS MS
/* A thread that waits at a gate that has been open for this long, or half a lease, is asleep:
 * stopped, or without a CPU. */
#define ASLEEP_NS (10 * MS)
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

void turn_wants(struct leases *l, struct lease_member *m, bool wants, uint64_t now)
{
	m->ponder_until = 0;
	if (m->wants == wants)
		return;
	m->wants = wants;
	lease_wants(l->table, m->number, wants, now);
}

uint64_t turn_look_interval(const struct leases *l)
{
	return MAX(LOOK_EVERY_NS, l->look_cost_ns * LOOK_BUDGET);
}

uint64_t turn_look_soon(const struct leases *l, uint64_t now, uint64_t otherwise)
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
	m->account_due = true;
}

static void turn_end(struct leases *l, struct lease_member *m, uint64_t now)
{
	if (!m->turn.opened)
		return;
	m->account_due = true;
	m->turn.number = ++l->turn_count;
	m->turn.closed = now;
	if (!m->turn.revoked)
		m->turn.revoked = now;
	l->turns[m->turn.number % LEASE_TURNS_KEPT] = m->turn;
	m->turn.opened = 0;
}

bool turn_holds(const struct lease_member *m)
{
	return m->state == MEMBER_HOLDS || m->state == MEMBER_YIELDS || m->state == MEMBER_DRAINING;
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

void opening_end(struct leases *l, struct lease_member *m, uint64_t now)
{
	if (!m->opening_until)
		return;
	m->opening_until = 0;
	lease_idle_works(&m->idle, now);
	lease_opened(l->table, m->number, now);
	m->account_due = true;
}

/* Between the grant and the first work. */
static void opening_begin(struct leases *l, struct lease_member *m, uint64_t now)
{
	struct member_look look;

	member_look(m, now, &look);
	m->opening_submitted = look.submitted;
	m->opening_until = now + OPENING_NS;
	if (!look.waiting || look.launching)
		opening_end(l, m, now);
}

bool opening_look(struct leases *l, struct lease_member *m, uint64_t now)
{
	struct member_look look;

	if (!m->opening_until)
		return false;
	member_look(m, now, &look);
	if (!look.launching && look.submitted == m->opening_submitted && now < m->opening_until) {
		m->look_at = MIN(turn_look_soon(l, now, turn_look_interval(l)), m->opening_until);
		return true;
	}
	opening_end(l, m, now);
	return false;
}

/* ---- the end of a turn ------------------------------------------------------------------- */

void turn_shut(struct leases *l, struct lease_member *m, bool waiting, uint64_t now)
{
	bool was_idle = !m->wants;

	opening_end(l, m, now);
	lease_idle_rests(&m->idle, now);
	leak_count(m, now);
	m->state = MEMBER_SHUT;
	m->shut_at = now;
	m->look_at = m->leaks ? now + LEAK_LOOK_NS : unheard_look_at(m, now);
	turn_end(l, m, now);
	lease_closed(l->table, m->number, now);
	if (waiting) {
		turn_wants(l, m, true, now);
	} else if (!was_idle) {
		m->ponder_until = now + PONDER_NS;
		m->look_at = MIN(m->look_at, m->ponder_until);
	}
}

/* ---- waiting members --------------------------------------------------------------------- */

/* Its wake descriptor speaks though no thread waits. A single spurious wake-up is normal; repeated
 * ones are rate-limited. */
static void wake_was_idle(struct leases *l, struct lease_member *m, uint64_t now)
{
	if (m->heard) {
		m->heard = false;
		return;
	}
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
	m->look_at = now + turn_look_interval(l);
	holder_quiet_end(m, now);
	holder_gate(m);
	turn_begin(m, UINT64_MAX, false, now);
	turn_wants(l, m, true, now);
	lease_opened(l->table, m->number, now);
}

static void shut_look(struct leases *l, struct lease_member *m, uint64_t now)
{
	bool woken = m->woken;
	struct member_look look;

	m->woken = false;
	m->look_at = UINT64_MAX;
	switch (turn_gate_find(l, m)) {
	case GATE_TAKEN_UP:
	case GATE_FORSAKEN:
		taken_back(l, m, now);
		return;
	case GATE_SPOILT:
		turn_gate_forged(l, m, now);
		break;
	case GATE_SAME:
		m->shut_at = now;
		break;
	}
	if (woken)
		member_rouse(m);
	member_look(m, now, &look);
	if (look.waiting) {
		holder_quiet_end(m, now);
		turn_wants(l, m, true, now);
	} else if (m->ponder_until && now >= m->ponder_until) {
		m->quiet_since = m->turn.closed;
		turn_wants(l, m, false, now);
	} else if (!look.processes) {
		turn_wants(l, m, false, now);
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
	if (!look.waiting && turn_gate_find(l, m) == GATE_SAME)
		return;
	m->state = MEMBER_HOLDS;
	m->turn.revoked = 0;
	m->turn.end = LEASE_END_NONE;
	m->look_at = now + turn_look_interval(l);
	turn_wants(l, m, true, now);
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

/* ---- orders of the table ----------------------------------------------------------------- */

/* Idle gates on these GPUs could be taken back: from now on their owners ask. Where one was taken
 * back just now, the table hears of two holders, and settles it. */
static void idle_gates_shut(struct leases *l, const struct lease_member *but, uint64_t now)
{
	for (struct lease_member *m = l->members; m; m = m->next) {
		if (m == but || m->state != MEMBER_SHUT || !(m->info.gpus & but->info.gpus))
			continue;
		if (GATE_STATE(m->gate) != GATE_IDLE || turn_gate_replace(m, GATE_CLOSED))
			continue;
		if (turn_gate_find(l, m) == GATE_TAKEN_UP)
			taken_back(l, m, now);
		else
			turn_gate_put(m, GATE_CLOSED);
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
	m->look_at = now + (m->contended ? turn_look_interval(l) : ALONE_LOOK_NS);
	if (m->opening_until)
		m->look_at = turn_look_soon(l, now, turn_look_interval(l));
}

static void act_revoke(struct leases *l, struct lease_member *m, uint64_t now)
{
	if (m->state == MEMBER_HOLDS)
		drain_begin(l, m, now);
	else if (m->state == MEMBER_YIELDS)
		turn_shut(l, m, false, now);
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
	m->look_at = now + (m->contended ? turn_look_interval(l) : ALONE_LOOK_NS);
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
	uint64_t owners_next = owners_pass(l, now);
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
	turn_accounts_write(l, false, now);
	next = MIN(MIN(next, owners_next), turn_gates_look(l, now));
	for (const struct lease_member *m = l->members; m; m = m->next)
		next = MIN(next, m->look_at);
	return next;
}

/* ---- members ----------------------------------------------------------------------------- */

/* The consequences of its GPUs' settings: the shortest lease, a strict one among them. */
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
	drain_room_set(m, 0);
	m->asleep_ns = MIN(ASLEEP_NS, shortest / 2);
}

static void lease_drop(struct leases *l, struct lease_member *m, uint64_t now)
{
	bool held = turn_holds(m);

	opening_end(l, m, now);
	m->outstays_since = 0;
	member_forget_stalled(m);
	m->leaks = false;
	m->leak_ns = 0;
	turn_end(l, m, now);
	turn_wants(l, m, false, now);
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
		turn_gate_put(m, GATE_OFF);
	} else if (m->state == MEMBER_FREE) {
		m->state = MEMBER_SHUT;
		/* A daemon that stops before its first beat would be waited for forever. */
		member_beat(m);
		turn_gate_shut(m);
		m->look_at = now;
	} else if (m->state == MEMBER_HOLDS) {
		holder_gate(m);
		m->look_at = now;
	}
}

void turns_member_remove(struct leases *l, struct lease_member *m, uint64_t now)
{
	/* Work on the GPU may stay there for as long as it likes. */
	if (m->state == MEMBER_DRAINING)
		outstay_begin(l, m, m->turn.revoked, now);
	outstay_end(l, m, false, now);
	/* Its user owes the time that its work ran after its turn. Nobody knows when that work
	 * ends. */
	leak_count(m, now);
	if (m->leaks)
		lease_leaked(l->table, m->number, MIN(m->leak_ns, m->leak_ns_most), now);
	lease_drop(l, m, now);
	lease_client_remove(l->table, m->number, now);
	while (m->stuck)
		member_forget_stuck(m, m->stuck->slot);
}
