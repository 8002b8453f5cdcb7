/* Jobs drawn at random for simulations of MIG placement: mixes of sizes, Poisson arrivals, run
 * times. Deterministic for a seed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/mig_sim.h"

struct mix {
	const char *name;
	/* Parts of one, by the names of an H100 80GB's profiles: 1g.10gb, 1g.20gb, 2g.20gb,
	 * 3g.40gb, 4g.40gb, 7g.80gb. */
	double share[6];
};

/* Ends at an entry whose name is NULL. */
extern const struct mix mixes[];

/* The die of a simulated model, ready for use; -1: there is no such model. */
int mix_die(const char *model, struct mig_die *ret);
/* Fills `wants` with the six requests of a mix: profiles of the die by name (`profile` is where
 * they lie); *ret_mean is the mean part of a GPU. */
void mix_wants(const char *model, const struct mix *mix, uint8_t profile[6],
	       struct mig_request wants[6], double *ret_mean);
/* `load`: offered GPU seconds by those that the pool has. Mean run time 1 s: exponential, or heavy
 * (log-normal, sigma 1.6: the longest 1% of jobs are nearly a quarter of the work). */
void mix_draw(const struct mix *mix, double mean_part, double load, uint32_t gpus, bool heavy,
	      uint64_t seed, struct mig_sim_job *jobs, size_t count);
