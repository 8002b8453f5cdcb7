#include "daemon/lease/lease_clock.h"

#include "base/macros.h"

uint64_t lease_clock_look(struct lease_clock *c, uint64_t monotonic, uint64_t lag)
{
	uint64_t gpu = monotonic - MIN(lag, monotonic);

	if (!c->monotonic) {
		c->now = MAX(c->now, gpu);
		c->monotonic = monotonic;
		c->gpu = gpu;
		c->still = LEASE_CLOCK_STILL_NS;
		return c->now;
	}
	uint64_t late = c->due && monotonic > c->due ? monotonic - MAX(c->due, c->monotonic) : 0;
	uint64_t paused = late > LEASE_CLOCK_LATE_NS ? late : 0;
	uint64_t passed = monotonic - MIN(c->monotonic, monotonic) - paused;
	uint64_t went = gpu - MIN(c->gpu, gpu);

	if (paused)
		went = MIN(went, passed);
	uint64_t behind = passed - MIN(went, passed);
	uint64_t borne = MIN(behind, c->still);
	uint64_t anew = MIN(went, LEASE_CLOCK_STILL_NS) * LEASE_CLOCK_STILL_PART;

	c->monotonic = MAX(c->monotonic, monotonic);
	c->gpu = MAX(c->gpu, gpu);
	c->still = MIN(c->still - borne + anew, LEASE_CLOCK_STILL_NS);
	c->now += went + behind - borne;
	return c->now;
}

void lease_clock_raise(struct lease_clock *c, uint64_t now)
{
	c->now = MAX(c->now, now);
}
