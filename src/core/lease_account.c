#include "base/macros.h"
#include "core/lease_table.h"

/* No overrun is held against anybody for longer, and nobody is owed more. */
#define DEBT_MAX (3600ll * 1000000000 * LEASE_PPM)
/* The pool may be owed this much while somebody of it wants: of what a plan gives it, or of turns
 * where that is less than one. Then it has a turn in some plans and none in the others. */
#define POOL_PLANS 4
/* Newcomers begin with this: their share of this many parts of a plan. */
#define YOUNG_PART 64
/* How long a newcomer is one. */
#define YOUNG_FOR(plan) ((plan) / 2 * 3)
/* An overrun counts for as much as a plan, or this long: whoever waited for it has that later, and
 * keeps those waiting who had nothing to do with it. */
#define OVERRUN_NS 1000000000ull
/* It is remembered for this many times as long, less and less: until what was missed has been had,
 * though next to nothing is left over. */
#define OVERRUN_FADES 16
/* A long kernel (LEASE_LATE_NS) counts for this many plans: turns that are long in one plan and
 * short in the next come in another order each time. */
#define LATE_PLANS 4
/* A session that waits and then sleeps is owed so many overruns at most: its turn may come after
 * the long kernels of two others. */
#define WAITED_OVERRUNS 2
/* Beside work that outlasts its turns a turn is this much of a lease, and this long at least, where
 * a lease is. A window begins and ends anywhere in the turns. Where turns come late each time, in
 * another order, a window lacks up to a turn of some client, and the long kernel in addition.
 * Simulated: 300 mixes of 2 to 5 shares and kernels of 0.05 to 300 ms, with leases of 250 ms.
 * Without this half of the clients lost 1.25 points in their worst 20 s, and one lost 2.3; with
 * this 0.5 and 1.4. Turns that shrink with the overrun instead are of another length each time: 0.9
 * and 1.5. */
#define BESIDE_LATE_PART 4
#define BESIDE_LATE_NS 60000000ull

struct lease_seat *lease_seat(struct lease_client *c, uint32_t gpu)
{
	return &c->seat[__builtin_popcountll(c->gpus & ((1ull << gpu) - 1))];
}

/* The most that fractions may come to. */
static uint32_t shares_max(const struct lease_gpu *g)
{
	return g->pool_active ? LEASE_PPM - LEASE_FLOOR_PPM : LEASE_PPM;
}

uint32_t lease_promised(const struct lease_gpu *g)
{
	return MAX(g->promised, g->granted);
}

static uint32_t promised(const struct lease_gpu *g)
{
	return g->setting.mode == COMPUTE_STRICT ? lease_promised(g) : g->promised_active;
}

static bool scaled(const struct lease_gpu *g)
{
	return promised(g) > shares_max(g);
}

bool lease_squeezed(const struct lease_gpu *g)
{
	return g->pool_active && lease_promised(g) > LEASE_PPM - LEASE_FLOOR_PPM;
}

uint32_t lease_seat_rate(const struct lease_gpu *g, const struct lease_seat *s)
{
	uint64_t rate = s->client->fraction;

	if (scaled(g))
		rate = rate * shares_max(g) / promised(g);
	return MAX(rate, 1);
}

uint32_t lease_pool_rate(const struct lease_gpu *g)
{
	if (g->setting.mode == COMPUTE_FAIR || scaled(g))
		return LEASE_FLOOR_PPM;
	return MAX(LEASE_PPM - lease_promised(g), 1);
}

static int64_t credit_clamp(__int128 credit, int64_t max)
{
	if (credit < -DEBT_MAX)
		return -DEBT_MAX;
	return credit > max ? max : (int64_t)credit;
}

/* A fair GPU's pool only has what the floor gives it. */
static int64_t pool_max(const struct lease_gpu *g)
{
	uint64_t plan = g->plan, rate = lease_pool_rate(g);

	if (g->setting.mode == COMPUTE_FAIR && !lease_squeezed(g))
		return 0;
	if (g->pool_active)
		return (int64_t)(POOL_PLANS * MAX(plan * rate, lease_useful(g) * LEASE_PPM));
	return (int64_t)MIN(plan * rate, g->setting.lease_ns * LEASE_PPM);
}

void lease_advance(struct lease_gpu *g, uint64_t ns)
{
	__int128 part = ns;

	g->time += ns;
	if (scaled(g)) {
		part = part * shares_max(g) + g->share_rest;
		g->share_rest = (uint64_t)(part % promised(g));
		part /= promised(g);
	}
	g->share_clock += (uint64_t)part;
	g->pool = credit_clamp((__int128)ns * lease_pool_rate(g) + g->pool, pool_max(g));
}

void lease_settle(struct lease_gpu *g, uint64_t now)
{
	uint64_t ns = now > g->at ? now - g->at : 0;
	bool stalls = g->holders ? g->opening == g->holders : g->reserved != NULL;

	g->at += ns;
	if (!ns || g->setting.mode == COMPUTE_OFF)
		return;
	if (stalls)
		g->stalled = MIN(g->stalled + ns, g->plan);
	else
		lease_advance(g, ns);
}

