/* Work that outlives a drain: its owner pays for it. */
#include "base/macros.h"
#include "daemon/lease/lease_turns.h"

/* How often to see whether work ended that a lease's end was not held up for any longer. */
#define LEAK_LOOK_NS_MOST (100 * MS)

void leak_count(struct lease_member *m, uint64_t now)
{
	if (m->leaks && !turn_holds(m))
		m->leak_ns += now - m->leak_at;
	m->leak_at = now;
}

/* Work that reports itself is on the GPU until then, but a simulated one's process may be stopped;
 * of what does not, nobody knows when it ended. */
void leak_begin(struct leases *l, struct lease_member *m, const struct member_look *look,
		uint64_t now)
{
	uint32_t gpu = (uint32_t)__builtin_ctzll(m->info.gpus & l->sliced);
	uint64_t plan = lease_plan_ns(lease_get(l->table, gpu));

	leak_count(m, now);
	outstay_begin(l, m, m->turn.revoked, now);
	m->leaks = true;
	m->leak_ns_most = m->leak_ns +
			  (look->marked ? MAX(plan, 2 * look->in_flight_ns) : look->in_flight_ns);
}

void leak_look(struct leases *l, struct lease_member *m, uint64_t now)
{
	uint64_t interval = MIN(MAX(LEAK_LOOK_NS, m->leak_ns / 16), LEAK_LOOK_NS_MOST);

	leak_count(m, now);
	outstay_look(l, m, now);
	if (member_leaks(m)) {
		m->look_at = MIN(m->look_at, now + interval);
		return;
	}
	lease_leaked(l->table, m->number, MIN(m->leak_ns, m->leak_ns_most), now);
	m->leaks = false;
	m->leak_ns = 0;
	outstay_end(l, m, true, now);
}
