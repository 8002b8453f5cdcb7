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
