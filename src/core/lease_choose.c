#include "base/macros.h"
#include "core/lease_table.h"

/* Moments within that part of a lease of each other are the same. Kernels that take time beyond
 * their turns move credits by little. That is enough for one client to go before another in this
 * plan and after it in the next. A stretch as long as a plan then has a lease too many of one of
 * them. So, turns come in the same order again and again. Simulated with stretches of 5 s: without
 * this, 2.5% of those of 50/30/20 and 46% of those of 8 equal shares were more than a lease off.
 * With it the worst of both was 0.15 points. */
#define SAME_PART(of) ((of) / 8 * 3)
/* A newcomer's turns join that order after such a part of a plan. Simulated in fair mode, the worst
 * plan of six sets of shares, from 2 s on, is 5.0 points off. If newcomers joined it after a plan,
 * it would be 7.3 points off. */
#define NEW_PART 8

/* In fair mode a client whose turns overrun begins in the time that is left over only after a pause
 * of the others: this part of its mean overrun. A client that waits for its work now and then would
 * come back to a long kernel each time. The simulation has a session of 90% that pauses for 0.5 ms
 * after each 128 ms, beside kernels of 0.1, 0.4 and 1 s. It had 56, 24 and 10% without the pause,
 * and has 88.6, 87.6 and 84.6% with it. The last kernel of 1 s is 5 points of that. */
#define PAUSE_PART 4
/* The pause becomes less while the client waits, and is nothing after so many overruns. So somebody
 * who pauses again and again leaves 1% to a client without a share. */
#define PAUSE_FADES (LEASE_PPM / LEASE_FLOOR_PPM)

/* One pass over the clients of one GPU, to choose whose turn it is. */
struct look {
	struct lease_gpu *g;
	struct lease_seat *share, *crumb, *saved, *excess, *pool;
	int64_t share_key, crumb_key, saved_key;
	uint64_t wait;
	/* When the last of those that sleep, and would be due if they woke, went to sleep; 0: there
	   is none of these. */
	uint64_t rested;
	/* The same for all clients of the GPU. */
	uint64_t plan_left, plan_time;
	int64_t crumb_max; /* ns * ppm: less isn't worth a lease in this plan */
};

static uint64_t plan_left(const struct lease_gpu *g)
{
	return g->plan - (g->time - g->plan_base) % g->plan;
}

static uint64_t quotient_up(int64_t amount, uint32_t rate)
{
	return ((uint64_t)amount + rate - 1) / rate + 1;
}

/* The time whose shares may be used now: what is left of this plan, and the next one where that is
 * about to begin. */
static uint64_t plan_time(const struct lease_gpu *g)
{
	uint64_t left = plan_left(g);

	return left > lease_useful(g) ? left : left + g->plan;
}

/* The time for which an account is still good, until then: ns * ppm, ns. */
static int64_t rest_credit(uint64_t time, int64_t credit, uint32_t rate)
{
	return (int64_t)(time * rate) + credit;
}

static uint64_t plan_rest(const struct lease_gpu *g, int64_t credit, uint32_t rate)
{
	int64_t rest = rest_credit(plan_time(g), credit, rate);

	return rest < 0 ? 0 : (uint64_t)rest / LEASE_PPM;
}

/* A whole lease, or what is left of the plan's share, with crumbs swept up or carried over. */
static uint64_t share_length(const struct lease_gpu *g, uint64_t rest, uint64_t lease)
{
	uint64_t useful = lease_useful(g);

	return rest < lease + useful / 2 ? MAX(rest, useful) : lease;
}

/* Leases of a kind of time that `count` clients take turns at: all of them have one in a plan. */
static uint64_t turn_length(const struct lease_gpu *g, uint32_t rate, uint32_t count)
{
	uint64_t turn = g->plan / LEASE_PPM * rate / MAX(count, 1);

	return MIN(MAX(turn, lease_useful(g)), lease_turn(g));
}

