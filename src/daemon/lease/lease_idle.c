#include "daemon/lease/lease_idle.h"

#include "base/macros.h"

/* The time that the GPU loses where a wait was for nothing, or a lease ends within a burst: the
 * switch and the one back. For a session it is more: its next turn may be 5 ms away. That is worth
 * waiting as long as it worked, so that a GPU works half of the time that it is held at least. In
 * strict mode the next turn may be a plan away, and nobody else is to have the time. */
#define SWITCH_NS 1000000ull
/* The least number of gaps that are remembered; twice as many are the most. */
#define GAPS_KEPT 16u
/* One in this many gaps may be one that the least wait covers, where it is not even waited for this
 * long; once this many are known. */
#define BRIEF_PART 8u
#define BRIEF_GAPS 8u
/* It may be this many steps longer than the cheapest, if it costs this much of that more at most.
 */
#define SPARE_STEPS 2u
#define SPARE_PART 8
/* A burst's part of the mean. */
#define BURST_PART 8

static uint64_t step_next(uint64_t ns)
{
	return MIN(ns + ns / 4, LEASE_IDLE_NS_MAX);
}

/* The first wait that covers it, with a quarter to spare: the next such gap may be longer. */
static uint32_t step_of(uint64_t gap)
{
	uint64_t step = LEASE_IDLE_NS_MIN;

	for (uint32_t i = 0; i < LEASE_IDLE_STEPS; i++, step = step_next(step))
		if (gap <= LEASE_IDLE_NS_MAX && MIN(gap + gap / 4, LEASE_IDLE_NS_MAX) <= step)
			return i;
	return LEASE_IDLE_STEPS;
}

void lease_idle_works(struct lease_idle *idle, uint64_t now)
{
	if (!idle->busy_from)
		idle->busy_from = now;
}

void lease_idle_rests(struct lease_idle *idle, uint64_t now)
{
	if (idle->busy_from)
		idle->worked += now - MIN(idle->busy_from, now);
	idle->busy_from = 0;
}

static void burst_learn(struct lease_idle *idle)
{
	uint64_t burst = MIN(idle->worked, LEASE_IDLE_NS_MAX);

	if (idle->burst)
		burst = idle->burst / BURST_PART * (BURST_PART - 1) + burst / BURST_PART;
	idle->burst = burst;
	idle->worked = 0;
}

static void gap_count(struct lease_idle *idle, uint32_t step)
{
	if (idle->count >= 2 * GAPS_KEPT) {
		idle->count = 0;
		for (uint32_t i = 0; i <= LEASE_IDLE_STEPS; i++)
			idle->count += idle->gaps[i] /= 2;
	}
	idle->gaps[step]++;
	idle->count++;
}

/* The cost of waits of each length, with gaps as the last ones. A gap that a wait covers costs
 * itself; one that it does not cover costs the wait and the lease. */
static void costs_set(const struct lease_idle *idle, uint64_t costs[static LEASE_IDLE_STEPS])
{
	uint64_t lost = idle->dear ? LEASE_IDLE_NS_MAX : MAX(SWITCH_NS, idle->burst);
	uint64_t step = LEASE_IDLE_NS_MIN, covered = 0;
	uint32_t longer = idle->count;

	for (uint32_t i = 0; i < LEASE_IDLE_STEPS; i++, step = step_next(step)) {
		covered += idle->gaps[i] * (step / 5 * 4);
		longer -= idle->gaps[i];
		costs[i] = covered + longer * (step + lost);
	}
}

static uint32_t cheapest(const uint64_t costs[static LEASE_IDLE_STEPS])
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < LEASE_IDLE_STEPS; i++)
		if (costs[i] < costs[best])
			best = i;
	return best;
}

/* A little longer where that costs little, as gaps vary. */
static uint64_t with_spare(const uint64_t costs[static LEASE_IDLE_STEPS], uint32_t best)
{
	uint64_t most = costs[best] + costs[best] / SPARE_PART, step = LEASE_IDLE_NS_MIN;
	uint32_t last = MIN(best + SPARE_STEPS, LEASE_IDLE_STEPS - 1), chosen = best;

	for (uint32_t i = best + 1; i <= last && costs[i] <= most; i++)
		chosen = i;
	for (uint32_t i = 0; i < chosen; i++)
		step = step_next(step);
	return step;
}

void lease_idle_gap(struct lease_idle *idle, uint64_t gap)
{
	uint64_t costs[LEASE_IDLE_STEPS];
	uint32_t step = step_of(gap);

	/* Between two kernels there is always some. */
	if (step > 0)
		burst_learn(idle);
	gap_count(idle, step);
	costs_set(idle, costs);
	uint32_t best = cheapest(costs);
	idle->ns = with_spare(costs, best);
	idle->brief =
		best == 0 && idle->count >= BRIEF_GAPS && idle->gaps[0] <= idle->count / BRIEF_PART;
}

bool lease_idle_is_brief(const struct lease_idle *idle)
{
	return idle->brief && !idle->dear;
}

uint64_t lease_idle_ns(const struct lease_idle *idle)
{
	return lease_idle_is_brief(idle) ? LEASE_IDLE_NS_BRIEF : MAX(idle->ns, LEASE_IDLE_NS_MIN);
}

uint64_t lease_idle_end(const struct lease_idle *idle, uint64_t now)
{
	uint64_t about = idle->busy_from + idle->burst - MIN(idle->worked, idle->burst);

	if (!lease_idle_is_brief(idle) || !idle->busy_from || now > about + idle->burst / 4)
		return 0;
	return about - MIN(idle->burst / 4, about - idle->busy_from);
}
