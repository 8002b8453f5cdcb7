#include "core/lease.h"

#include <errno.h>
#include <stdlib.h>

#include "base/macros.h"
#include "core/lease_table.h"

uint64_t lease_plan_ns(const struct lease_setting *setting)
{
	return setting->lease_ns * LEASE_PPM / setting->granularity_ppm;
}

struct lease_table *lease_table_new(void)
{
	struct lease_table *t = calloc(1, sizeof(*t));

	for (uint32_t i = 0; t && i < LEASE_GPUS_MAX; i++) {
		t->gpu[i].index = i;
		t->gpu[i].due = UINT64_MAX;
		t->gpu[i].setting = (struct lease_setting){COMPUTE_OFF, LEASE_NS_DEFAULT,
							   LEASE_GRANULARITY_DEFAULT};
		t->gpu[i].plan = lease_plan_ns(&t->gpu[i].setting);
	}
	return t;
}

void lease_table_free(struct lease_table *t)
{
	for (uint32_t i = 0; t && i < LEASE_BUCKETS; i++)
		for (struct lease_client *c = t->bucket[i], *next; c; c = next) {
			next = c->next;
			free(c);
		}
	for (uint32_t i = 0; t && i < LEASE_GPUS_MAX; i++) {
		free(t->gpu[i].seats);
		free(t->gpu[i].outside);
	}
	free(t);
}

static struct lease_client **slot(struct lease_table *t, uint64_t id)
{
	struct lease_client **p = &t->bucket[lease_bucket(id)];

	while (*p && (*p)->id != id)
		p = &(*p)->next;
	return p;
}

/* ---- changes of the sums that a GPU keeps of its clients ---- */

struct activity {
	bool active, wants;
};

static struct activity activity_of(const struct lease_client *c)
{
	return (struct activity){lease_active(c), c->wants};
}

static void count(uint32_t *n, bool before, bool after, uint32_t step)
{
	*n += (after ? step : 0) - (before ? step : 0);
}

/* To be called on settled GPUs, after the client changed. */
static void activity_changed(struct lease_gpu *g, struct lease_client *c, struct activity was,
			     uint64_t now)
{
	struct activity is = activity_of(c);

	if (was.active && !is.active)
		lease_seat(c, g->index)->rested = now;
	if (g->active > 1 && was.active && !is.active)
		g->rival_until = now + LEASE_LATELY_NS;
	count(&g->active, was.active, is.active, 1);
	count(&g->wanting, was.wants, is.wants, 1);
	count(&g->promised_active, was.active, is.active, c->fraction);
	count(&g->pool_active, was.active && !c->fraction, is.active && !c->fraction, 1);
	g->dirty = true;
}

static void client_settle(struct lease_table *t, struct lease_client *c, uint64_t now)
{
	struct lease_gpu *g;

	lease_each_gpu(t, c->gpus, g) lease_settle(g, now);
}

/* Separates what it earned so far from what it earns from now on. */
static void seats_fold(struct lease_table *t, struct lease_client *c)
{
	struct lease_gpu *g;

	lease_each_gpu(t, c->gpus, g) lease_seat_fold(g, lease_seat(c, g->index));
}

static void client_changed(struct lease_table *t, struct lease_client *c, struct activity was,
			   uint64_t now)
{
	struct lease_gpu *g;

	lease_each_gpu(t, c->gpus, g) activity_changed(g, c, was, now);
}

static void unreserve(struct lease_table *t, struct lease_client *c)
{
	struct lease_gpu *g;

	lease_each_gpu(t, c->gpus, g) if (g->reserved == c)
	{
		g->reserved = NULL;
		g->dirty = true;
	}
}

/* ---- a lease's life ---- */

/* Adds the GPUs of `mask` to what it holds. */
static void hold(struct lease_table *t, struct lease_client *c, uint64_t mask)
{
	struct lease_gpu *g;

	lease_each_gpu(t, mask & ~c->covers, g)
	{
		struct lease_seat *s = lease_seat(c, g->index);

		s->account = lease_terms(g, s).account;
		lease_seat_fold(g, s);
		if (!g->holders++)
			g->holder = c;
		g->opening += c->state == STATE_GRANTED;
		g->waker = NULL;
		g->dirty = true;
	}
	c->covers |= mask;
}

