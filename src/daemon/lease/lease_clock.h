/* The clock of leases: CLOCK_MONOTONIC, but where GPUs have clocks that can fall behind it, time
 * passes as on the one that is furthest behind. Pure; not thread-safe. Times in ns. */
#pragma once

#include <stdint.h>

/* A GPU that stands still for somebody's work may stand still for good. That is borne for this
 * long, and anew for as much as it went on meanwhile, STILL_PART times. Then time passes as on
 * CLOCK_MONOTONIC. */
#define LEASE_CLOCK_STILL_NS 200000000u
/* A thread that looks so much later than was due was not running: this machine was paused, or the
 * daemon was stopped. No client had a turn in that time, and none is charged for it: it does not
 * count. */
#define LEASE_CLOCK_LATE_NS 500000000u
#define LEASE_CLOCK_STILL_PART 4u

/* Zeroed: it has not begun. */
struct lease_clock {
	uint64_t now;            /* never goes back */
	uint64_t monotonic, gpu; /* when it was looked at last, by the two clocks */
	uint64_t still;          /* how long the GPU may yet stand still */
	uint64_t due; /* when it is looked at again at the latest, by CLOCK_MONOTONIC; 0: not known
		       */
};

/* The GPU's clock is so far behind CLOCK_MONOTONIC when that is `monotonic`. Returns the time. */
uint64_t lease_clock_look(struct lease_clock *c, uint64_t monotonic, uint64_t lag);
/* Raises the clock to `now`, a time that another program's clock has shown already. */
void lease_clock_raise(struct lease_clock *c, uint64_t now);
