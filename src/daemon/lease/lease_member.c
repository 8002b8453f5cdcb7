#include "daemon/lease/lease_member.h"

#include <stdlib.h>

#include "base/macros.h"

/* ---- one process ------------------------------------------------------------------------- */

/* Sums of numbers that only ever count up: they change when any of them does. */
static void streams_sum(const struct gate_process *p, uint32_t *ret_marked, uint32_t *ret_done)
{
	uint32_t streams = MIN(atomic_load(&p->streams), GATE_STREAMS_MAX);

	*ret_marked = *ret_done = 0;
	for (uint32_t i = 0; i < streams; i++) {
		*ret_marked += atomic_load_explicit(&p->stream[i].marked, memory_order_relaxed);
		*ret_done += atomic_load_explicit(&p->stream[i].done, memory_order_acquire);
	}
}

static struct member_stuck *stuck_find(const struct lease_member *m, uint32_t slot)
{
	struct member_stuck *s = m->stuck;

	while (s && s->slot != slot)
		s = s->next;
	return s;
}

static bool is_asleep(const struct member_stuck *stuck, uint64_t waits, uint64_t now)
{
	return stuck && now < stuck->asleep_until && waits == stuck->waits;
}

static void process_look(const struct lease_member *m, uint32_t slot, uint64_t now,
			 struct member_look *look)
{
	const struct gate_process *p = gate_process(m->info.ledger, slot);
	const struct member_stuck *stuck = stuck_find(m, slot);
	uint32_t submitted, marked, done;

	if (!p)
		return;
	uint64_t waits = atomic_load_explicit(&p->waits, memory_order_relaxed);
	bool launching = gate_launching(p);
	submitted = gate_submitted(p);
	streams_sum(p, &marked, &done);
	look->processes++;
	look->waiting |= atomic_load(&p->waiting) != 0 && !is_asleep(stuck, waits, now);
	look->waits += waits;
	look->submitted += submitted;
	look->progress += done + launching;
	if (stuck && stuck->hung && stuck->submitted == submitted && stuck->done == done)
		return;
	look->launching |= launching;
	look->drained &= gate_drained(p);
	look->marked &= !launching && marked == submitted;
	look->in_flight_ns += MIN(atomic_load_explicit(&p->in_flight_ns, memory_order_relaxed),
				  LOOK_IN_FLIGHT_MAX_NS);
}

/* ---- all of a member's ------------------------------------------------------------------- */

void member_look(const struct lease_member *m, uint64_t now, struct member_look *ret)
{
	struct member_look look = {.drained = true, .marked = true};

	for (unsigned i = 0; i < MEMBER_WORDS; i++)
		for (uint64_t bits = m->live[i]; bits; bits &= bits - 1)
			process_look(m, i * 64 + (unsigned)__builtin_ctzll(bits), now, &look);
	look.in_flight_ns = MIN(look.in_flight_ns, LOOK_IN_FLIGHT_MAX_NS);
	*ret = look;
}

bool member_forget_stuck(struct lease_member *m, uint32_t slot)
{
	for (struct member_stuck **at = &m->stuck; *at; at = &(*at)->next)
		if ((*at)->slot == slot) {
			struct member_stuck *found = *at;

			bool leaked = found->leaks;

			*at = found->next;
			free(found);
			return leaked;
		}
	return false;
}

/* As it stands now. NULL: no memory. */
static struct member_stuck *slot_note(struct lease_member *m, uint32_t slot,
				      const struct gate_process *p)
{
	struct member_stuck *stuck;
	uint32_t marked, done;

	(void)member_forget_stuck(m, slot);
	stuck = malloc(sizeof(*stuck));
	if (!stuck)
		return NULL;
	streams_sum(p, &marked, &done);
	*stuck = (struct member_stuck){
		.next = m->stuck, .slot = slot, .submitted = gate_submitted(p), .done = done};
	m->stuck = stuck;
	return stuck;
}

static void slot_note_stuck(struct lease_member *m, uint32_t slot)
{
	const struct gate_process *p = gate_process(m->info.ledger, slot);
	struct member_stuck *stuck;

	if (!p || (!gate_launching(p) && gate_drained(p)))
		return;
	stuck = slot_note(m, slot, p);
	if (!stuck)
		return;
	stuck->hung = true;
	stuck->leaks = !gate_drained(p);
}

