/* How long a quiet holder is waited for while others want its GPU, learned from its gaps: those
 * inside its bursts are waited for, those between them are not. Pure; not thread-safe. Times in ns.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Quiet for this long is idle: what a switch costs at least; at most what is lost by waiting. And
 * of one that is hardly ever quiet but between its bursts: what it takes from one kernel to the
 * next.
 */
#define LEASE_IDLE_NS_BRIEF 50000ull
#define LEASE_IDLE_NS_MIN 200000ull
#define LEASE_IDLE_NS_MAX 4000000ull
/* From the least to the most, each a quarter longer than the one before. */
#define LEASE_IDLE_STEPS 15u

/* Zeroed: nothing is known, and it is waited for the least. */
struct lease_idle {
	bool dear;   /* a lease that ends is not soon had again: strict mode */
	bool brief;  /* it is quiet between its bursts only */
	uint64_t ns; /* quiet for so long is idle; 0: nothing is known */
	uint32_t gaps[LEASE_IDLE_STEPS + 1]; /* the last ones, counted: those that so long a wait
					      * covers; then those that none does */
	uint32_t count;                      /* their sum */
	uint64_t busy_from;                  /* it works since then; 0: it does not */
	uint64_t worked;                     /* in this burst, before */
	uint64_t burst;                      /* a running mean */
};

/* It works from now on, with the GPU in hand; it does not any more. Each may be said again. */
void lease_idle_works(struct lease_idle *idle, uint64_t now);
void lease_idle_rests(struct lease_idle *idle, uint64_t now);
/* It was quiet for so long until it had work again, whether it was waited for or not. */
void lease_idle_gap(struct lease_idle *idle, uint64_t gap);
uint64_t lease_idle_ns(const struct lease_idle *idle);
/* If it is quiet, its burst is over. */
bool lease_idle_is_brief(const struct lease_idle *idle);
/* When a brief one's burst may be over first, as long as bursts are; 0: that is past, or not known.
 */
uint64_t lease_idle_end(const struct lease_idle *idle, uint64_t now);
