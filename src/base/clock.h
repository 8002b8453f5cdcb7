/* Clocks, in nanoseconds. */
#pragma once

#include <stdint.h>
#include <time.h>

/* CLOCK_MONOTONIC: since boot, never set. */
static inline uint64_t now_monotonic_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline long long now_monotonic_ms(void)
{
	return (long long)(now_monotonic_ns() / 1000000);
}

/* CLOCK_REALTIME: since 1970. */
static inline int64_t now_realtime_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The time in ns by which the clock was set since the last call; 0: it was not. In *ahead is how
 * much `realtime` was ahead of `boottime` (CLOCK_BOOTTIME, which nobody sets) at that call. A clock
 * that is slewed moves less between two calls. */
#define CLOCK_STEP_NS 1000000000
static inline int64_t clock_step(int64_t *ahead, int64_t realtime, int64_t boottime)
{
	int64_t step = realtime - boottime - *ahead;

	*ahead += step;
	return step > CLOCK_STEP_NS || step < -CLOCK_STEP_NS ? step : 0;
}

/* CLOCK_BOOTTIME: since boot, sleep included. */
static inline int64_t now_boottime_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
