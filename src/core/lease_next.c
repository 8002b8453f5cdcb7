/* The next step, now. */
#include "base/macros.h"
#include "core/lease_table.h"

static const struct lease_action nothing = {.kind = LEASE_NONE};

/* Others that want a GPU of it. */
static bool rivals(struct lease_table *t, const struct lease_client *c)
{
	struct lease_gpu *g;

	lease_each_gpu(t, lease_gpus(t, c), g) if (g->wanting > (c->wants ? 1 : 0)) return true;
	return false;
}

/* Its share ends before the GPU's time does. */
static bool limited(struct lease_table *t, const struct lease_client *c)
{
	struct lease_gpu *g;

	lease_each_gpu(t, lease_gpus(t, c), g)
	{
		uint32_t left =
			c->fraction ? c->fraction : LEASE_PPM - MIN(lease_promised(g), LEASE_PPM);

		if (g->setting.mode == COMPUTE_STRICT && left < LEASE_PPM)
			return true;
	}
	return false;
}

static uint64_t rival_until(struct lease_table *t, const struct lease_client *c)
{
	uint64_t until = 0;
	struct lease_gpu *g;

	lease_each_gpu(t, lease_gpus(t, c), g) until = MAX(until, g->rival_until);
	return until;
}

static bool contended(struct lease_table *t, const struct lease_client *c, uint64_t now)
{
	return rivals(t, c) || limited(t, c) || now < rival_until(t, c);
}

/* The longest recent overrun on its GPUs, on those of gangs that have some of them too, and so on.
 * The reason: a gang that waits for one GPU keeps the others waiting. */
static uint64_t gang_overran(struct lease_table *t, const struct lease_client *c, uint64_t now)
{
	uint64_t done = 0, longest = 0;

	for (uint64_t left = lease_gpus(t, c); left;) {
		struct lease_gpu *g = &t->gpu[__builtin_ctzll(left)];

		longest = MAX(longest, lease_overran(g, now));
		done |= 1ull << g->index;
		for (uint32_t i = 0; i < g->count; i++)
			left |= lease_gpus(t, g->seats[i]->client);
		left &= ~done;
	}
	return longest;
}

/* The most that a gang may be owed. Its wait for its other GPUs is no debt of this one. Else a gang
 * that can never have all that it asked for would be owed more and more, and go before everybody.
 * But a gang cannot begin while turns of others overrun, maybe twice in a row, and it has that time
 * later. */
static int64_t gang_credit_max(struct lease_table *t, struct lease_client *c, uint64_t now)
{
	int64_t turns = 0;
	struct lease_gpu *g;

	if (!lease_is_gang(t, c))
		return INT64_MAX;
	lease_each_gpu(t, lease_gpus(t, c), g) turns =
		MAX(turns, 2 * lease_quantum(g, lease_seat(c, g->index)));
	return turns + (int64_t)(2 * gang_overran(t, c, now) * c->fraction);
}

/* Decides what pays for its turn on each of its GPUs, and how long it is. */
static void terms_set(struct lease_table *t, struct lease_client *c,
		      const struct lease_choice *here, uint64_t now)
{
	int64_t most = gang_credit_max(t, c, now);
	struct lease_gpu *g;

	c->length = UINT64_MAX;
	c->open_ended = !rivals(t, c) && !limited(t, c);
	lease_each_gpu(t, lease_gpus(t, c), g)
	{
		struct lease_seat *s = lease_seat(c, g->index);
		struct lease_choice terms =
			here && here->seat->gpu == g->index ? *here : lease_terms(g, s);

		lease_seat_fold(g, s);
		s->credit = MIN(s->credit, most);
		s->account = terms.account;
		c->length = MIN(c->length, terms.length);
		if (c->open_ended)
			s->account = ACCOUNT_FLUID;
	}
}

static struct lease_action grant(struct lease_table *t, struct lease_client *c,
				 const struct lease_choice *here, uint64_t now)
{
	struct lease_gpu *g;

	lease_each_gpu(t, lease_gpus(t, c), g) lease_settle(g, now);
	terms_set(t, c, here, now);
	c->state = STATE_GRANTED;
	c->fills = false;
	c->passed = 0;
	c->contended = contended(t, c, now);
	c->covers = lease_gpus(t, c);
	lease_each_gpu(t, c->covers, g)
	{
		g->holders++;
		g->opening++;
		g->holder = c;
		if (g->waker && g->waker->client == c)
			g->waker = NULL;
		g->due = UINT64_MAX;
		if (g->reserved == c)
			g->reserved = NULL;
	}
	return (struct lease_action){LEASE_GRANT, c->id, c->contended,
				     c->open_ended ? UINT64_MAX : now + c->length};
}

