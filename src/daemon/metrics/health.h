/* Numbers that the daemon keeps about itself for metrics: passes of the loop, and scrapes. The
 * loop's thread has them. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "daemon/host/budget.h"

/* Scrapes that are answered at a time; a user has half of what the others leave. */
#define METRICS_SCRAPES_MAX 64u

struct metrics_health {
	uint64_t woke_ns; /* CLOCK_MONOTONIC: when this pass of the loop began; 0: it sleeps */
	uint64_t busy_ns; /* all passes together */
	/* The longest pass of this minute and of the minute before it. */
	uint64_t longest_ns, longest_before_ns;
	uint64_t minute;
	uint64_t scrapes, scrape_ns; /* answered; the time of the loop that these took */
	uint64_t refused;            /* scrapes that their readers may not have */
	gid_t readers;               /* the group that sees all sessions; (gid_t)-1: none */
	struct budget under_way;
};

/* A pass of the loop begins, or goes to sleep; `now` is CLOCK_MONOTONIC, ns. */
static inline void metrics_pass_begin(struct metrics_health *h, uint64_t now)
{
	h->woke_ns = now;
}

static inline void metrics_pass_end(struct metrics_health *h, uint64_t now)
{
	uint64_t pass = h->woke_ns ? now - h->woke_ns : 0, minute = now / 60000000000ull;

	if (minute != h->minute) {
		h->longest_before_ns = minute == h->minute + 1 ? h->longest_ns : 0;
		h->longest_ns = 0;
		h->minute = minute;
	}
	if (pass > h->longest_ns)
		h->longest_ns = pass;
	h->busy_ns += pass;
	h->woke_ns = 0;
}