static bool sooner(const struct lease_seat *s, int64_t key, const struct lease_seat *best,
		   int64_t best_key)
{
	return !best || key < best_key || (key == best_key && s->served < best->served);
}

static int64_t same_moment(const struct lease_gpu *g)
{
	return (int64_t)SAME_PART(g->setting.lease_ns);
}

/* How far off the moment is by when its next lease should be over. */
static int64_t deadline(int64_t quantum, int64_t credit, uint32_t rate)
{
	return (quantum - credit) / (int64_t)rate;
}

/* ns * ppm by which its turn may come too soon, as that is the same moment. It is 0 for a client
 * that came lately, as it may leave at once. */
static int64_t early_credit(const struct lease_gpu *g, const struct lease_seat *s)
{
	return g->time - s->since < g->plan / NEW_PART ? 0 : SAME_PART(lease_quantum(g, s));
}

static bool is_due(const struct lease_gpu *g, const struct lease_seat *s)
{
	return lease_credit(g, s) >= -early_credit(g, s);
}

static void look_share(struct look *l, struct lease_seat *s)
{
	const struct lease_gpu *g = l->g;
	uint32_t rate = lease_seat_rate(g, s);
	int64_t credit = lease_credit(g, s);
	int64_t key = lease_is_new(g, s) ? INT64_MIN : deadline(lease_need(g, s), credit, rate);

	if (!is_due(g, s)) {
		l->wait = MIN(l->wait, quotient_up(-credit, rate));
	} else if (g->setting.mode == COMPUTE_FAIR ||
		   rest_credit(l->plan_time, credit, rate) >= l->crumb_max) {
		s->key = key;
		if (sooner(s, key, l->share, l->share_key))
			l->share = s, l->share_key = key;
	} else {
		l->wait = MIN(l->wait, l->plan_left);
		if (sooner(s, key, l->crumb, l->crumb_key))
			l->crumb = s, l->crumb_key = key;
	}
	if (s->saved < l->crumb_max)
		return;
	int64_t late = -s->saved / (int64_t)rate;
	if (sooner(s, late, l->saved, l->saved_key))
		l->saved = s, l->saved_key = late;
}

static void look_turn(struct lease_seat *s, struct lease_seat **best)
{
	if (!*best || s->excess < (*best)->excess ||
	    (s->excess == (*best)->excess && s->served < (*best)->served))
		*best = s;
}

static void look_asleep(struct look *l, const struct lease_seat *s)
{
	if (s->client->fraction && !lease_active(s->client) && is_due(l->g, s))
		l->rested = MAX(l->rested, s->rested);
}

/* How long the others have to sleep before the client begins. The work of a client that had no turn
 * yet may be as long as any of late. */
static uint64_t pause_before(const struct lease_gpu *g, const struct lease_client *c)
{
	uint64_t overrun = c->stat.leases ? c->overrun : lease_overran(g, g->at);
	uint64_t waited = c->state == STATE_REST ? lease_ahead(g->at, c->wait_from) : 0;

	if (overrun <= LEASE_LATE_NS)
		return 0;
	return lease_ahead(overrun, waited / PAUSE_FADES) / PAUSE_PART;
}

static void look_excess(struct look *l, struct lease_seat *s)
{
	uint64_t pause = l->rested ? pause_before(l->g, s->client) : 0;
	uint64_t left = lease_ahead(l->rested + pause, l->g->at);

	if (left)
		l->wait = MIN(l->wait, left);
	else
		look_turn(s, &l->excess);
}

static bool pool_pays(const struct lease_gpu *g)
{
	return g->setting.mode == COMPUTE_STRICT || lease_squeezed(g);
}

/* The pool competes as one client whose turn its least served member takes. */
static void look_pool(struct look *l)
{
	const struct lease_gpu *g = l->g;
	uint32_t rate = lease_pool_rate(g);
	int64_t quantum = (int64_t)(turn_length(g, rate, g->pool_active) * LEASE_PPM);
	int64_t key = deadline(quantum, g->pool, rate);

	if (!l->pool || !pool_pays(g))
		return;
	if (g->pool < 0)
		l->wait = MIN(l->wait, quotient_up(-g->pool, rate));
	else if (rate < LEASE_PPM && rest_credit(l->plan_time, g->pool, rate) < l->crumb_max)
		l->wait = MIN(l->wait, l->plan_left);
	else if (sooner(l->pool, key, l->share, l->share_key))
		l->share = l->pool;
}

