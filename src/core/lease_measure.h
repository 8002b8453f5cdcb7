/* Compares the driver's measurements of a GPU's time with the turns: which owner took time beyond
 * its turns, and from which clients. Nothing that processes write themselves comes in. Same terms
 * as lease.h.
 *
 * Each owner has an account: the time that the owner's processes used, less the turns that its
 * clients held. If the processes use nothing but their turns, the account is zero, except for how
 * late and how coarse the driver measures. Where others wanted the GPU, the excess over that is
 * charged to the owner's clients there, by their shares. A client that had a turn and got less of
 * the GPU is given back what it lacks, at most what the others took. It is given back to the
 * accounts that the client paid from. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/lease.h"

/* The driver's figures are of about the last second: what is measured is as long as that, within a
 * quarter, or not judged. */
#define LEASE_MEASURE_NS 1000000000ull

/* The use of one or more processes. */
struct lease_use {
	uint64_t owner;
	uint64_t id;  /* the client's; 0: no client's */
	uint32_t ppm; /* its part of the time that was measured; the sum of all is LEASE_PPM at
			 most, about */
	/* Answer: it used the GPU and had no turn to do so, or its client's were too short. */
	bool beyond;
};

struct lease_taken {
	uint64_t owner;
	uint64_t ns;  /* beyond the owner's turns, and charged by this measurement */
	uint64_t sum; /* in the owner's account */
	bool over;    /* that is too much to be the driver's coarseness */
};

/* A measurement begins and ends now: to be called as the driver is asked. */
void lease_measure_mark(struct lease_table *t, uint32_t gpu, uint64_t now);
/* The driver's answer, then, about the time between the last two marks. busy_ppm: the GPU, whosever
 * work it was (UINT32_MAX: not known). Fills ret with owners whose account is not empty, `room` at
 * most. Returns how many. */
size_t lease_measure(struct lease_table *t, uint32_t gpu, struct lease_use *uses, size_t count,
		     uint32_t busy_ppm, uint64_t now, struct lease_taken *ret, size_t room);
/* Accounts begin anew: what was measured of this GPU so far is not to be judged. */
void lease_measure_forget(struct lease_table *t, uint32_t gpu);
/* The part of its work's time without a lease that is charged otherwise, or borne. */
void lease_allow(struct lease_table *t, uint64_t id, uint64_t ns);
/* For showing: what it was charged for by measurement, and what it was given back; ns. */
void lease_measured(const struct lease_table *t, uint64_t id, uint64_t *ret_charged,
		    uint64_t *ret_returned);
