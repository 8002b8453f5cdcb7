/* The part of a GPU's time that was used lately: a sliding window of BUSY_WINDOW_NS. Placement
 * takes the GPU of which the least time was used, where all else is equal (core/place.h). Pure: the
 * caller brings the clock. */
#pragma once

#include <stdint.h>

/* Long enough that the pauses of an interactive session do not make its GPU look free, and short
 * enough that work which has ended is soon forgotten. */
#define BUSY_WINDOW_NS 300000000000ull
#define BUSY_SLOTS 60u
#define BUSY_SLOT_NS (BUSY_WINDOW_NS / BUSY_SLOTS)

/* Zeroed: nothing was used. */
struct busy {
	uint64_t newest; /* the number of the newest slot: its time by BUSY_SLOT_NS */
	uint32_t used_ms[BUSY_SLOTS];
};

/* Adds GPU time that was used until `now_ns`, by a clock that only grows. */
void busy_add(struct busy *busy, uint64_t now_ns, uint64_t used_ns);
/* The time that was used in the window before `now_ns`, in whole per cent of the window, rounded
 * down: a moment's work (less than 3 s) counts as none. 100 at most. */
uint32_t busy_percent(const struct busy *busy, uint64_t now_ns);