static struct lease_action revoke(struct lease_client *c, bool early, uint64_t now)
{
	c->state = STATE_CLOSING;
	/* The time for which it runs on after it was told to end is overrun. */
	c->until = MIN(c->until, now);
	c->stat.preempted += early;
	return (struct lease_action){LEASE_REVOKE, c->id, true, now};
}

/* Until when it seems to hold its GPUs, with what its work takes beyond its lease. Work that has
 * gone on for longer than ever before may well do so for as long again. */
static uint64_t held_until(const struct lease_client *c, uint64_t now)
{
	if (c->state == STATE_CLOSING)
		return MAX(c->until + c->overrun,
			   now + MAX(c->overrun / 2, lease_ahead(now, c->until)));
	return c->state == STATE_OPEN && c->until != UINT64_MAX ? c->until + c->overrun : 0;
}

/* Several hold it where its mode was off until now. */
static uint64_t gpu_held_until(const struct lease_gpu *g, uint64_t now)
{
	uint64_t until = 0;

	for (uint32_t i = 0; g->holders && i < g->count; i++) {
		const struct lease_client *c = g->seats[i]->client;

		if (c->covers >> g->index & 1)
			until = MAX(until, held_until(c, now));
	}
	return until;
}

/* Until when the GPUs that a gang waits for are held. */
static uint64_t gang_start(struct lease_table *t, const struct lease_client *gang, uint64_t now)
{
	uint64_t until = 0;
	struct lease_gpu *g;

	lease_each_gpu(t, lease_gpus(t, gang), g) until = MAX(until, gpu_held_until(g, now));
	return until;
}

/* Clients that may have the GPU until then, and end about in time. */
static struct lease_choice fill_pick(struct lease_table *t, struct lease_gpu *g, uint64_t ns)
{
	t->round++;
	for (;;) {
		struct lease_choice found = lease_pick(t, g, NULL, true);

		if (!found.seat || found.seat->client->overrun <= ns / 2)
			return found;
		found.seat->client->skipped = t->round;
	}
}

/* Kept for a gang: a single one may have it for as long as the gang has to wait anyway, if it ends
 * in time, too. */
static struct lease_action step_reserved(struct lease_table *t, struct lease_gpu *g, uint64_t now)
{
	uint64_t start = gang_start(t, g->reserved, now);

	g->due = UINT64_MAX;
	if (lease_all_free(t, g->reserved))
		return grant(t, g->reserved, NULL, now);
	if (start < now + 2 * lease_useful(g)) {
		/* Unless what it waits for goes on. */
		g->due = now + 2 * lease_useful(g);
		return nothing;
	}
	struct lease_choice found = fill_pick(t, g, start - now);
	if (!found.seat) {
		g->due = now + MIN(found.wait, start - now);
		return nothing;
	}
	found.length = MIN(found.length, start - now);
	struct lease_client *c = found.seat->client;
	struct lease_action action = grant(t, c, &found, now);

	c->open_ended = false;
	c->fills = true;
	action.until = now + c->length;
	return action;
}

static struct lease_action step_free(struct lease_table *t, struct lease_gpu *g, uint64_t now)
{
	if (g->reserved)
		return step_reserved(t, g, now);
	struct lease_choice found = lease_choose(t, g, NULL, now);

	if (g->reserved)
		return step_reserved(t, g, now);
	if (found.seat)
		return grant(t, found.seat->client, &found, now);
	g->due = found.wait == UINT64_MAX ? UINT64_MAX : now + found.wait;
	return nothing;
}

/* Several hold it: its mode was off until now. All of them have to close. */
static struct lease_action step_crowd(struct lease_gpu *g, uint64_t now)
{
	g->due = UINT64_MAX;
	for (uint32_t i = 0; i < g->count; i++) {
		struct lease_client *c = g->seats[i]->client;

		if (c->covers >> g->index & 1 && c->state == STATE_OPEN)
			return revoke(c, false, now);
	}
	return nothing;
}

/* Whether its turn goes on: it would be chosen again on each of its GPUs. */
static bool turn_again(struct lease_table *t, struct lease_gpu *here, struct lease_client *c,
		       struct lease_choice *ret, uint64_t now)
{
	struct lease_gpu *g;

