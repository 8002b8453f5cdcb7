#include <errno.h>

#include "base/macros.h"
#include "core/lease_table.h"

#define SECOND 1000000000ull

static uint32_t part(uint64_t held, uint64_t of)
{
	return of ? (uint32_t)MIN((__uint128_t)held * LEASE_PPM / of, LEASE_PPM) : 0;
}

static void plan_reach(struct lease_history *h, uint64_t plan)
{
	if (plan == h->plan_now)
		return;
	h->plan_last = plan == h->plan_now + 1 ? h->plan_held : 0;
	h->plan_held = 0;
	h->plan_now = plan;
}

static uint32_t received_plan(struct lease_history *h, uint64_t now)
{
	uint64_t begun = MAX(h->plan_from, h->came);

	if (now - begun < h->plan_ns)
		return h->changed ? h->received_before : part(h->plan_held, now - begun);
	plan_reach(h, (now - h->plan_from) / h->plan_ns);
	return part(h->plan_last, h->plan_ns);
}

/* The plan that is shown is that of the first GPU. */
void lease_history_begin(struct lease_table *t, struct lease_client *c, uint64_t now)
{
	struct lease_history *h = &c->history;
	uint64_t gpus = lease_gpus(t, c) ? lease_gpus(t, c) : c->gpus;
	uint64_t plan = lease_plan_ns(&t->gpu[__builtin_ctzll(gpus)].setting);

	if (!h->plan_ns) {
		h->came = now;
		h->second_now = now / SECOND;
	} else {
		h->received_before = received_plan(h, now);
		h->changed = true;
	}
	h->plan_ns = plan;
	h->plan_from = now;
	h->plan_now = h->plan_held = h->plan_last = 0;
}

static void second_reach(struct lease_history *h, uint64_t second)
{
	if (second > h->second_now + LEASE_SECONDS + 1)
		h->second_now = second - LEASE_SECONDS - 1;
	while (h->second_now < second)
		h->second[++h->second_now % ARRAY_SIZE(h->second)] = 0;
}

void lease_history_add(struct lease_history *h, uint64_t from, uint64_t to)
{
	uint64_t seconds = MAX(
		from, to > (LEASE_SECONDS + 1) * SECOND ? to - (LEASE_SECONDS + 1) * SECOND : 0);

	while (seconds < to) {
		uint64_t second = seconds / SECOND, end = MIN(to, (second + 1) * SECOND);

		second_reach(h, second);
		h->second[second % ARRAY_SIZE(h->second)] += end - seconds;
		seconds = end;
	}
	from = MAX(from, h->plan_from);
	if (to > from && to - from > 3 * h->plan_ns)
		from = to - 3 * h->plan_ns;
	while (from < to) {
		uint64_t plan = (from - h->plan_from) / h->plan_ns;
		uint64_t end = MIN(to, h->plan_from + (plan + 1) * h->plan_ns);

		plan_reach(h, plan);
		h->plan_held += end - from;
		from = end;
	}
}

static uint32_t received_minute(struct lease_history *h, uint64_t now)
{
	uint64_t from = now / SECOND * SECOND, held = 0;

	second_reach(h, now / SECOND);
	from = from > LEASE_SECONDS * SECOND ? from - LEASE_SECONDS * SECOND : 0;
	for (uint32_t i = 0; i < ARRAY_SIZE(h->second); i++)
		held += h->second[i];
	return part(held, now - MAX(from, h->came));
}

int lease_client_stat(const struct lease_table *t, uint64_t id, uint64_t now,
		      struct lease_client_stat *ret)
{
	const struct lease_client *c = lease_find(t, id);

	if (!c)
		return -ENOENT;
	bool strict = false, holds = c->state == STATE_OPEN || c->state == STATE_CLOSING;
	for (uint32_t i = 0; i < c->seat_count; i++)
		strict = strict || t->gpu[c->seat[i].gpu].setting.mode == COMPUTE_STRICT;
	struct lease_history history = c->history;
	*ret = c->stat;
	if (holds && now > c->charged) {
		lease_history_add(&history, c->charged, now);
		ret->held_ns += now - c->charged;
	}
	if (c->wants && !holds) {
		ret->waited_ns += now - c->wait_from;
		ret->waited_longest_ns = MAX(ret->waited_longest_ns, now - c->wait_from);
	}
	ret->request_ppm = c->fraction;
	ret->limit_ppm = strict && c->fraction ? c->fraction : LEASE_PPM;
	ret->received_plan_ppm = received_plan(&history, now);
	ret->received_minute_ppm = received_minute(&history, now);
	ret->wants = c->wants;
	ret->holds = holds;
	return 0;
}
