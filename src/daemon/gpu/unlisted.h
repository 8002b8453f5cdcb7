/* The memory that is used, by a GPU's driver, beyond the sum of all processes: memory that programs
 * hold and it does not list, managed memory, and what descriptors keep. The driver gives the two
 * figures one after the other. So while slices take and give memory no reading is certain, but most
 * of them allow the true value. One thread.
 *
 * Why readings vote: the two figures are not of one moment, so a single reading errs in both
 * directions. Too low, the daemon promises memory that a program outside carve holds; too high, it
 * refuses a request that fits (tests/unit/test_daemon_unlisted.c). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backend/gpus.h"

/* The latest samples count if samples have few readings, as from drivers that take long for their
 * figures. */
#define UNLISTED_KEPT 8

/* Zeroed: nothing is known. */
struct unlisted {
	struct gpu_reading readings[UNLISTED_KEPT + GPU_READINGS_MOST]; /* the latest last */
	unsigned count;
	int64_t bytes, last; /* last: what the last sample's readings said */
	bool known;
};

/* Adds a sample without an error. `slices`: somebody is in a slice there. Without one only the
 * figure itself moves, and the sample's last reading is believed. */
void unlisted_add(struct unlisted *u, const struct gpu_sample *sample, bool slices);
/* GPU_UNLISTED_ANY: no sample came yet. May be below zero where figures are of different moments.
 */
static inline int64_t unlisted_bytes(const struct unlisted *u)
{
	return u->known ? u->bytes : GPU_UNLISTED_ANY;
}