static bool candidate(const struct lease_table *t, const struct lease_client *c,
		      const struct lease_client *holder, bool singles)
{
	if (!c->wants || (c->state != STATE_REST && c != holder) || c->skipped == t->round)
		return false;
	return !singles || !lease_is_gang(t, c) || c == holder;
}

static bool goes_before(const struct lease_client *a, const struct lease_client *b)
{
	return a->fraction != b->fraction ? a->fraction > b->fraction : a->id < b->id;
}

/* Among those that are due at about the same time as the first one, always the same goes first. */
static void look_same(struct look *l)
{
	if (!l->share || l->share_key == INT64_MIN)
		return;
	int64_t last = l->share_key + same_moment(l->g);
	for (uint32_t i = 0; i < l->g->count; i++) {
		struct lease_seat *s = l->g->seats[i];

		if (s->key <= last && goes_before(s->client, l->share->client))
			l->share = s;
	}
}

static void look_all(struct look *l, const struct lease_table *t, const struct lease_client *holder,
		     bool singles)
{
	bool fair = l->g->setting.mode == COMPUTE_FAIR;

	*l = (struct look){.g = l->g,
			   .wait = UINT64_MAX,
			   .plan_left = plan_left(l->g),
			   .plan_time = plan_time(l->g),
			   .crumb_max = (int64_t)(lease_useful(l->g) / 2 * LEASE_PPM)};
	for (uint32_t i = 0; fair && i < l->g->count; i++)
		look_asleep(l, l->g->seats[i]);
	for (uint32_t i = 0; i < l->g->count; i++) {
		struct lease_seat *s = l->g->seats[i];

		s->key = INT64_MAX;
		if (!candidate(t, s->client, holder, singles))
			continue;
		if (s->client->fraction)
			look_share(l, s);
		else
			look_turn(s, &l->pool);
		if (fair)
			look_excess(l, s);
	}
	look_same(l);
	look_pool(l);
}

static struct lease_choice pool_terms(const struct lease_gpu *g, struct lease_seat *s)
{
	uint32_t rate = lease_pool_rate(g);
	uint64_t length = turn_length(g, rate, g->pool_active);

	if (rate < LEASE_PPM)
		length = share_length(g, plan_rest(g, g->pool, rate), length);
	return (struct lease_choice){s, ACCOUNT_POOL, length, 0};
}

static struct lease_choice saved_terms(const struct lease_gpu *g, struct lease_seat *s)
{
	uint64_t length = share_length(g, (uint64_t)s->saved / LEASE_PPM, lease_turn(g));

	return (struct lease_choice){s, ACCOUNT_SAVED, length, 0};
}

static struct lease_choice excess_terms(struct lease_gpu *g, struct lease_seat *s)
{
	g->excess = MAX(g->excess, s->excess);
	return (struct lease_choice){s, ACCOUNT_EXCESS, turn_length(g, LEASE_PPM, g->active), 0};
}

static struct lease_choice share_terms(const struct lease_gpu *g, struct lease_seat *s)
{
	uint64_t rest = plan_rest(g, lease_credit(g, s), lease_seat_rate(g, s));
	uint64_t length = share_length(g, rest, lease_turn(g));

	return (struct lease_choice){s, ACCOUNT_SHARE, MIN(length, lease_young(g, s)), 0};
}

struct lease_choice lease_terms(struct lease_gpu *g, struct lease_seat *s)
{
	bool fair = g->setting.mode == COMPUTE_FAIR;

	if (!s->client->fraction)
		return pool_pays(g) && (!fair || g->pool >= 0) ? pool_terms(g, s)
							       : excess_terms(g, s);
	if (is_due(g, s))
		return share_terms(g, s);
	if (fair)
		return excess_terms(g, s);
	return s->saved > 0 ? saved_terms(g, s) : share_terms(g, s);
}