static struct lease_client *any_holder(const struct lease_gpu *g)
{
	for (uint32_t i = 0; i < g->count; i++)
		if (g->seats[i]->client->covers >> g->index & 1)
			return g->seats[i]->client;
	return NULL;
}

/* A gang that it is kept for may be able to begin, if who fills one of its other GPUs ends. */
static void fillers_look(struct lease_table *t, const struct lease_gpu *freed)
{
	struct lease_gpu *g;

	if (freed->reserved)
		lease_each_gpu(t, lease_gpus(t, freed->reserved), g) g->dirty = true;
}

static void let_go(struct lease_table *t, struct lease_client *c, uint64_t mask)
{
	struct lease_gpu *g;

	mask &= c->covers;
	c->covers &= ~mask;
	lease_each_gpu(t, mask, g)
	{
		g->opening -= c->state == STATE_GRANTED;
		g->holders--;
		g->holder = g->holders ? any_holder(g) : NULL;
		g->dirty = true;
		fillers_look(t, g);
	}
}

static void wait_begin(struct lease_client *c, uint64_t now)
{
	c->wait_from = now;
	c->stat.waits++;
}

static void wait_end(struct lease_client *c, uint64_t now)
{
	uint64_t ns = now - c->wait_from;

	c->stat.waited_ns += ns;
	c->stat.waited_longest_ns = MAX(c->stat.waited_longest_ns, ns);
}

/* Everything it held is free; charged before. */
static void rest(struct lease_table *t, struct lease_client *c, uint64_t now)
{
	struct activity was = activity_of(c);

	let_go(t, c, c->covers);
	c->state = STATE_REST;
	c->open_ended = false;
	if (!c->wants)
		seats_fold(t, c);
	client_changed(t, c, was, now);
}

void lease_opened(struct lease_table *t, uint64_t id, uint64_t now)
{
	struct lease_client *c = lease_find(t, id);
	struct lease_gpu *g;

	if (!c || c->state == STATE_OPEN || c->state == STATE_CLOSING || !lease_gpus(t, c))
		return;
	struct activity was = activity_of(c);
	client_settle(t, c, now);
	if (c->wants)
		wait_end(c, now);
	if (c->state == STATE_REST) {
		c->length = 0;
		c->open_ended = false;
		c->contended = true;
		hold(t, c, lease_gpus(t, c));
	} else {
		lease_each_gpu(t, c->covers, g) g->opening--;
	}
	c->state = STATE_OPEN;
	c->opened = c->charged = now;
	c->until = c->open_ended ? UINT64_MAX : now + c->length;
	c->stat.leases++;
	client_changed(t, c, was, now);
}

static void overran(struct lease_table *t, struct lease_client *c, uint64_t ns)
{
	struct lease_gpu *g;

	lease_each_gpu(t, c->covers, g) lease_overrun_note(g, ns);
	c->stat.overrun_ns += ns;
	c->overrun = c->overrun / 4 * 3 + ns / 4;
}

/* A single client that waits on a fair GPU from now on may be worth ending somebody's lease. */
static void waker_note(struct lease_table *t, struct lease_gpu *g, struct lease_seat *s)
{
	if (g->setting.mode == COMPUTE_FAIR && !lease_is_gang(t, s->client) &&
	    (!g->waker || !g->waker->client->wants))
		g->waker = s;
}

/* The rest of a burst, left over by a turn that was cut short, is no more than that, and waits as
 * one that wakes up does. */
static void burst_end(struct lease_table *t, struct lease_client *c, uint64_t ns)
{
	struct lease_gpu *g;

	if (!c->wants)
		c->burst = lease_is_gang(t, c) ? 0 : MIN(ns, LEASE_NS_MAX);
	else if (ns >= 2 * c->burst)
		c->burst = 0;
	else
		lease_each_gpu(t, lease_gpus(t, c), g) waker_note(t, g, lease_seat(c, g->index));
}

