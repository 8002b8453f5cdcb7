/* Debts of clients that are gone: their owner's next ones pay for it, on the same GPU. Else a
 * client could take a turn of any length, and another one of its owner the next, each of them the
 * first.
 *
 * A debt is a moment on the clock that pays for it, and how much of that clock's time pays. A debt
 * of shares is credit by then, at the rate of the shares that the clients had. A debt of what is
 * left over is a place among those that have it, for a number of clients. So it is forgiven as it
 * would have been paid if they had stayed. A client that comes takes as much of a debt as its own
 * share pays by the same moment, and leaves the rest to the next. So, whatever shares the new
 * clients have, nobody waits longer than the client that left would have waited. Clients that are
 * there already have nothing to do with it. */
#include <string.h>

#include "base/macros.h"
#include "core/lease_table.h"

/* Nobody is put off for longer by what others owed: as many plans, or this long. */
#define PUT_OFF_PLANS 4
#define PUT_OFF_NS 600000000000ull
#define COUNT_MAX 4096u

static uint64_t put_off_max(const struct lease_gpu *g)
{
	return MAX(PUT_OFF_PLANS * g->plan, PUT_OFF_NS);
}

/* ns of the GPU's time; 0: it is forgiven. */
static uint64_t amount(const struct lease_gpu *g, const struct lease_debt *d)
{
	return lease_ahead(d->until, g->share_clock) * d->rate / LEASE_PPM +
	       lease_ahead(d->excess, g->excess) * d->count;
}

static struct lease_debt *debt_find(struct lease_gpu *g, uint64_t owner)
{
	for (uint32_t i = 0; i < LEASE_DEBTS; i++) {
		struct lease_debt *d = &g->debt[i];

		if (d->owner == owner && (d->rate || d->count) && amount(g, d))
			return d;
	}
	return NULL;
}

static struct lease_debt *debt_least(struct lease_gpu *g)
{
	struct lease_debt *least = &g->debt[0];

	for (uint32_t i = 1; i < LEASE_DEBTS; i++)
		if (amount(g, &g->debt[i]) < amount(g, least))
			least = &g->debt[i];
	return least;
}

static uint64_t mean(uint64_t a, uint64_t a_weight, uint64_t b, uint64_t b_weight)
{
	return (uint64_t)(((__uint128_t)a * a_weight + (__uint128_t)b * b_weight) /
			  (a_weight + b_weight));
}

/* The part of it that is over does not count with what is added. */
static void debt_forgive(const struct lease_gpu *g, struct lease_debt *d)
{
	if (!lease_ahead(d->until, g->share_clock))
		d->rate = 0;
	if (!lease_ahead(d->excess, g->excess))
		d->count = 0;
}

static void debt_merge(const struct lease_gpu *g, struct lease_debt *d,
		       const struct lease_debt *more)
{
	debt_forgive(g, d);
	if (more->rate)
		d->until = mean(d->until, d->rate, more->until, more->rate);
	if (more->count)
		d->excess = mean(d->excess, d->count, more->excess, more->count);
	d->rate = MIN(d->rate + more->rate, LEASE_PPM);
	d->count = MIN(d->count + more->count, COUNT_MAX);
}

static void debt_clamp(const struct lease_gpu *g, struct lease_debt *d)
{
	d->rate = MIN(d->rate, LEASE_PPM);
	d->count = MIN(d->count, COUNT_MAX);
	d->until = MIN(d->until, g->share_clock + put_off_max(g));
	d->excess = MIN(d->excess, g->excess + put_off_max(g));
	debt_forgive(g, d);
}

void lease_debts_clamp(struct lease_gpu *g)
{
	for (uint32_t i = 0; i < LEASE_DEBTS; i++)
		debt_clamp(g, &g->debt[i]);
}

void lease_debts_turn(struct lease_gpu *g, uint64_t excess)
{
	for (uint32_t i = 0; i < LEASE_DEBTS; i++)
		g->debt[i].excess = excess + lease_ahead(g->debt[i].excess, g->excess);
}

void lease_debts_forget(struct lease_gpu *g)
{
	memset(g->debt, 0, sizeof(g->debt));
}

void lease_debt_add(struct lease_gpu *g, const struct lease_debt *debt)
{
	struct lease_debt more = *debt;

	debt_clamp(g, &more);
	if (!amount(g, &more))
		return;
	struct lease_debt *d = debt_find(g, more.owner), *least = debt_least(g);
	if (d)
		debt_merge(g, d, &more);
	else if (amount(g, &more) > amount(g, least))
		*least = more;
}

void lease_debt_leave(struct lease_gpu *g, const struct lease_seat *s)
{
	const struct lease_client *c = s->client;
	int64_t credit = lease_credit(g, s);
	struct lease_debt debt = {.owner = c->owner, .excess = s->excess, .count = 1};

	if (g->setting.mode == COMPUTE_OFF)
		return;
	if (c->fraction && credit < 0) {
		debt.until = g->share_clock + (uint64_t)-credit / c->fraction;
		debt.rate = c->fraction;
	}
	lease_debt_add(g, &debt);
}

/* How far ahead of the others in what is left over one may begin: as they go on at this rate,
 * about, that is made up for in time. */
static uint64_t excess_max(const struct lease_gpu *g, const struct lease_client *c)
{
	uint64_t rate = lease_pool_rate(g);

	if (g->setting.mode == COMPUTE_FAIR)
		rate = MAX(LEASE_PPM - MIN(g->promised_active, LEASE_PPM), rate);
	uint32_t others =
		c->fraction || g->setting.mode == COMPUTE_FAIR ? g->active : g->pool_active;
	return put_off_max(g) / LEASE_PPM * rate / MAX(others, 1);
}

void lease_debt_take(struct lease_gpu *g, struct lease_seat *s)
{
	const struct lease_client *c = s->client;
	struct lease_debt *d = debt_find(g, c->owner);

	if (!d || g->setting.mode == COMPUTE_OFF)
		return;
	debt_forgive(g, d);
	uint32_t rate = MIN(d->rate, c->fraction);
	d->rate -= rate;
	s->credit -= (int64_t)(lease_ahead(d->until, g->share_clock) * rate);
	if (!d->count)
		return;
	d->count--;
	s->excess = MAX(s->excess, MIN(d->excess, g->excess + excess_max(g, c)));
}