static struct lease_choice share_choice(struct lease_gpu *g, struct lease_seat *s)
{
	if (s->client->fraction)
		return share_terms(g, s);
	g->excess = MAX(g->excess, s->excess);
	return pool_terms(g, s);
}

struct lease_choice lease_pick(struct lease_table *t, struct lease_gpu *g,
			       const struct lease_client *holder, bool singles)
{
	struct look l = {.g = g};

	look_all(&l, t, holder, singles);
	if (!l.share && g->stalled && l.wait != UINT64_MAX) {
		uint64_t ns = MIN(g->stalled, l.wait);

		/* Time to spare: the clocks catch up with what they stood still for. */
		g->stalled -= ns;
		lease_advance(g, ns);
		look_all(&l, t, holder, singles);
	}
	if (l.share)
		return share_choice(g, l.share);
	if (l.saved)
		return saved_terms(g, l.saved);
	if (l.excess)
		return excess_terms(g, l.excess);
	/* A crumb of a share, and long until the next plan: more of it would be lost by waiting. */
	if (l.crumb)
		return share_terms(g, l.crumb);
	return (struct lease_choice){.wait = l.wait};
}

bool lease_all_free(struct lease_table *t, const struct lease_client *c)
{
	struct lease_gpu *g;

	lease_each_gpu(t, lease_gpus(t, c),
		       g) if (g->holders || (g->reserved && g->reserved != c)) return false;
	return true;
}

static struct lease_client *open_holder(const struct lease_gpu *g)
{
	return g->holders == 1 && g->holder->state == STATE_OPEN ? g->holder : NULL;
}

/* Whether it is the gang's turn on its other GPUs too: it gets no more than the least that they
 * owe it. */
static bool gang_due(struct lease_table *t, struct lease_client *c, const struct lease_gpu *here,
		     uint64_t now)
{
	struct lease_gpu *g;

	lease_each_gpu(t, lease_gpus(t, c), g)
	{
		struct lease_seat *s = lease_seat(c, g->index);

		if (g == here)
			continue;
		lease_sync(t, g, now);
		if (c->fraction && lease_credit(g, s) >= 0)
			continue;
		if (lease_pick(t, g, open_holder(g), false).seat != s)
			return false;
	}
	return true;
}

/* Singles that fit the gaps would keep a gang out for ever. So after a few times its GPUs are kept
 * for it as they become free, all or none: two gangs can't wait for each other. */
static bool gang_reserve(struct lease_table *t, struct lease_client *c)
{
	struct lease_gpu *g;

	if (++c->passed < LEASE_PASSED_MAX)
		return false;
	lease_each_gpu(t, lease_gpus(t, c), g) if (g->reserved && g->reserved != c) return false;
	lease_each_gpu(t, lease_gpus(t, c), g)
	{
		g->reserved = c;
		g->dirty = true;
	}
	return true;
}

bool lease_others_free(struct lease_table *t, const struct lease_client *c,
		       const struct lease_gpu *here)
{
	struct lease_gpu *g;

	lease_each_gpu(t, lease_gpus(t, c),
		       g) if (g != here &&
			      (g->holders || (g->reserved && g->reserved != c))) return false;
	return true;
}

struct lease_choice lease_choose(struct lease_table *t, struct lease_gpu *g,
				 const struct lease_client *holder, uint64_t now)
{
	t->round++;
	for (uint32_t gangs = 0;; gangs++) {
		struct lease_choice found = lease_pick(t, g, holder, gangs >= LEASE_GANGS_MAX);
		struct lease_client *c = found.seat ? found.seat->client : NULL;

		if (!c || c == holder || !lease_is_gang(t, c))
			return found;
		if (gang_due(t, c, g, now) && (lease_others_free(t, c, g) || gang_reserve(t, c)))
			return found;
		c->skipped = t->round;
	}
}