void lease_closed(struct lease_table *t, uint64_t id, uint64_t now)
{
	struct lease_client *c = lease_find(t, id);

	if (!c || c->state == STATE_REST)
		return;
	bool had = c->state != STATE_GRANTED;
	client_settle(t, c, now);
	if (had) {
		lease_charge(t, c, now);
		overran(t, c, now > c->until ? now - c->until : 0);
		if (c->wants)
			wait_begin(c, now);
	}
	rest(t, c, now);
	if (had)
		burst_end(t, c, now - c->opened);
}

void lease_leaked(struct lease_table *t, uint64_t id, uint64_t ns, uint64_t now)
{
	struct lease_client *c = lease_find(t, id);
	struct lease_gpu *g;

	if (!c)
		return;
	lease_charge(t, c, now);
	lease_each_gpu(t, lease_gpus(t, c), g)
	{
		lease_settle(g, now);
		lease_charge_leak(g, lease_seat(c, g->index), ns);
		g->dirty = true;
	}
	c->stat.overrun_ns += ns;
}

/* ---- clients ---- */

static int seat_take(struct lease_gpu *g, struct lease_seat *s)
{
	if (g->count == g->room) {
		uint32_t room = g->room ? 2 * g->room : 8;
		struct lease_seat **seats = realloc(g->seats, room * sizeof(struct lease_seat *));

		if (!seats)
			return -ENOMEM;
		g->seats = seats;
		g->room = room;
	}
	s->gpu = g->index;
	s->index = g->count;
	s->mark = g->share_clock;
	s->since = g->time;
	s->excess = g->excess;
	s->excess_aside = g->excess_aside;
	g->seats[g->count++] = s;
	g->promised += s->client->fraction;
	g->dirty = true;
	lease_debt_take(g, s);
	return 0;
}

static void seat_leave(struct lease_gpu *g, struct lease_seat *s)
{
	struct lease_seat *last = g->seats[--g->count];

	lease_debt_leave(g, s);
	lease_meter_leave(g, s);
	g->seats[s->index] = last;
	last->index = s->index;
	g->promised -= s->client->fraction;
	if (g->waker == s)
		g->waker = NULL;
	g->dirty = true;
}

int lease_client_add(struct lease_table *t, uint64_t id, uint64_t owner, uint64_t gpus,
		     uint32_t fraction_ppm, uint64_t now)
{
	uint32_t seats = (uint32_t)__builtin_popcountll(gpus), i = 0;
	struct lease_client **p = slot(t, id);
	struct lease_gpu *g;

	if (!gpus || fraction_ppm > LEASE_PPM)
		return -EINVAL;
	if (*p)
		return -EEXIST;
	struct lease_client *c = calloc(1, sizeof(*c) + seats * sizeof(struct lease_seat));
	if (!c)
		return -ENOMEM;
	*c = (struct lease_client){
		.id = id, .owner = owner, .gpus = gpus, .fraction = fraction_ppm};
	c->seat_count = seats;
	lease_each_gpu(t, gpus, g)
	{
		lease_settle(g, now);
		c->seat[i].client = c;
		if (seat_take(g, &c->seat[i]) < 0)
			break;
		i++;
	}
	if (i < seats) {
		while (i-- > 0)
			seat_leave(&t->gpu[c->seat[i].gpu], &c->seat[i]);
		free(c);
		return -ENOMEM;
	}
	lease_history_begin(t, c, now);
	*p = c;
	return 0;
}

/* Its terms are to be made anew. */
static void open_end_close(struct lease_client *c, uint64_t now)
{
	if (c->open_ended && c->state == STATE_OPEN)
		c->until = now;
	c->open_ended = false;
}

