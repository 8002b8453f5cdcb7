/* How fast a worker is started again that ends again and again. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Zeroed: it has not ended yet. */
struct pace {
	unsigned quick; /* how often in a row it ended soon after its start */
};

/* A worker that served for this long ended for a reason of its own. */
#define PACE_LASTED_NS 1000000000ull
/* So often in a row it is started again at once. */
#define PACE_AT_ONCE 3
#define PACE_FIRST_NS 100000000ull
/* The longest pause: after a worker that had served, and after one that never did. */
#define PACE_SERVED_NS 800000000ull
#define PACE_FAILED_NS 5000000000ull

/* The worker ended `lived_ns` after its start; `served`: it had said that it was ready. Returns the
 * time to wait, in ns. */
uint64_t pace_ended(struct pace *pace, uint64_t lived_ns, bool served);