static void slot_note_asleep(struct lease_member *m, uint32_t slot, uint64_t until)
{
	const struct gate_process *p = gate_process(m->info.ledger, slot);
	struct member_stuck *stuck;

	if (!p || !atomic_load(&p->waiting))
		return;
	stuck = stuck_find(m, slot);
	if (!stuck)
		stuck = slot_note(m, slot, p);
	if (!stuck)
		return;
	stuck->asleep_until = until;
	stuck->waits = atomic_load_explicit(&p->waits, memory_order_relaxed);
}

void member_note_stuck(struct lease_member *m)
{
	for (unsigned i = 0; i < MEMBER_WORDS; i++)
		for (uint64_t bits = m->live[i]; bits; bits &= bits - 1)
			slot_note_stuck(m, i * 64 + (unsigned)__builtin_ctzll(bits));
}

void member_note_asleep(struct lease_member *m, uint64_t until)
{
	for (unsigned i = 0; i < MEMBER_WORDS; i++)
		for (uint64_t bits = m->live[i]; bits; bits &= bits - 1)
			slot_note_asleep(m, i * 64 + (unsigned)__builtin_ctzll(bits), until);
}

void member_rouse(struct lease_member *m)
{
	for (struct member_stuck *s = m->stuck; s; s = s->next)
		s->asleep_until = 0;
}

uint64_t member_sleep_ends(const struct lease_member *m, uint64_t now)
{
	uint64_t at = UINT64_MAX;

	for (const struct member_stuck *s = m->stuck; s; s = s->next)
		if (s->asleep_until > now)
			at = MIN(at, s->asleep_until);
	return at;
}

static uint32_t stalled_done(const struct member_stalled *s, const struct gate_process *p)
{
	uint32_t done = 0;

	for (uint32_t i = 0; i < GATE_STREAMS_MAX; i++)
		if (s->streams[i / 64] >> i % 64 & 1)
			done += atomic_load_explicit(&p->stream[i].done, memory_order_acquire);
	return done;
}

static void slot_note_stalled(struct lease_member *m, uint32_t slot)
{
	const struct gate_process *p = gate_process(m->info.ledger, slot);
	struct member_stalled *s;

	if (!p || gate_drained(p) || !(s = calloc(1, sizeof(*s))))
		return;
	s->slot = slot;
	for (uint32_t i = 0; i < MIN(atomic_load(&p->streams), GATE_STREAMS_MAX); i++)
		if (atomic_load(&p->stream[i].done) != atomic_load(&p->stream[i].submitted))
			s->streams[i / 64] |= 1ull << i % 64;
	s->done = stalled_done(s, p);
	s->next = m->stalled;
	m->stalled = s;
}

void member_note_stalled(struct lease_member *m)
{
	member_forget_stalled(m);
	for (unsigned i = 0; i < MEMBER_WORDS; i++)
		for (uint64_t bits = m->live[i]; bits; bits &= bits - 1)
			slot_note_stalled(m, i * 64 + (unsigned)__builtin_ctzll(bits));
}

bool member_stalled_moved(const struct lease_member *m)
{
	for (const struct member_stalled *s = m->stalled; s; s = s->next)
		if (stalled_done(s, gate_process(m->info.ledger, s->slot)) != s->done)
			return true;
	return false;
}

void member_forget_stalled(struct lease_member *m)
{
	while (m->stalled) {
		struct member_stalled *s = m->stalled;

		m->stalled = s->next;
		free(s);
	}
}

bool member_leaks(struct lease_member *m)
{
	bool any = false;

	for (struct member_stuck *s = m->stuck; s; s = s->next) {
		const struct gate_process *p = gate_process(m->info.ledger, s->slot);
		uint32_t marked, done;

		if (!s->leaks || !p)
			continue;
		streams_sum(p, &marked, &done);
		s->leaks = (int32_t)(done - s->submitted) < 0;
		any |= s->leaks;
	}
	return any;
}

void member_beat(struct lease_member *m)
{
	struct ledger_limits *limits = m->info.limits;
	uint32_t generation = atomic_load(&limits->generation);
	uint32_t count = atomic_load(&limits->beat) + 1;

	atomic_store(&limits->beat, generation << LEDGER_BEAT_COUNT_BITS |
					    (count & ((1u << LEDGER_BEAT_COUNT_BITS) - 1)));
}
