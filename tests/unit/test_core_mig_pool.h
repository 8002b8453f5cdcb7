/* One pool of GPUs for all tests of a program, and names of what they are granted there. */
#pragma once

#include "test_core_mig.h"

/* One for all tests: it is large. */
static struct test_pool t;

static inline void pool_of(const char *model, uint32_t gpus)
{
	memset(&t, 0, sizeof(t));
	test_pool_add(&t, model, gpus);
}

static inline const char *granted_name(const struct mig_decision *d, uint32_t i)
{
	return test_name(&t, t.gpus[d->choice[i].gpu].die, d->choice[i].profile);
}

static inline const char *near_name(const struct mig_decision *d)
{
	return test_name(&t, t.gpus[d->choice[0].gpu].die, d->choice[0].near);
}

static inline struct mig_request named(const char *name)
{
	static uint8_t profile[MIG_DIES_MAX];

	for (uint32_t die = 0; die < t.pool.die_count; die++)
		profile[die] = test_profile(&t, die, name);
	return (struct mig_request){.kind = MIG_ASK_PROFILE, .profile = profile, .count = 1};
}
