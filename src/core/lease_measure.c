#include "core/lease_measure.h"

#include <stdlib.h>

#include "base/macros.h"
#include "core/lease_table.h"

/* Measured beside turns, without anybody's doing: hand-overs, and what is rounded. */
#define SLACK_PPM 10000u
/* How late the driver's figures may be: time that was held and is not in them yet. */
#define LAG_NS 150000000ll
/* Time that is not more than that is not charged. */
#define COARSE_NS 100000000ll
/* A client without a turn or work between so many marks has none of its time in the driver's
 * figures: work may have ended just before the second mark, and a figure reaches back for LAG_NS
 * and a quarter of a measurement more. */
#define SILENT_MARKS 3u
/* Clocks that differ by more between two marks do not agree. */
#define APART_NS (LEASE_MEASURE_NS / 50)
#define SUM_MOST_NS 60000000000ll
/* The GPU's work beyond that of all listed processes: of ended ones and of many small ones. */
#define UNLISTED_PPM 50000u
/* Nobody is owed more for what others took. */
#define RETURN_MOST_NS 5000000000ull

static uint64_t meter_held(const struct lease_meter *m)
{
	return m->paid[ACCOUNT_SHARE] + m->paid[ACCOUNT_SAVED] + m->paid[ACCOUNT_POOL] +
	       m->paid[ACCOUNT_EXCESS] + m->paid[ACCOUNT_FLUID];
}

/* Between the last two marks. */
static uint64_t held(const struct lease_seat *s)
{
	return meter_held(&s->meter_to) - meter_held(&s->meter_from);
}

static uint64_t paid(const struct lease_seat *s, enum lease_account account)
{
	return s->meter_to.paid[account] - s->meter_from.paid[account];
}

static uint64_t allowed(const struct lease_seat *s)
{
	return s->meter_to.allowed - s->meter_from.allowed;
}

/* ---- owners' accounts -------------------------------------------------------------------- */

static struct lease_outside *outside_find(const struct lease_gpu *g, uint64_t owner)
{
	for (uint32_t i = 0; i < g->outside_count; i++)
		if (g->outside[i].owner == owner)
			return &g->outside[i];
	return NULL;
}

/* NULL: no memory. */
static struct lease_outside *outside_get(struct lease_gpu *g, uint64_t owner)
{
	struct lease_outside *found = outside_find(g, owner);

	if (found)
		return found;
	struct lease_outside *more =
		realloc(g->outside, (g->outside_count + 1) * sizeof(*g->outside));
	if (!more)
		return NULL;
	g->outside = more;
	found = &g->outside[g->outside_count++];
	*found = (struct lease_outside){.owner = owner};
	return found;
}

/* Those that say nothing are dropped. */
static void outside_prune(struct lease_gpu *g)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < g->outside_count; i++)
		if (g->outside[i].beyond.ns || g->outside[i].whole.ns || g->outside[i].gone)
			g->outside[kept++] = g->outside[i];
	g->outside_count = kept;
}

void lease_meter_leave(struct lease_gpu *g, const struct lease_seat *s)
{
	uint64_t ns = meter_held(&s->meter) - meter_held(&s->meter_from) + s->meter.allowed -
		      s->meter_from.allowed;
	struct lease_outside *o = ns ? outside_get(g, s->client->owner) : NULL;

	if (o)
		o->gone += ns;
}

/* ---- one measurement --------------------------------------------------------------------- */

/* Between the last two marks, and at both of them. */
static bool was_silent(const struct lease_seat *s)
{
	return !held(s) && !s->client->goes_on && s->client->state == STATE_REST;
}

