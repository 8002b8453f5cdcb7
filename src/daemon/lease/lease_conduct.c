/* The users that are suspended, and the time for which work is waited for after its turn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/lease/lease_turns.h"

/* While work outstays its turn the table is told this often. */
#define OUTSTAY_LOOK_NS (50 * MS)
/* A drain that was given up sooner is nothing to speak of. */
#define OUTSTAY_LEAST_NS (100 * MS)

struct lease_owner *owner_find(const struct leases *l, uint64_t owner)
{
	struct lease_owner *o = l->owners;

	while (o && o->owner != owner)
		o = o->next;
	return o;
}

/* NULL: no memory. */
static struct lease_owner *owner_get(struct leases *l, uint64_t owner)
{
	struct lease_owner *o = owner_find(l, owner);

	if (o || !(o = calloc(1, sizeof(*o))))
		return o;
	o->owner = owner;
	o->next = l->owners;
	l->owners = o;
	return o;
}

void owners_free(struct leases *l)
{
	while (l->owners) {
		struct lease_owner *o = l->owners;

		l->owners = o->next;
		free(o);
	}
}

/* ---- suspended users --------------------------------------------------------------------- */

static const struct lease_member *outstaying_first(const struct leases *l)
{
	const struct lease_member *m = l->members;

	while (m && !m->outstays_since)
		m = m->next;
	return m;
}

/* Another one's work outstays its turn, which is of the same owner. from: the first that does. */
static bool is_outstayed(const struct leases *l, const struct lease_member *m,
			 const struct lease_member *from)
{
	for (const struct lease_member *other = from; other; other = other->next)
		if (other != m && other->outstays_since && other->culprit == m->culprit &&
		    other->info.gpus & m->info.gpus & l->sliced)
			return true;
	return false;
}

static bool is_suspended(const struct leases *l, const struct lease_member *m)
{
	const struct lease_owner *o = owner_find(l, m->culprit);

	return o && lease_conduct_suspended(&o->conduct);
}

void owners_bar(struct leases *l, uint64_t now)
{
	const struct lease_member *first = outstaying_first(l);

	for (struct lease_member *m = l->members; m; m = m->next) {
		bool barred = is_suspended(l, m) || is_outstayed(l, m, first);

		lease_client_bar(l->table, m->number, barred, now);
		/* An idle gate could be taken up. */
		if (barred && m->state == MEMBER_SHUT && GATE_STATE(m->gate) == GATE_IDLE)
			m->look_at = now;
	}
}

static void verdict_put(struct leases *l, const struct lease_owner *o, enum conduct_event event,
			const char *session, uint64_t now)
{
	struct lease_verdict verdict = {.owner = o->owner & CULPRIT_SESSION ? 0 : o->owner,
					.event = event,
					.for_ns = o->conduct.until - MIN(o->conduct.until, now)};

	snprintf(verdict.session, sizeof(verdict.session), "%s", session);
	/* One who does it all the time is not told of each time. */
	for (size_t i = 0; i < l->verdict_count; i++)
		if (l->verdicts[i].owner == verdict.owner && l->verdicts[i].event == event &&
		    !strcmp(l->verdicts[i].session, session))
			return;
	if (l->verdict_count < VERDICTS_KEPT)
		l->verdicts[l->verdict_count++] = verdict;
	if (l->notify)
		l->notify(l->notify_arg);
}

void owner_note(struct leases *l, uint64_t culprit, enum conduct_event event, const char *session,
		uint64_t now)
{
	struct lease_owner *o = owner_get(l, culprit);

	if (!o || !lease_conduct_note(&o->conduct, event, now))
		return;
	verdict_put(l, o, event, session, now);
	owners_bar(l, now);
}

uint64_t owners_pass(struct leases *l, uint64_t now)
{
	uint64_t next = UINT64_MAX;
	bool changed = false;

	for (struct lease_owner **at = &l->owners, *o; (o = *at);) {
		changed |= lease_conduct_pass(&o->conduct, now);
		if (lease_conduct_is_clean(&o->conduct, now)) {
			*at = o->next;
			free(o);
			continue;
		}
		if (o->conduct.state != CONDUCT_FREE)
			next = MIN(next, o->conduct.until);
		at = &o->next;
	}
	if (changed)
		owners_bar(l, now);
	return next;
}

/* ---- work that outstays its turn --------------------------------------------------------- */

uint64_t owner_patience(struct leases *l, const struct lease_member *m, uint64_t now)
{
	const struct lease_owner *o = owner_find(l, m->culprit);
	uint64_t patience = lease_patience(lease_others(l->table, m->info.gpus, m->info.owner));

	return o ? lease_conduct_left(&o->conduct, patience, now) : patience;
}

void outstay_begin(struct leases *l, struct lease_member *m, uint64_t since, uint64_t now)
{
	if (!m->outstays_since)
		m->outstays_since = since;
	m->outstays_told = now;
	owners_bar(l, now);
}

