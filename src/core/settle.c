#include "core/settle.h"

#include "base/macros.h"

bool settle_is_quiescent(const struct settle_calls *c)
{
	uint32_t waiting = MAX(c->seen_release_pending, c->asks ? 1u : 0u);

	/* A sample taken before the attach may describe the PID's previous owner. */
	return c->sampled && c->seen_begun - c->seen_done <= waiting && c->begun == c->seen_begun &&
	       c->release_pending >= c->seen_release_pending;
}

/* The process's charges that are to be in the driver's figure. */
static int64_t in_figure(const struct settle_reading *r)
{
	return r->used - r->managed_unlisted - r->release_pending;
}

static int64_t floor_next(const struct settle_reading *r, int64_t settled)
{
	int64_t lowest = r->asks_exact && !r->managed ? -r->context : r->floor;

	return r->asks ? MIN(0, MAX(settled, lowest)) : r->floor;
}

bool settle_aim(const struct settle_reading *r, int64_t *ret_aim, int64_t *ret_floor)
{
	int64_t used = in_figure(r), settled = (int64_t)r->figure - used - r->twins;

	/* A driver that does not list a process that holds something says nothing of it. */
	if (r->failed || (!r->figure && used > r->maybe_freed))
		return false;
	int64_t floor = floor_next(r, settled), aim = MAX(settled, floor - r->maybe_freed);
	*ret_floor = floor;
	*ret_aim = r->managed ? MAX(aim, r->posted) : aim;
	return true;
}

uint64_t settle_over(const struct settle_reading *r, uint64_t charged)
{
	uint64_t known = r->figure + (uint64_t)r->release_pending + (uint64_t)r->managed_unlisted;

	if (r->failed || r->twins || r->managed)
		return 0;
	return charged > known ? charged - known : 0;
}

int64_t settle_beyond(uint64_t figure, int64_t used_before, int64_t used_after,
		      int64_t unlisted_before, int64_t unlisted_after, int64_t twins)
{
	return (int64_t)figure - MAX(used_before, used_after) +
	       MIN(unlisted_before, unlisted_after) - twins;
}

int64_t settle_least(unsigned count, int64_t least, int64_t beyond)
{
	return count ? MIN(least, beyond) : beyond;
}

bool settle_is_enough(unsigned count)
{
	return count + 1 >= SETTLE_MOVING_COMPARISONS;
}

bool settle_may_have_less(int64_t beyond, int64_t posted, int64_t floor, int64_t maybe_freed)
{
	return posted > MAX(floor, 0) - maybe_freed && beyond < posted;
}

enum settle_verdict settle_decide(const struct settle_session *s)
{
	bool lower = s->has_less || (s->exported && s->may_have_less);

	if (!lower)
		return SETTLE_NOTHING;
	return s->exported && !s->quiescent ? SETTLE_DEFER : SETTLE_LOWER;
}

void settle_quiesce_next(struct settle_quiesce *quiesce, bool wanted, uint64_t now)
{
	if (!wanted) {
		*quiesce = (struct settle_quiesce){0};
		return;
	}
	switch (quiesce->state) {
	case SETTLE_HELD:
		if (now - quiesce->at_ns <= SETTLE_HOLD_NS)
			return;
		quiesce->pause_ns =
			MIN(MAX(2 * quiesce->pause_ns, SETTLE_PAUSE_MIN_NS), SETTLE_PAUSE_MAX_NS);
		quiesce->at_ns = now + quiesce->pause_ns;
		quiesce->state = SETTLE_PAUSED;
		return;
	case SETTLE_PAUSED:
		if (now < quiesce->at_ns)
			return;
		break;
	case SETTLE_FREE:
	case SETTLE_QUIESCE_STATES:
		break;
	}
	quiesce->state = SETTLE_HELD;
	quiesce->at_ns = now;
}

uint64_t settle_quiesce_until(const struct settle_quiesce *quiesce)
{
	return quiesce->state == SETTLE_HELD ? quiesce->at_ns + 2 * SETTLE_HOLD_NS : 0;
}
