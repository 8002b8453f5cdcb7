/* Declarations that mig_sim.c and its policies share. */
#pragma once

#include "core/mig_private.h"
#include "core/mig_sim.h"

/* Values of a function of occupancies: a direct-mapped cache. */
#define SIM_VALUES 512u
struct sim_values {
	uint32_t mask[SIM_VALUES];
	double value[SIM_VALUES];
	bool known[SIM_VALUES];
};

/* Which sets of instances one GPU can hold: a direct-mapped cache. */
#define SIM_SETS 4096u
struct sim_sets {
	uint8_t count[SIM_SETS][MIG_PROFILES_MAX];
	bool known[SIM_SETS], fits[SIM_SETS];
};

struct sim_die {
	double share[MIG_PROFILES_MAX]; /* the share of the arrivals */
	struct sim_values values;
	struct sim_sets sets;
};

/* The facts that a policy decides by. */
struct sim_view {
	struct mig_pool *pool;
	struct sim_die *dies;
	const uint8_t *profile; /* wanted on each die, or MIG_NO_PROFILE */
	uint32_t next;          /* round robin */
};

/* False: no room. */
bool sim_choose(struct sim_view *view, enum mig_policy policy, struct mig_choice *ret);