void lease_measure_mark(struct lease_table *t, uint32_t gpu, uint64_t now, uint64_t own)
{
	struct lease_gpu *g = &t->gpu[gpu];

	lease_settle(g, now);
	for (uint32_t i = 0; i < g->count; i++) {
		struct lease_seat *s = g->seats[i];

		lease_charge(t, s->client, now);
		s->meter_from = s->meter_to;
		s->meter_to = s->meter;
		s->credit_from = s->credit_to;
		s->credit_to = lease_credit(g, s);
		s->silent = was_silent(s) ? MIN(s->silent + 1, SILENT_MARKS) : 0;
	}
	g->measured_from = g->measured_to;
	g->measured_to = now;
	g->clock_from = g->clock_to;
	g->clock_to = own;
}

struct measure {
	struct lease_gpu *g;
	const struct lease_use *uses;
	size_t count;
	uint64_t ns; /* how long it was */
};

static uint64_t used_of(const struct measure *m, const struct lease_use *use)
{
	return m->ns / LEASE_PPM * MIN(use->ppm, LEASE_PPM);
}

static uint64_t used_by_owner(const struct measure *m, uint64_t owner)
{
	uint64_t ns = 0;

	for (size_t i = 0; i < m->count; i++)
		if (m->uses[i].owner == owner)
			ns += used_of(m, &m->uses[i]);
	return ns;
}

static uint64_t used_by_client(const struct measure *m, uint64_t id)
{
	uint64_t ns = 0;

	for (size_t i = 0; i < m->count; i++)
		if (m->uses[i].id == id)
			ns += used_of(m, &m->uses[i]);
	return ns;
}

/* Whether anybody else wanted the GPU. */
static bool others_wanted(const struct lease_gpu *g, uint64_t owner)
{
	for (uint32_t i = 0; i < g->count; i++) {
		const struct lease_seat *s = g->seats[i];

		if (s->client->owner != owner && (lease_active(s->client) || held(s)))
			return true;
	}
	return false;
}

static void owner_charge(struct lease_gpu *g, uint64_t owner, uint64_t ns)
{
	uint64_t fractions = 0, clients = 0;

	for (uint32_t i = 0; i < g->count; i++)
		if (g->seats[i]->client->owner == owner) {
			fractions += g->seats[i]->client->fraction;
			clients++;
		}
	for (uint32_t i = 0; i < g->count; i++) {
		struct lease_seat *s = g->seats[i];

		if (s->client->owner != owner)
			continue;
		uint64_t part =
			fractions ? (uint64_t)((__uint128_t)ns * s->client->fraction / fractions)
				  : ns / MAX(clients, 1);
		lease_charge_leak(g, s, part);
		s->charged += part;
	}
	g->dirty = true;
}

/* Returns by how much more it shows. Until that is more than the driver's coarseness it shows
 * nothing, and then all. */
static uint64_t account_count(struct lease_account_sum *a, int64_t more, int64_t slack, bool wanted)
{
	if (a->ns <= COARSE_NS || more <= 0)
		more -= slack;
	a->ns = MIN(MAX(a->ns + more, -LAG_NS), wanted ? SUM_MOST_NS : 0);
	a->shown = MIN(a->shown, MAX(a->ns, 0));
	if (a->ns <= COARSE_NS || a->ns <= a->shown)
		return 0;
	more = a->ns - a->shown;
	a->shown = a->ns;
	return (uint64_t)more;
}

/* By this measurement. */
static void outside_count(const struct measure *m, struct lease_outside *o)
{
	struct lease_gpu *g = m->g;
	int64_t more = (int64_t)used_by_owner(m, o->owner), borne = 0;

	for (uint32_t i = 0; i < g->count; i++)
		if (g->seats[i]->client->owner == o->owner) {
			more -= (int64_t)held(g->seats[i]);
			borne += (int64_t)allowed(g->seats[i]);
		}
	more -= (int64_t)o->gone;
	o->gone = 0;
	int64_t slack = (int64_t)(m->ns / LEASE_PPM * SLACK_PPM);
	bool wanted = others_wanted(g, o->owner);
	o->had = account_count(&o->whole, more, slack, wanted);
	o->taken = account_count(&o->beyond, more - borne, slack, wanted);
	if (o->taken)
		owner_charge(g, o->owner, o->taken);
}

