/* For the tests of the lease policy: clients of an imagined GPU, and what they must get. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/lease_sim.h"

#define MS 1000000ull
#define SEC 1000000000ull

/* The same numbers for the same seed. */
static inline uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* One GPU of this mode. */
static inline struct lease_sim *sim_new(enum compute_mode mode, uint64_t lease_ns)
{
	struct lease_setting setting = {mode, lease_ns, LEASE_GRANULARITY_DEFAULT};
	struct lease_sim *sim = lease_sim_new(1, NULL, NULL);

	assert_non_null(sim);
	lease_sim_set(sim, 0, &setting);
	return sim;
}

/* Adds a client that always has work for GPU 0. Its number. */
static inline uint32_t busy(struct lease_sim *sim, uint32_t fraction_ppm)
{
	int n = lease_sim_add(sim, &(struct lease_sim_client){.gpus = 1,
							      .fraction_ppm = fraction_ppm,
							      .kernel_ns = 1 * MS});

	assert_true(n >= 0);
	return (uint32_t)n;
}

/* The rules must hold on the way. */
static inline void go(struct lease_sim *sim, uint64_t until)
{
	if (lease_sim_run(sim, until) < 0)
		fail_msg("%s", lease_sim_fault(sim));
}

/* Its part of the time so far, in percent. */
static inline double share(const struct lease_sim *sim, uint32_t client)
{
	return 100.0 * (double)lease_sim_result(sim, client).busy_ns / (double)lease_sim_now(sim);
}

#define assert_share(sim, client, percent, points)                                   \
	do {                                                                         \
		double share_ = share(sim, client);                                  \
		if (share_ < (percent) - (points) || share_ > (percent) + (points))  \
			fail_msg("client %u got %.3f%%, not %.3f%%", client, share_, \
				 (double)(percent));                                 \
	} while (0)
