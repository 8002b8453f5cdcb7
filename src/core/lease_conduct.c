#include "core/lease_conduct.h"

#include "base/macros.h"
#include "core/lease.h"

#define PATIENCE_MOST_NS 5000000000ull
#define PATIENCE_LEAST_NS 250000000ull
/* The part of their shares that may be missing over the window: 1.5 points. */
#define SHORT_PPM 15000u
/* The most time that an owner's own use counts, so that nobody waits for ever. */
#define SPENT_MOST_NS 20000000000ull

static uint64_t suspended_for(const struct lease_conduct *c)
{
	uint32_t doubled = MIN(c->suspensions, 6u);

	return MIN(CONDUCT_FIRST_NS << doubled, CONDUCT_MOST_NS);
}

static void suspend(struct lease_conduct *c, uint64_t now)
{
	uint64_t until = now + suspended_for(c);

	/* One that goes on is one offence, not many. */
	if (c->state == CONDUCT_SUSPENDED) {
		c->until = MAX(c->until, until);
		return;
	}
	c->suspensions += c->suspensions < UINT32_MAX;
	c->state = CONDUCT_SUSPENDED;
	c->until = until;
	c->strikes = 0;
}

static void watch(struct lease_conduct *c, uint32_t strikes, uint64_t now)
{
	c->state = CONDUCT_WATCHED;
	c->strikes = strikes;
	c->until = now + CONDUCT_WATCH_NS;
}

bool lease_conduct_pass(struct lease_conduct *c, uint64_t now)
{
	if (c->state == CONDUCT_FREE || now < c->until)
		return false;
	if (c->state == CONDUCT_SUSPENDED) {
		watch(c, CONDUCT_STRIKES - 1, now);
		return true;
	}
	c->state = CONDUCT_FREE;
	c->until = 0;
	c->strikes = c->suspensions = 0;
	return true;
}

bool lease_conduct_note(struct lease_conduct *c, enum conduct_event event, uint64_t now)
{
	if (event == CONDUCT_FORGED && c->state != CONDUCT_SUSPENDED &&
	    c->strikes + 1 < CONDUCT_STRIKES) {
		watch(c, c->strikes + 1, now);
		return false;
	}
	suspend(c, now);
	return true;
}

uint64_t lease_patience(uint32_t others_ppm)
{
	uint64_t rest = LEASE_PPM + SHORT_PPM - MIN(others_ppm, LEASE_PPM);
	/* Half of the rest that no other owner has. The other half is for other uses of this owner.
	 */
	uint64_t ns = CONDUCT_WINDOW_NS / 2 / LEASE_PPM * rest;

	if (!others_ppm)
		return UINT64_MAX;
	return MIN(MAX(ns, PATIENCE_LEAST_NS), PATIENCE_MOST_NS);
}

static uint64_t spent(const struct lease_conduct *c, uint64_t now)
{
	uint64_t passed = now - MIN(c->spent_at, now);
	uint64_t back = MIN(passed, SPENT_MOST_NS * (LEASE_PPM / CONDUCT_REFILL_PPM)) / LEASE_PPM *
			CONDUCT_REFILL_PPM;

	return c->spent - MIN(back, c->spent);
}

uint64_t lease_conduct_left(const struct lease_conduct *c, uint64_t patience, uint64_t now)
{
	return patience == UINT64_MAX ? patience : patience - MIN(spent(c, now), patience);
}

void lease_conduct_spend(struct lease_conduct *c, uint64_t ns, uint64_t now)
{
	c->spent = MIN(spent(c, now) + MIN(ns, SPENT_MOST_NS), SPENT_MOST_NS);
	c->spent_at = now;
}

bool lease_conduct_is_clean(const struct lease_conduct *c, uint64_t now)
{
	return c->state == CONDUCT_FREE && !spent(c, now);
}
