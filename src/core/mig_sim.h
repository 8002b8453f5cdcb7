/* Imagined sessions under the MIG policy of mig.h and under others, with imagined time: how much of
 * what is asked for finds room, or how long it waits. For `carve mig simulate`, bench/mig_sim.c and
 * tests. Deterministic. Times in seconds from 0. */
#pragma once

#include "core/mig.h"

enum mig_policy {
	/* mig_decide() as the daemon uses it: instances are kept when a session ends. */
	MIG_POLICY_CARVE,
	/* The same with instances destroyed at once: the placement alone. */
	MIG_POLICY_EAGER,
	/* All that follow destroy at once. The first GPU that has room, at its lowest free start;
	 */
	MIG_POLICY_FIRST_FIT,
	/* or where the driver puts it: where most placements of any profile stay possible. */
	MIG_POLICY_FIRST_FIT_DRIVER,
	MIG_POLICY_BEST_FIT,    /* the GPU with the fewest free units */
	MIG_POLICY_WORST_FIT,   /* the most */
	MIG_POLICY_ROUND_ROBIN, /* the next one after the last */
	/* Minimum fragmentation increment: fragmentation is the size of all placements that fit
	 * into as many free units, but not into these. */
	MIG_POLICY_MFI,
	/* Fragmentation gradient descent: fragmentation is the free units that a profile cannot
	 * use, by how often each is asked for (the true shares). */
	MIG_POLICY_FGD,
	/* No policy but a bound: all instances of a GPU could be moved at any time. Best fit. */
	MIG_POLICY_REPACK,
	MIG_POLICIES,
};

/* "carve", "first-fit", ... */
const char *mig_policy_text(enum mig_policy policy);

struct mig_sim_job {
	double arrival, duration;
	uint32_t want; /* number of its request */
};

#define MIG_SIM_PROGRESS 256u

struct mig_sim_setting {
	const struct mig_die *dies; /* initialized; copied */
	uint32_t die_count;
	const uint16_t *gpu_die; /* the number of each GPU's die */
	uint32_t gpu_count;
	const struct mig_request *wants; /* requests for one instance each */
	uint32_t want_count;
	enum mig_policy policy;
	/* A request that finds no room waits, in the order of arrival; a request is passed `passes`
	 * times at most, as in the daemon. Else it is turned away. */
	bool waits;
	uint32_t passes;
	/* Jobs before this one fill the pool, and are not counted. */
	size_t warm;
	/* Called with the number of arrivals and ends so far, after each MIG_SIM_PROGRESS of them;
	 * or NULL. There are twice as many as jobs at most. */
	void (*progress)(void *arg, size_t events);
	void *arg;
};

struct mig_sim_result {
	uint64_t jobs, granted;
	uint64_t never; /* no GPU of the pool can hold it */
	/* GPU seconds: duration x the part of a GPU's memory units. */
	double offered, accepted;
	double wait_sum, wait_longest; /* the waits of granted requests */
	double used, span;             /* GPU seconds in use from the first counted arrival to the
					  last, and how long that is */
	uint64_t reused, created, destroyed; /* instances */
};

/* Jobs by arrival. 0; -ENOMEM; -EINVAL: a die or a want that is none; -EPROTO: a placement that
 * overlaps another, or is not legal. */
int mig_sim_run(const struct mig_sim_setting *setting, const struct mig_sim_job *jobs, size_t count,
		struct mig_sim_result *ret);
