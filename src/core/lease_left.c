#include "core/lease_left.h"

#include <errno.h>
#include <stdbool.h>

#include "base/macros.h"
#include "core/lease_table.h"

#define LEFT_VERSION 1
/* Longer than that nobody is between two programs: other numbers are nonsense. */
#define GAP_MAX_NS (60ull * 1000000000)
/* The longest that a holder has the GPU for itself meanwhile: then waiters open their gates. */
#define HELD_MAX_NS 1500000000ull

/* Goes through the numbers of a list in one order, writing or reading them. */
struct list {
	int64_t *out;
	const int64_t *in;
	size_t count, at;
};

static void number(struct list *l, uint64_t *value)
{
	if (l->out && l->at < LEASE_LEFT_MAX)
		l->out[l->at] = (int64_t)*value;
	else if (!l->out && l->at < l->count)
		*value = (uint64_t)l->in[l->at];
	l->at++;
}

static void number_signed(struct list *l, int64_t *value)
{
	uint64_t same = (uint64_t)*value;

	number(l, &same);
	*value = (int64_t)same;
}

/* A list of another version, or of another kind, is one of another length or beginning. */
static bool head(struct list *l, uint64_t kind)
{
	uint64_t version = LEFT_VERSION, is = kind;

	number(l, &version);
	number(l, &is);
	return version == LEFT_VERSION && is == kind;
}

/* ---- GPUs -------------------------------------------------------------------------------- */

#define KIND_GPU 1
#define KIND_CLIENT 2
#define DEBT_NUMBERS 5
/* More than a debt can be: numbers beyond it would overflow. */
#define AHEAD_MAX_NS (24ull * 3600 * 1000000000)

static bool gpu_list(struct list *l, int64_t *pool, uint64_t *excess, uint64_t *into_plan)
{
	bool right = head(l, KIND_GPU);

	number_signed(l, pool);
	number(l, excess);
	number(l, into_plan);
	return right;
}

/* As far as they go beyond the clocks, which begin anew. */
static void debt_list(struct list *l, struct lease_debt *d)
{
	uint64_t rate = d->rate, count = d->count;

	number(l, &d->owner);
	number(l, &d->until);
	number(l, &rate);
	number(l, &d->excess);
	number(l, &count);
	d->rate = (uint32_t)MIN(rate, UINT32_MAX);
	d->count = (uint32_t)MIN(count, UINT32_MAX);
}

static void debts_leave(const struct lease_gpu *g, struct list *l)
{
	for (uint32_t i = 0; i < LEASE_DEBTS; i++) {
		struct lease_debt d = g->debt[i];

		d.until = lease_ahead(d.until, g->share_clock);
		d.excess = lease_ahead(d.excess, g->excess);
		debt_list(l, &d);
	}
}

static void debts_take_up(struct lease_gpu *g, struct list *l)
{
	while (l->at + DEBT_NUMBERS <= l->count) {
		struct lease_debt d = {0};

		debt_list(l, &d);
		d.until = g->share_clock + MIN(d.until, AHEAD_MAX_NS);
		d.excess = g->excess + MIN(d.excess, AHEAD_MAX_NS);
		lease_debt_add(g, &d);
	}
}

size_t lease_gpu_leave(struct lease_table *t, uint32_t gpu, uint64_t now,
		       int64_t numbers[static LEASE_LEFT_MAX])
{
	struct lease_gpu *g = &t->gpu[gpu];
	struct list l = {.out = numbers};

	lease_sync(t, g, now);
	uint64_t into_plan = (g->time - g->plan_base) % g->plan;
	(void)gpu_list(&l, &g->pool, &g->excess, &into_plan);
	debts_leave(g, &l);
	return l.at;
}

int lease_gpu_take_up(struct lease_table *t, uint32_t gpu, const int64_t *numbers, size_t count,
		      uint64_t now)
{
	struct lease_gpu *g = &t->gpu[gpu];
	struct list l = {.in = numbers, .count = count};
	int64_t pool = 0;
	uint64_t excess = 0, into_plan = 0;

	/* Versions before this one left no debts. */
	if (!gpu_list(&l, &pool, &excess, &into_plan) || l.at > count ||
	    (count - l.at) % DEBT_NUMBERS || g->count)
		return -EINVAL;
	lease_settle(g, now);
	/* Within what a plan is worth: the rest follows as the clocks go on. */
	g->pool = MIN(MAX(pool, -(int64_t)(g->plan * LEASE_PPM)), (int64_t)(g->plan * LEASE_PPM));
	g->excess = excess;
	g->plan_base = g->time - into_plan % g->plan;
	debts_take_up(g, &l);
	return 0;
}

/* ---- clients ----------------------------------------------------------------------------- */

static void stat_list(struct list *l, struct lease_client_stat *stat)
{
	number(l, &stat->held_ns);
	number(l, &stat->overrun_ns);
	number(l, &stat->waited_ns);
	number(l, &stat->waited_longest_ns);
	number(l, &stat->waits);
	number(l, &stat->leases);
	number(l, &stat->preempted);
}