/* ---- the clients that lost it ------------------------------------------------------------ */

static uint64_t missing(const struct measure *m, const struct lease_seat *s)
{
	uint64_t had = held(s), used = used_by_client(m, s->client->id);
	const struct lease_outside *o = outside_find(m->g, s->client->owner);

	return used < had && !(o && o->had) ? had - used : 0;
}

/* The ns that ran while nobody else waited. For them a client pays at most the worth of its share,
 * and its debt is paid back. So a part of the time that others took counts: as much as this client
 * would be owed now, had it been charged for its use. */
static uint64_t fluid_part(const struct measure *m, const struct lease_seat *s, uint64_t ns)
{
	uint64_t had = held(s), fluid = paid(s, ACCOUNT_FLUID);
	__uint128_t used = used_by_client(m, s->client->id);
	int64_t due = s->credit_from / (int64_t)LEASE_PPM +
		      (int64_t)((__uint128_t)fluid * s->client->fraction / LEASE_PPM) -
		      (int64_t)(used * fluid / had);
	int64_t more = due - MAX(s->credit_to, 0) / (int64_t)LEASE_PPM;

	return more > 0 ? MIN((uint64_t)more, ns) : 0;
}

/* To the accounts that paid for it. */
static void give_back(const struct measure *m, struct lease_seat *s, uint64_t ns)
{
	uint64_t had = held(s);
	__uint128_t part = ns;
	struct lease_gpu *g = m->g;
	int64_t most = lease_quantum(g, s) + (int64_t)(RETURN_MOST_NS * LEASE_PPM);
	uint64_t share = (uint64_t)(part * (paid(s, ACCOUNT_SHARE) + paid(s, ACCOUNT_SAVED)) / had);
	uint64_t excess = (uint64_t)(part * paid(s, ACCOUNT_EXCESS) / had);
	uint64_t pool = (uint64_t)(part * paid(s, ACCOUNT_POOL) / had);

	share += fluid_part(m, s, (uint64_t)(part * paid(s, ACCOUNT_FLUID) / had));
	lease_seat_fold(g, s);
	if (s->credit < most)
		s->credit = MIN(s->credit + (int64_t)(share * LEASE_PPM), most);
	s->excess -= MIN(excess + pool, s->excess);
	lease_seat_level(g, s);
	g->pool = MIN(g->pool + (int64_t)(pool * LEASE_PPM), (int64_t)(RETURN_MOST_NS * LEASE_PPM));
	s->returned += share + excess + pool;
	g->dirty = true;
}

static void all_give_back(const struct measure *m, uint64_t taken)
{
	struct lease_gpu *g = m->g;
	uint64_t sum = 0;

	for (uint32_t i = 0; i < g->count; i++)
		sum += missing(m, g->seats[i]);
	if (!sum || !taken)
		return;
	for (uint32_t i = 0; i < g->count; i++) {
		uint64_t ns = missing(m, g->seats[i]);

		if (ns)
			give_back(m, g->seats[i],
				  (uint64_t)((__uint128_t)ns * MIN(taken, sum) / sum));
	}
}

/* Beyond what the listed processes used. */
static uint64_t unlisted(const struct measure *m, uint32_t busy_ppm)
{
	uint64_t listed = 0;

	for (size_t i = 0; i < m->count; i++)
		listed += m->uses[i].ppm;
	if (busy_ppm == UINT32_MAX || busy_ppm <= listed + UNLISTED_PPM)
		return 0;
	return m->ns / LEASE_PPM * (busy_ppm - listed - UNLISTED_PPM);
}

/* The owner's processes that are attached nowhere, together. */
static uint64_t used_by_loose(const struct measure *m, uint64_t owner)
{
	uint64_t ns = 0;

	for (size_t i = 0; i < m->count; i++)
		if (!m->uses[i].id && m->uses[i].owner == owner)
			ns += used_of(m, &m->uses[i]);
	return ns;
}