	lease_each_gpu(t, c->covers, g)
	{
		if (g->reserved && g->reserved != c)
			return false;
		struct lease_choice found = lease_choose(t, g, c, now);

		if (!found.seat || found.seat->client != c || (g->reserved && g->reserved != c))
			return false;
		if (g == here)
			*ret = found;
	}
	return true;
}

/* The end of its lease: another one, or REVOKE. True: it was extended. */
static bool extend(struct lease_table *t, struct lease_gpu *g, struct lease_client *c, uint64_t now)
{
	struct lease_choice found = {0};

	if (!turn_again(t, g, c, &found, now))
		return false;
	c->fills = false;
	c->stat.leases += c->length > 0; /* not where it took its idle gate back just now */
	terms_set(t, c, found.seat ? &found : NULL, now);
	c->until = c->open_ended ? UINT64_MAX : now + c->length;
	return true;
}

/* How long until a waker is owed what ends the holder's lease. That is half a lease of the waker's
 * guarantee, or all that its burst takes; or half a lease of equal shares where the holder lives on
 * excess. Less would make turns short for ever. A client that has had none of its guarantee yet
 * need not be owed anything: that is once. UINT64_MAX: it is not known. */
static uint64_t owed_after(const struct lease_gpu *g, const struct lease_seat *waker,
			   const struct lease_seat *holder)
{
	uint64_t half = g->setting.lease_ns / 2;

	if (lease_is_new(g, waker) ||
	    (holder->account == ACCOUNT_EXCESS && waker->excess + half <= holder->excess))
		return 0;
	if (!waker->client->fraction)
		return UINT64_MAX;
	int64_t missing =
		MIN(lease_quantum(g, waker) / 2, lease_need(g, waker)) - lease_credit(g, waker);
	return missing > 0 ? (uint64_t)missing / lease_seat_rate(g, waker) + 1 : 0;
}

/* When its lease is to end for a waker: UINT64_MAX: not. */
static uint64_t preempted_at(struct lease_table *t, struct lease_gpu *g, struct lease_client *c,
			     uint64_t now)
{
	struct lease_seat *waker = g->waker;

	if (!waker)
		return UINT64_MAX;
	t->round++;
	bool waits = g->setting.mode == COMPUTE_FAIR && waker->client->wants &&
		     waker->client->state == STATE_REST;
	uint64_t after = waits ? owed_after(g, waker, lease_seat(c, g->index)) : UINT64_MAX;
	if (after && after != UINT64_MAX)
		return now + after;
	if (after || lease_pick(t, g, c, false).seat != waker) {
		g->waker = NULL;
		return UINT64_MAX;
	}
	return c->opened + lease_useful(g);
}

static struct lease_action step_held(struct lease_table *t, struct lease_gpu *g, uint64_t now)
{
	struct lease_client *c = g->holder;

	g->due = UINT64_MAX;
	if (c->state != STATE_OPEN)
		return nothing;
	if (!c->wants || (c->fills && g->reserved && lease_others_free(t, g->reserved, g)))
		return revoke(c, false, now);
	lease_charge(t, c, now);
	if (c->open_ended && (rivals(t, c) || limited(t, c))) {
		c->open_ended = false;
		c->until = MAX(now, c->opened + lease_useful(g));
	}
	if (now >= c->until && !extend(t, g, c, now))
		return revoke(c, false, now);
	uint64_t early = preempted_at(t, g, c, now);
	if (now >= early)
		return revoke(c, true, now);
	bool tight = contended(t, c, now);
	g->due = MIN(c->until, early);
	if (tight && !rivals(t, c) && !limited(t, c))
		g->due = MIN(g->due, rival_until(t, c));
	if (tight == c->contended)
		return nothing;
	c->contended = tight;
	return (struct lease_action){LEASE_CHANGE, c->id, tight, c->until};
}

static struct lease_action step(struct lease_table *t, struct lease_gpu *g, uint64_t now)
{
	lease_settle(g, now);
	if (!g->holders)
		return step_free(t, g, now);
	return g->holders > 1 ? step_crowd(g, now) : step_held(t, g, now);
}

struct lease_action lease_next(struct lease_table *t, uint64_t now, uint64_t *ret_next)
{
	uint64_t next = UINT64_MAX;
	struct lease_gpu *g;

	lease_each_gpu(t, t->sliced, g)
	{
		if (g->dirty || g->due <= now) {
			struct lease_action action = step(t, g, now);

			if (action.kind != LEASE_NONE) {
				g->dirty = true;
				return action;
			}
			g->dirty = false;
		}
		next = MIN(next, g->due);
	}
	*ret_next = next;
	return nothing;
}
