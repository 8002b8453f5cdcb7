/* A member's gate: what the daemon put there, and what it finds. Processes of the session can write
 * there what they like, so nothing follows from the word but what its table allows (proto/gate.h).
 * All else is put right again, and an owner who opened the gate against the plan is charged. */
#include "base/macros.h"
#include "daemon/lease/lease_turns.h"

/* While somebody has a turn that others wait for, their gates are looked at this often; less often
 * where that costs more than a twentieth of the time. */
#define GATES_LOOK_NS (2 * MS)
/* A gate that was looked at this long ago was not open all the time since, as far as one knows. */
#define OPEN_NS_MOST (1000 * MS)

void turn_gate_put(struct lease_member *m, enum gate_state state)
{
	if (GATE_STATE(m->gate) != state || atomic_load(gate_word(m->info.ledger)) != m->gate)
		m->gate = gate_set(m->info.ledger, state);
}

void turn_gate_shut(struct lease_member *m)
{
	turn_gate_put(m, GATE_CLOSED);
	(void)gate_barrier();
}

/* As it was last set, nobody having changed it since. */
bool turn_gate_replace(struct lease_member *m, enum gate_state state)
{
	if (!gate_replace(m->info.ledger, m->gate, state))
		return false;
	m->gate = gate_next(m->gate, state);
	return true;
}

enum gate_change turn_gate_find(struct leases *l, struct lease_member *m)
{
	uint64_t seen = atomic_load(gate_word(m->info.ledger));
	enum gate_change change = gate_change_of(m->gate, seen);

	if (change == GATE_FORSAKEN && !l->missed)
		change = GATE_SPOILT;
	/* That keeps its own processes waiting, and nobody else. */
	if (change == GATE_SPOILT && !gate_passes(seen)) {
		m->gate = gate_set(m->info.ledger, GATE_STATE(m->gate));
		change = GATE_SAME;
	}
	return change;
}

void turn_gate_forged(struct leases *l, struct lease_member *m, uint64_t now)
{
	uint64_t open = MIN(now - MIN(m->shut_at, now), OPEN_NS_MOST);

	turn_gate_shut(m);
	m->shut_at = now;
	m->forged++;
	lease_leaked(l->table, m->number, open, now);
	lease_allow(l->table, m->number, open);
	owner_note(l, m->culprit, CONDUCT_FORGED, m->id, now);
}

static bool anybody_waited_for(const struct leases *l)
{
	for (const struct lease_member *m = l->members; m; m = m->next)
		if (turn_holds(m) && m->turn.contended)
			return true;
	return false;
}

uint64_t turn_gates_look(struct leases *l, uint64_t now)
{
	if (!anybody_waited_for(l))
		return UINT64_MAX;
	if (now < l->gates_at)
		return l->gates_at;
	for (struct lease_member *m = l->members; m; m = m->next) {
		if (m->state != MEMBER_SHUT)
			continue;
		if (atomic_load(gate_word(m->info.ledger)) != m->gate)
			m->look_at = now;
		else
			m->shut_at = now;
	}
	l->gates_at = now + MAX(GATES_LOOK_NS, l->look_cost_ns * LOOK_BUDGET);
	return l->gates_at;
}