int64_t lease_credit(const struct lease_gpu *g, const struct lease_seat *s)
{
	__int128 passed = g->share_clock - s->mark;

	return credit_clamp(passed * s->client->fraction + s->credit, DEBT_MAX);
}

bool lease_is_new(const struct lease_gpu *g, const struct lease_seat *s)
{
	return s->client->fraction && !s->client->stat.leases && lease_credit(g, s) >= 0;
}

uint64_t lease_turn(const struct lease_gpu *g)
{
	uint64_t lease = g->setting.lease_ns;

	if (g->setting.mode != COMPUTE_STRICT || g->at >= g->late_until)
		return lease;
	return MIN(lease, MAX(lease / BESIDE_LATE_PART, BESIDE_LATE_NS));
}

int64_t lease_quantum(const struct lease_gpu *g, const struct lease_seat *s)
{
	uint64_t plan = g->plan * s->client->fraction;

	/* Beside long kernels two turns: who rests and returns has them at once, while others wait.
	 */
	return (int64_t)MIN(plan, MIN(g->setting.lease_ns, 2 * lease_turn(g)) * LEASE_PPM);
}

/* The debt of a client that leaves is paid if another client of its owner comes (lease_debt.c), and
 * else by nobody. A newcomer may leave soon. So it has no more at a time than its share of the time
 * since it came, and a little to begin with. It has half a lease at most: until turns come in their
 * order, a plan has up to a turn too many of some client. Whole leases begin only once that is
 * known. Simulated with shares such as 50/30/20, 25/75 and 8 equal ones: the worst first plan is
 * 2.9 points off, and the worst plan from 2 s on 2.7. With whole leases these are 4.5 and 5.7
 * points; with half leases for just a plan 4.1 and 4.9. */
uint64_t lease_young(const struct lease_gpu *g, const struct lease_seat *s)
{
	uint64_t age = g->time - s->since;

	if (age >= YOUNG_FOR(g->plan))
		return UINT64_MAX;
	uint64_t share = (age + g->plan / YOUNG_PART) * s->client->fraction / LEASE_PPM;
	return MAX(MIN(share, g->setting.lease_ns / 2), lease_useful(g));
}

int64_t lease_need(const struct lease_gpu *g, const struct lease_seat *s)
{
	int64_t quantum = lease_quantum(g, s);
	uint64_t turn = MIN(lease_young(g, s), lease_turn(g));

	/* Nobody's lease is ended for it in strict mode: there turns come in their order. */
	if (g->setting.mode == COMPUTE_FAIR && s->client->burst)
		turn = MIN(turn, MAX(s->client->burst, lease_useful(g)));
	return MIN(quantum, (int64_t)(turn * LEASE_PPM));
}

void lease_seat_fold(struct lease_gpu *g, struct lease_seat *s)
{
	s->credit = lease_credit(g, s);
	s->mark = g->share_clock;
}

int64_t lease_saved_max(const struct lease_gpu *g, const struct lease_seat *s)
{
	int64_t plan = (int64_t)(g->plan * s->client->fraction);

	return g->setting.mode == COMPUTE_STRICT ? plan - lease_quantum(g, s) : 0;
}

/* The most that a client keeps of the credit that it earned before it slept, ns * ppm. In fair mode
 * nothing is saved for it. While it waited for another's long kernel it earned more than a quantum,
 * and the other owes that. If its sleep cost it that credit, the time that the other pays back
 * would be left over, and the other would have a part of it. */
static int64_t waited_max(const struct lease_gpu *g, const struct lease_seat *s)
{
	if (g->setting.mode != COMPUTE_FAIR)
		return 0;
	return lease_quantum(g, s) +
	       (int64_t)(WAITED_OVERRUNS * lease_overran(g, g->at) * s->client->fraction);
}

/* Wants again: its sleep makes it one lease late at most, so that it does not take from those that
 * stayed awake what it did not use in its time. In strict mode the rest is not lost. */
void lease_seat_clamp(struct lease_gpu *g, struct lease_seat *s)
{
	int64_t most = MAX(lease_quantum(g, s), MIN(s->credit, waited_max(g, s)));
	int64_t saved_max = lease_saved_max(g, s);
	__int128 passed = g->share_clock - s->mark;
	__int128 credit = passed * s->client->fraction + s->credit;

	if (credit > most)
		s->saved = credit_clamp(credit - most + s->saved, saved_max);
	s->saved = MIN(s->saved, saved_max);
	s->credit = credit_clamp(credit, most);
	s->mark = g->share_clock;
}

void lease_seat_level(const struct lease_gpu *g, struct lease_seat *s)
{
	uint64_t lease = g->setting.lease_ns;

	if (g->excess > lease)
		s->excess = MAX(s->excess, g->excess - lease);
}

void lease_seat_wake(struct lease_gpu *g, struct lease_seat *s)
{
	lease_seat_clamp(g, s);
	lease_seat_level(g, s);
}

