/* A tally is what a user had of a GPU in one day, for `carve report` and for the GPU-hours of a
 * quota. Days and months are those of UTC. Pure.
 *
 * A GPU-hour is a whole GPU for one hour. A slice counts by its part of the GPU: the part of the
 * memory, or of the time where time is sliced and that part is larger. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define TALLY_DAY_NS 86400000000000ull
/* Days that are kept: a year and a day, so that each day of the last year is there. */
#define TALLY_DAYS 366

struct tally {
	uint64_t held_ns;     /* the time of slices of any size */
	uint64_t gpu_ns;      /* the same, each by its part of the GPU */
	uint64_t used_ns;     /* the time for which work of the sessions was on the GPU, */
	uint64_t measured_ns; /* in this part of held_ns, in which it was measured */
	uint64_t asked_mib_ms, peak_mib_ms; /* the slice's memory, and its peak so far, over time */
	uint64_t peak_bytes;                /* the most that a session used */
	uint64_t sessions, slices, jobs;    /* that began; a slice is a session's part of one GPU */
	uint64_t refusals;
	uint64_t waits, wait_ns; /* requests and jobs that waited for room, until granted or not */
};

/* One slice over some time. */
struct tally_time {
	uint64_t ns;
	uint32_t part_ppm; /* the part of the GPU */
	uint64_t bytes, peak_bytes;
	uint64_t measured_ns; /* the part of `ns` in which somebody measured the use, */
	uint64_t used_ns;     /* and the part of that in which it was used */
};

void tally_add(struct tally *to, const struct tally *from);
bool tally_is_empty(const struct tally *tally);
void tally_add_time(struct tally *to, const struct tally_time *time);
/* The average size in bytes over `held_ns`, which is not 0. The sums leave parts of a millisecond
 * out, so an average that lies less than 2 KiB below a whole MiB is taken for that MiB. */
uint64_t tally_average_bytes(uint64_t sum_mib_ms, uint64_t held_ns);
/* The part of a GPU, in millionths: of `total` bytes, or `compute_ppm` where that is more. */
uint32_t tally_part(uint64_t bytes, uint64_t total, uint32_t compute_ppm);
/* The day of a moment (ns since 1970), in days since 1970. */
int64_t tally_day(int64_t moment);
/* The first day of the month of that day. */
int64_t tally_month(int64_t day);
/* Takes the last of the days off a time of `ns` that ends at *end, which goes back to the beginning
 * of that day. Returns how much of the time lies in it. */
uint64_t tally_day_take(int64_t *end, uint64_t ns, int64_t *ret_day);
/* Returns the moment (CLOCK_MONOTONIC) at which the counting of a session goes on, when a daemon
 * before this one counted up to `until`. This is `until`, or the session's beginning if it began
 * later. That beginning is known by CLOCK_REALTIME only, which may have been set. So no more is
 * counted than the time since `until`. */
uint64_t tally_resume(uint64_t until, int64_t until_realtime, int64_t created, uint64_t now);
