/* Compares the driver's measurements of a GPU's time with the turns: which owner took time beyond
 * its turns, and from which clients. A measurement only moves time between accounts. It is no proof
 * of a fault, because the work of a neighbour makes that of others longer. Same terms as lease.h.
 *
 * Each owner has an account: the time that the owner's processes used, less the turns that its
 * clients held. If the processes use nothing but their turns, the account is zero, except for how
 * late and how coarse the driver measures. Where others wanted the GPU, the excess over that is
 * charged to the owner's clients there, by their shares. A client that had a turn and got less of
 * the GPU is given back what it lacks, at most what the others took. It is given back to the
 * accounts that the client paid from.
 *
 * A neighbour cannot bring about that a process uses the GPU without a front (`unfronted`). Such
 * a process is attached nowhere, or its client has had no turn and no work on the GPU for some
 * seconds. */
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
	/* Answer: others wanted the GPU, and this process used it though no front counted its work.
	 */
	bool unfronted;
};

/* A measurement begins and ends now: to be called as the driver is asked. `own` is the time by the
 * GPU's own clock. */
void lease_measure_mark(struct lease_table *t, uint32_t gpu, uint64_t now, uint64_t own);
/* The driver's answer, then, about the time between the last two marks. busy_ppm: the GPU, whosever
 * work it was (UINT32_MAX: not known). Returns false if nothing was judged: the time between the
 * marks was too short or too long, or differs by more than 2% between the two clocks. */
bool lease_measure(struct lease_table *t, uint32_t gpu, struct lease_use *uses, size_t count,
		   uint32_t busy_ppm, uint64_t now);
/* Accounts begin anew: what was measured of this GPU so far is not to be judged. */
void lease_measure_forget(struct lease_table *t, uint32_t gpu);
/* By the client's own word, work of it is on the GPU though it has no lease; or not (any more). */
void lease_goes_on(struct lease_table *t, uint64_t id, bool goes_on);
/* The part of its work's time without a lease that is charged otherwise. */
void lease_allow(struct lease_table *t, uint64_t id, uint64_t ns);
/* For showing: what it was charged for by measurement, and what it was given back; ns. */
void lease_measured(const struct lease_table *t, uint64_t id, uint64_t *ret_charged,
		    uint64_t *ret_returned);