static void history_list(struct list *l, struct lease_history *h)
{
	number(l, &h->came);
	for (size_t i = 0; i < ARRAY_SIZE(h->second); i++)
		number(l, &h->second[i]);
	number(l, &h->second_now);
	number(l, &h->plan_from);
	number(l, &h->plan_ns);
	number(l, &h->plan_now);
	number(l, &h->plan_held);
	number(l, &h->plan_last);
}

struct left {
	uint64_t at, held, gpus;
	struct lease_client_stat stat;
	struct lease_history history;
};

static bool client_list(struct list *l, struct left *left)
{
	bool right = head(l, KIND_CLIENT);

	number(l, &left->at);
	number(l, &left->held);
	number(l, &left->gpus);
	stat_list(l, &left->stat);
	history_list(l, &left->history);
	return right;
}

static void seat_list(struct list *l, struct lease_seat *s)
{
	number_signed(l, &s->credit);
	number_signed(l, &s->saved);
	number(l, &s->excess);
}

size_t lease_client_leave(struct lease_table *t, uint64_t id, uint64_t now,
			  int64_t numbers[static LEASE_LEFT_MAX])
{
	struct lease_client *c = lease_find(t, id);
	struct list l = {.out = numbers};
	struct lease_gpu *g;

	if (!c)
		return 0;
	lease_charge(t, c, now);
	lease_each_gpu(t, c->gpus, g) lease_settle(g, now);
	struct left left = {.at = now,
			    .held = c->state == STATE_OPEN || c->state == STATE_CLOSING,
			    .gpus = c->seat_count,
			    .history = c->history};
	(void)lease_client_stat(t, id, now, &left.stat);
	(void)client_list(&l, &left);
	for (uint32_t i = 0; i < c->seat_count; i++) {
		lease_seat_fold(&t->gpu[c->seat[i].gpu], &c->seat[i]);
		seat_list(&l, &c->seat[i]);
	}
	return MIN(l.at, (size_t)LEASE_LEFT_MAX);
}

uint64_t lease_client_left_at(const int64_t *numbers, size_t count)
{
	struct list l = {.in = numbers, .count = count};
	struct left left = {0};

	return client_list(&l, &left) && l.at <= count ? left.at : 0;
}

/* It has gone on meanwhile, and so have its claims. */
static void seat_catch_up(struct lease_gpu *g, struct lease_seat *s, uint64_t gap, uint64_t held)
{
	int64_t quantum = lease_quantum(g, s), most = (int64_t)(3600ull * 1000000000 * LEASE_PPM);

	s->credit = MIN(MAX(s->credit, -most), quantum);
	s->saved = MIN(MAX(s->saved, 0), lease_saved_max(g, s));
	s->excess = MIN(s->excess, g->excess + g->plan);
	s->mark = g->share_clock;
	s->credit += (int64_t)(gap * s->client->fraction);
	if (s->client->fraction)
		s->credit -= (int64_t)(held * LEASE_PPM);
	else
		s->excess += held;
}

/* Numbers of what another program wrote: none of them is an index. */
static void history_take_up(struct lease_history *to, const struct lease_history *from,
			    uint64_t now)
{
	if (from->came > now || from->second_now > now / 1000000000)
		return;
	to->came = from->came;
	to->second_now = from->second_now;
	for (size_t i = 0; i < ARRAY_SIZE(to->second); i++)
		to->second[i] = from->second[i];
	if (from->plan_ns != to->plan_ns || from->plan_from > now)
		return;
	to->plan_from = from->plan_from;
	to->plan_now = from->plan_now;
	to->plan_held = from->plan_held;
	to->plan_last = from->plan_last;
}

int lease_client_take_up(struct lease_table *t, uint64_t id, const int64_t *numbers, size_t count,
			 uint64_t now)
{
	struct lease_client *c = lease_find(t, id);
	struct list l = {.in = numbers, .count = count};
	struct left left = {0};

	if (!c || !client_list(&l, &left) || left.gpus != c->seat_count || left.at > now ||
	    now - left.at > GAP_MAX_NS || count != l.at + (size_t)3 * c->seat_count)
		return -EINVAL;
	c->stat = left.stat;
	uint64_t held = left.held ? MIN(now - left.at, HELD_MAX_NS) : 0;
	c->stat.held_ns += held;
	history_take_up(&c->history, &left.history, now);
	if (left.held)
		lease_history_add(&c->history, left.at, left.at + held);
	for (uint32_t i = 0; i < c->seat_count; i++) {
		struct lease_gpu *g = &t->gpu[c->seat[i].gpu];

		lease_settle(g, now);
		/* The debt that it took over as it was added was somebody else's to take. */
		lease_debt_leave(g, &c->seat[i]);
		seat_list(&l, &c->seat[i]);
		seat_catch_up(g, &c->seat[i], now - left.at, held);
		g->dirty = true;
	}
	return 0;
}