/* Up to the bound of a leak its end will be paid for (lease_leak.c), so the measurement bears it.
 * The measurement charges the time beyond that bound. */
void outstay_look(struct leases *l, struct lease_member *m, uint64_t now)
{
	if (!m->outstays_since || now - m->outstays_told < OUTSTAY_LOOK_NS)
		return;
	if (m->leak_ns < m->leak_ns_most)
		lease_allow(l->table, m->number, now - m->outstays_told);
	m->outstays_told = now;
}

void outstay_end(struct leases *l, struct lease_member *m, bool done, uint64_t now)
{
	uint64_t ns = m->outstays_since ? now - m->outstays_since : 0;

	if (!m->outstays_since)
		return;
	m->outstays_since = 0;
	if (done) {
		m->proven_ns = MAX(m->proven_ns, ns);
		owners_bar(l, now);
		return;
	}
	struct lease_owner *o = ns > OUTSTAY_LEAST_NS ? owner_get(l, m->culprit) : NULL;

	if (o)
		lease_conduct_spend(&o->conduct, ns, now);
	owners_bar(l, now);
}

/* ---- questions of the loop --------------------------------------------------------------- */

bool leases_suspended(struct leases *l, uint64_t owner)
{
	pthread_mutex_lock(&l->lock);
	const struct lease_owner *o = owner_find(l, owner);
	bool suspended = o && lease_conduct_suspended(&o->conduct);
	pthread_mutex_unlock(&l->lock);
	return suspended;
}

bool leases_any_suspended(struct leases *l)
{
	pthread_mutex_lock(&l->lock);
	const struct lease_owner *o = l->owners;
	while (o && !lease_conduct_suspended(&o->conduct))
		o = o->next;
	pthread_mutex_unlock(&l->lock);
	return o;
}

void leases_watch(struct leases *l, void (*notify)(void *arg), void *arg)
{
	pthread_mutex_lock(&l->lock);
	l->notify = notify;
	l->notify_arg = arg;
	pthread_mutex_unlock(&l->lock);
}

size_t leases_verdicts(struct leases *l, struct lease_verdict *verdicts, size_t room)
{
	pthread_mutex_lock(&l->lock);
	size_t count = MIN(l->verdict_count, room);
	for (size_t i = 0; i < count; i++)
		verdicts[i] = l->verdicts[i];
	for (size_t i = count; i < l->verdict_count; i++)
		l->verdicts[i - count] = l->verdicts[i];
	l->verdict_count -= count;
	pthread_mutex_unlock(&l->lock);
	return count;
}

void leases_measure_mark(struct leases *l, uint32_t gpu, uint64_t lag)
{
	pthread_mutex_lock(&l->lock);
	uint64_t now = turns_now(l), monotonic = now_monotonic_ns();
	for (struct lease_member *m = l->members; m; m = m->next) {
		outstay_look(l, m, now);
		lease_goes_on(l->table, m->number, m->leaks || m->outstays_since);
	}
	lease_measure_mark(l->table, gpu, now, monotonic - MIN(lag, monotonic));
	pthread_mutex_unlock(&l->lock);
}

static const struct lease_member *member_of(const struct leases *l, uint64_t number)
{
	const struct lease_member *m = l->members;

	while (m && m->number != number)
		m = m->next;
	return m;
}

/* One fault for each measurement, however many processes did it. */
static void unfronted_note(struct leases *l, struct lease_use *uses, size_t count, uint64_t now)
{
	for (size_t i = 0; i < count; i++) {
		const struct lease_member *m = member_of(l, uses[i].id);
		bool first = uses[i].unfronted;

		for (size_t k = 0; first && k < i; k++)
			first = !uses[k].unfronted || uses[k].owner != uses[i].owner ||
				(!uses[i].owner && uses[k].id != uses[i].id);
		if (first)
			owner_note(l, m ? m->culprit : uses[i].owner, CONDUCT_UNFRONTED,
				   m ? m->id : "", now);
	}
	for (size_t i = 0; i < count; i++) {
		const struct lease_member *m = member_of(l, uses[i].id);
		const struct lease_owner *o = owner_find(l, m ? m->culprit : uses[i].owner);

		uses[i].unfronted &= o && lease_conduct_suspended(&o->conduct);
	}
}

void leases_measure(struct leases *l, uint32_t gpu, struct lease_use *uses, size_t count,
		    uint32_t busy_ppm)
{
	uint64_t one = 1;

	pthread_mutex_lock(&l->lock);
	uint64_t now = turns_now(l);
	if (now < l->measured_from[gpu])
		lease_measure_forget(l->table, gpu);
	else if (l->sliced >> gpu & 1 && lease_measure(l->table, gpu, uses, count, busy_ppm, now))
		unfronted_note(l, uses, count, now);
	pthread_mutex_unlock(&l->lock);
	(void)!write(l->kick_fd, &one, sizeof(one));
}

uint64_t leases_client(const struct lease_member *m)
{
	return m->number;
}