void lease_client_share(struct lease_table *t, uint64_t id, uint32_t fraction_ppm, uint64_t now)
{
	struct lease_client *c = lease_find(t, id);
	uint32_t before = c ? c->fraction : 0;
	struct lease_gpu *g;

	fraction_ppm = MIN(fraction_ppm, LEASE_PPM);
	if (!c || before == fraction_ppm)
		return;
	struct activity was = activity_of(c), none = {0};
	client_settle(t, c, now);
	lease_charge(t, c, now);
	lease_each_gpu(t, c->gpus, g)
	{
		struct lease_seat *s = lease_seat(c, g->index);

		lease_seat_fold(g, s);
		g->promised += fraction_ppm - before;
		count(&g->promised_active, was.active, false, before);
		count(&g->pool_active, was.active && !before, false, 1);
		count(&g->active, was.active, false, 1);
		count(&g->wanting, was.wants, false, 1);
		c->fraction = fraction_ppm;
		activity_changed(g, c, none, now);
		/* From or to a share in the pool: no account has what the other was owed. */
		if (!before || !fraction_ppm)
			s->credit = s->saved = 0;
		lease_seat_clamp(g, s);
		s->account = lease_terms(g, s).account;
		c->fraction = before;
	}
	c->fraction = fraction_ppm;
	open_end_close(c, now);
}

void lease_client_remove(struct lease_table *t, uint64_t id, uint64_t now)
{
	struct lease_client **p = slot(t, id), *c = *p;
	struct lease_gpu *g;

	if (!c)
		return;
	client_settle(t, c, now);
	lease_charge(t, c, now);
	struct activity was = activity_of(c);
	let_go(t, c, c->covers);
	c->state = STATE_REST;
	c->wants = false;
	client_changed(t, c, was, now);
	unreserve(t, c);
	lease_each_gpu(t, c->gpus, g) seat_leave(g, lease_seat(c, g->index));
	*p = c->next;
	free(c);
}

static void wake(struct lease_table *t, struct lease_client *c, uint64_t now)
{
	struct lease_gpu *g;

	lease_each_gpu(t, lease_gpus(t, c), g)
	{
		struct lease_seat *s = lease_seat(c, g->index);

		/* A lone holder sets the excess clock, so it's charged first. */
		lease_sync(t, g, now);
		lease_seat_wake(g, s);
		waker_note(t, g, s);
	}
}

static void wants_set(struct lease_table *t, struct lease_client *c, bool wants, uint64_t now)
{
	if (c->wants == wants)
		return;
	struct activity was = activity_of(c);

	client_settle(t, c, now);
	if (wants && c->state == STATE_REST)
		wake(t, c, now);
	c->wants = wants;
	bool waits = c->state == STATE_REST || c->state == STATE_GRANTED;
	if (waits && wants)
		wait_begin(c, now);
	else if (waits)
		wait_end(c, now);
	if (!was.active || !lease_active(c))
		seats_fold(t, c);
	client_changed(t, c, was, now);
	if (!wants)
		unreserve(t, c);
}

void lease_wants(struct lease_table *t, uint64_t id, bool wants, uint64_t now)
{
	struct lease_client *c = lease_find(t, id);

	if (!c)
		return;
	c->asks = wants;
	wants_set(t, c, wants && !c->barred, now);
}

void lease_client_bar(struct lease_table *t, uint64_t id, bool barred, uint64_t now)
{
	struct lease_client *c = lease_find(t, id);

	if (!c || c->barred == barred)
		return;
	c->barred = barred;
	wants_set(t, c, c->asks && !barred, now);
}

/* ---- settings ---- */

/* On a GPU whose mode was off its clients ran as they liked; those that hold a lease now (of other
 * GPUs) hold this one with it. */
static void gpu_on(struct lease_table *t, struct lease_gpu *g)
{
	g->stalled = 0;
	g->pool = 0;
	lease_debts_forget(g);
	t->sliced |= 1ull << g->index;
	for (uint32_t i = 0; i < g->count; i++) {
		struct lease_seat *s = g->seats[i];

		s->credit = s->saved = 0;
		s->mark = g->share_clock;
		s->excess = g->excess;
		s->excess_aside = g->excess_aside;
		if (s->client->state != STATE_REST)
			hold(t, s->client, 1ull << g->index);
	}
}