static const struct lease_seat *seat_of(const struct lease_gpu *g, uint64_t id)
{
	for (uint32_t i = 0; i < g->count; i++)
		if (g->seats[i]->client->id == id)
			return g->seats[i];
	return NULL;
}

static bool is_unfronted(const struct measure *m, const struct lease_use *use)
{
	const struct lease_seat *s = use->id ? seat_of(m->g, use->id) : NULL;

	if (!use->ppm || !others_wanted(m->g, use->owner))
		return false;
	if (!use->id)
		return used_by_loose(m, use->owner) > (uint64_t)COARSE_NS;
	return s && s->silent >= SILENT_MARKS && used_by_client(m, use->id) > (uint64_t)COARSE_NS;
}

/* ---- the interface ----------------------------------------------------------------------- */

/* All that used the GPU, or could have. */
static void accounts_open(struct measure *m)
{
	for (size_t i = 0; i < m->count; i++)
		(void)outside_get(m->g, m->uses[i].owner);
	for (uint32_t i = 0; i < m->g->count; i++)
		(void)outside_get(m->g, m->g->seats[i]->client->owner);
}

/* Time held is by the clock of leases, and time used by the GPU's: where one stood still and the
 * other went on, their difference says nothing of anybody. */
static bool clocks_agree(const struct lease_gpu *g)
{
	uint64_t leases = g->measured_to - g->measured_from;
	uint64_t own = g->clock_to - MIN(g->clock_from, g->clock_to);

	return MAX(leases, own) - MIN(leases, own) <= APART_NS;
}

bool lease_measure(struct lease_table *t, uint32_t gpu, struct lease_use *uses, size_t count,
		   uint32_t busy_ppm, uint64_t now)
{
	struct lease_gpu *g = &t->gpu[gpu];
	struct measure m = {g, uses, count, g->measured_to - g->measured_from};
	uint64_t taken = 0;

	if (g->setting.mode == COMPUTE_OFF || !g->measured_from ||
	    m.ns < LEASE_MEASURE_NS / 4 * 3 || m.ns > LEASE_MEASURE_NS / 4 * 5 ||
	    !clocks_agree(g)) {
		for (uint32_t i = 0; i < g->outside_count; i++)
			g->outside[i].gone = 0;
		return false;
	}
	lease_sync(t, g, now);
	accounts_open(&m);
	for (uint32_t i = 0; i < g->outside_count; i++) {
		outside_count(&m, &g->outside[i]);
		taken += g->outside[i].had;
	}
	all_give_back(&m, taken + unlisted(&m, busy_ppm));
	for (size_t i = 0; i < count; i++)
		uses[i].unfronted = is_unfronted(&m, &uses[i]);
	outside_prune(g);
	return true;
}

void lease_measure_forget(struct lease_table *t, uint32_t gpu)
{
	struct lease_gpu *g = &t->gpu[gpu];

	g->outside_count = 0;
	g->measured_from = g->measured_to = 0;
}

void lease_goes_on(struct lease_table *t, uint64_t id, bool goes_on)
{
	struct lease_client *c = lease_find(t, id);

	if (c)
		c->goes_on = goes_on;
}

void lease_allow(struct lease_table *t, uint64_t id, uint64_t ns)
{
	struct lease_client *c = lease_find(t, id);

	for (uint32_t i = 0; c && i < c->seat_count; i++)
		c->seat[i].meter.allowed += ns;
}

void lease_measured(const struct lease_table *t, uint64_t id, uint64_t *ret_charged,
		    uint64_t *ret_returned)
{
	const struct lease_client *c = lease_find(t, id);

	*ret_charged = *ret_returned = 0;
	for (uint32_t i = 0; c && i < c->seat_count; i++) {
		*ret_charged = MAX(*ret_charged, c->seat[i].charged);
		*ret_returned = MAX(*ret_returned, c->seat[i].returned);
	}
}