/* Nobody waits for it. First it is paid what it was owed, and what it owed to clients that are gone
 * is forgiven at the rate of its share. Then its share pays what the share is worth. */
static void charge_fluid(struct lease_gpu *g, struct lease_seat *s, uint64_t ns)
{
	int64_t before = s->credit;

	lease_seat_fold(g, s);
	if (before < 0)
		s->credit = MIN(s->credit, 0);
	else
		s->credit = MAX(MIN(s->credit - (int64_t)(ns * LEASE_PPM), before), 0);
	if (!s->client->fraction)
		g->pool = 0;
	s->excess += ns - ns * MIN(s->client->fraction, LEASE_PPM) / LEASE_PPM;
}

static void seat_charge(struct lease_gpu *g, struct lease_seat *s, uint64_t ns)
{
	int64_t cost = (int64_t)(ns * LEASE_PPM);

	if (s->account == ACCOUNT_SHARE) {
		lease_seat_fold(g, s);
		s->credit = credit_clamp((__int128)s->credit - cost, INT64_MAX);
	} else if (s->account == ACCOUNT_SAVED) {
		int64_t part = MIN(cost, s->saved);

		s->saved -= part;
		lease_seat_fold(g, s);
		s->credit = credit_clamp((__int128)s->credit - (cost - part), INT64_MAX);
	} else if (s->account == ACCOUNT_POOL) {
		g->pool = credit_clamp((__int128)g->pool - cost, INT64_MAX);
		s->excess += ns;
	} else if (s->account == ACCOUNT_FLUID) {
		charge_fluid(g, s, ns);
	} else {
		s->excess += ns;
		/* The floor is of all that they get. */
		if (!s->client->fraction && g->pool > 0)
			g->pool = MAX(g->pool - cost, 0);
	}
	s->served = g->at;
	/* Alone it sets the excess clock; else lease_pick() does. */
	if (g->active == 1)
		g->excess = MAX(g->excess, s->excess);
}

static void seat_charge_to(struct lease_gpu *g, struct lease_seat *s, enum lease_account account,
			   uint64_t ns)
{
	enum lease_account before = s->account;

	s->account = account;
	seat_charge(g, s, ns);
	s->account = before;
}

/* A turn that began while nobody else wanted the GPU costs nobody's share. Its overrun does
 * cost them: sessions that wait for its end are owed their shares of that time. So the client's own
 * share pays. */
static enum lease_account overrun_account(const struct lease_seat *s)
{
	return s->account == ACCOUNT_FLUID && s->client->fraction ? ACCOUNT_SHARE : s->account;
}

static void held_charge(struct lease_gpu *g, struct lease_seat *s, uint64_t from, uint64_t to)
{
	enum lease_account late = overrun_account(s);
	uint64_t end = MIN(MAX(s->client->until, from), to);

	s->meter.paid[s->account] += end - from;
	s->meter.paid[late] += to - end;
	if (end > from)
		seat_charge(g, s, end - from);
	if (to > end)
		seat_charge_to(g, s, late, to - end);
}

void lease_charge_leak(struct lease_gpu *g, struct lease_seat *s, uint64_t ns)
{
	/* Somebody else had the GPU meanwhile, so it is not for nothing. */
	enum lease_account account =
		s->client->fraction ? ACCOUNT_SHARE : lease_terms(g, s).account;

	seat_charge_to(g, s, account, MIN(ns, 3600ull * 1000000000));
}

void lease_charge(struct lease_table *t, struct lease_client *c, uint64_t now)
{
	struct lease_gpu *g;

	lease_each_gpu(t, c->covers, g) lease_settle(g, now);
	if (c->state != STATE_OPEN && c->state != STATE_CLOSING)
		return;
	/* Longer than an hour at once (an open end) would overflow the arithmetic. */
	for (uint64_t ns; (ns = MIN(now - c->charged, 3600ull * 1000000000)) > 0;) {
		lease_each_gpu(t, c->covers, g)
			held_charge(g, lease_seat(c, g->index), c->charged, c->charged + ns);
		lease_history_add(&c->history, c->charged, c->charged + ns);
		c->stat.held_ns += ns;
		c->charged += ns;
	}
}

uint64_t lease_overran(const struct lease_gpu *g, uint64_t now)
{
	return lease_ahead(g->overran, lease_ahead(now, g->overran_at) / OVERRUN_FADES);
}

void lease_overrun_note(struct lease_gpu *g, uint64_t ns)
{
	if (ns > LEASE_LATE_NS)
		g->late_until = g->at + LATE_PLANS * g->plan;
	ns = MIN(ns, MAX(g->plan, OVERRUN_NS));
	if (ns < lease_overran(g, g->at))
		return;
	g->overran = ns;
	g->overran_at = g->at;
}

void lease_sync(struct lease_table *t, struct lease_gpu *g, uint64_t now)
{
	lease_settle(g, now);
	if (g->holders == 1)
		lease_charge(t, g->holder, now);
}