static void gpu_off(struct lease_table *t, struct lease_gpu *g, uint64_t now)
{
	t->sliced &= ~(1ull << g->index);
	for (uint32_t i = 0; i < g->count; i++) {
		struct lease_client *c = g->seats[i]->client;

		unreserve(t, c);
		/* It may be due on its other GPUs now, which waited for this one. */
		for (uint64_t gpus = c->gpus; gpus; gpus &= gpus - 1)
			t->gpu[__builtin_ctzll(gpus)].dirty = true;
		if (!(c->covers >> g->index & 1))
			continue;
		lease_charge(t, c, now);
		let_go(t, c, 1ull << g->index);
		if (!c->covers)
			rest(t, c, now);
	}
}

/* Fair to strict, or back. Clients that take turns at the time that is left over are another circle
 * then. So each mode has a clock for that, which stands still in the other mode. The credit that a
 * client had in one mode means nothing in the other. A client that slept has no more to come than
 * one that wakes up. */
static void gpu_turn(struct lease_gpu *g)
{
	uint64_t came = g->excess_aside;

	lease_debts_turn(g, came);
	g->excess_aside = g->excess;
	g->excess = came;
	for (uint32_t i = 0; i < g->count; i++) {
		struct lease_seat *s = g->seats[i];
		uint64_t excess = s->excess_aside;

		s->excess_aside = s->excess;
		s->excess = excess;
		lease_seat_level(g, s);
	}
}

static void gpu_rescale(struct lease_gpu *g, uint64_t now)
{
	for (uint32_t i = 0; i < g->count; i++) {
		struct lease_seat *s = g->seats[i];

		/* Its credit for waiting stays, though turns are shorter now. */
		if (lease_active(s->client))
			lease_seat_fold(g, s);
		else
			lease_seat_clamp(g, s);
		s->saved = MIN(s->saved, lease_saved_max(g, s));
		if (s->client->covers >> g->index & 1)
			s->account = lease_terms(g, s).account;
		open_end_close(s->client, now);
	}
}

void lease_set(struct lease_table *t, uint32_t gpu, const struct lease_setting *setting,
	       uint64_t now)
{
	struct lease_gpu *g = &t->gpu[gpu];
	enum compute_mode before = g->setting.mode;
	struct lease_setting next = *setting;

	next.lease_ns = MIN(MAX(next.lease_ns, LEASE_NS_MIN), LEASE_NS_MAX);
	next.granularity_ppm =
		MIN(MAX(next.granularity_ppm, LEASE_GRANULARITY_MIN), LEASE_GRANULARITY_MAX);
	lease_settle(g, now);
	for (uint32_t i = 0; i < g->count; i++)
		lease_charge(t, g->seats[i]->client, now);
	if (before != COMPUTE_OFF && next.mode == COMPUTE_OFF)
		gpu_off(t, g, now);
	g->setting = next;
	g->plan = lease_plan_ns(&next);
	g->plan_base = g->time;
	if (before == COMPUTE_OFF && next.mode != COMPUTE_OFF)
		gpu_on(t, g);
	else if (before != next.mode && next.mode != COMPUTE_OFF)
		gpu_turn(g);
	lease_debts_clamp(g);
	if (next.mode != COMPUTE_OFF)
		gpu_rescale(g, now);
	for (uint32_t i = 0; i < g->count; i++)
		lease_history_begin(t, g->seats[i]->client, now);
	g->dirty = true;
}

const struct lease_setting *lease_get(const struct lease_table *t, uint32_t gpu)
{
	return &t->gpu[gpu].setting;
}

void lease_promise(struct lease_table *t, uint32_t gpu, uint32_t ppm, uint64_t now)
{
	struct lease_gpu *g = &t->gpu[gpu];

	if (g->granted == ppm)
		return;
	lease_sync(t, g, now);
	g->granted = ppm;
	g->dirty = true;
}
