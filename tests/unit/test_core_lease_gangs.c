/* The lease policy's gangs: sessions over several GPUs, which have their leases on all of them at
 * the same time (src/core/lease_sim.h). */
#include "base/macros.h"
#include "test_core_lease.h"

static void set_all(struct lease_sim *sim, uint32_t gpus, enum compute_mode mode, uint64_t lease_ns)
{
	struct lease_setting setting = {mode, lease_ns, LEASE_GRANULARITY_DEFAULT};

	for (uint32_t i = 0; i < gpus; i++)
		lease_sim_set(sim, i, &setting);
}

static uint32_t add(struct lease_sim *sim, uint64_t gpus, uint32_t fraction_ppm, uint64_t drain_ns)
{
	int n = lease_sim_add(sim, &(struct lease_sim_client){.gpus = gpus,
							      .fraction_ppm = fraction_ppm,
							      .kernel_ns = 1 * MS,
							      .drain_ns = drain_ns});

	assert_true(n >= 0);
	return (uint32_t)n;
}

static double busy_ns(const struct lease_sim *sim, uint32_t client)
{
	return (double)lease_sim_result(sim, client).busy_ns;
}

/* A gang takes its GPUs together, gets its share beside singles that always want, and they theirs.
 */
static void gangs(void **state)
{
	for (enum compute_mode mode = COMPUTE_FAIR; mode <= COMPUTE_STRICT; mode++)
		for (uint32_t gpus = 2; gpus <= 8; gpus *= 2) {
			struct lease_sim *sim = sim_new(mode, 250 * MS);
			struct lease_setting setting = {mode, 250 * MS, LEASE_GRANULARITY_DEFAULT};
			struct lease_sim_client gang = {.gpus = (1ull << gpus) - 1,
							.fraction_ppm = 500000,
							.kernel_ns = 1 * MS};

			lease_sim_add(sim, &gang);
			for (uint32_t i = 0; i < gpus; i++) {
				struct lease_sim_client c = {.gpus = 1ull << i,
							     .fraction_ppm = 250000,
							     .kernel_ns = 1 * MS};

				lease_sim_set(sim, i, &setting);
				lease_sim_add(sim, &c);
				lease_sim_add(sim, &c);
			}
			go(sim, 600 * SEC);
			if (share(sim, 0) < 47 || share(sim, 0) > 51)
				fail_msg("a gang of %u got %.2f%%", gpus, share(sim, 0));
			assert_true(lease_sim_result(sim, 0).wait_longest_ns < 3 * SEC);
			for (uint32_t i = 1; i <= 2 * gpus; i++)
				assert_share(sim, i, 24.5, 1.5);
			lease_sim_free(sim);
		}
}

/* While a gang waits for one of its GPUs, whose kernels go on beyond their turn, others have the
 * rest of them. */
static void a_gang_that_waits_leaves_its_gpus_to_others(void **state)
{
	static const uint64_t leases[] = {50 * MS, 250 * MS}, overruns[] = {1 * MS, 100 * MS};

	for (size_t i = 0; i < ARRAY_SIZE(leases) * ARRAY_SIZE(overruns); i++) {
		struct lease_setting setting = {COMPUTE_FAIR, leases[i / 2],
						LEASE_GRANULARITY_DEFAULT};
		struct lease_sim *sim = sim_new(COMPUTE_FAIR, leases[i / 2]);

		lease_sim_set(sim, 1, &setting);
		lease_sim_add(sim, &(struct lease_sim_client){
					   .gpus = 3, .fraction_ppm = 500000, .kernel_ns = 1 * MS});
		busy(sim, 250000);
		lease_sim_add(sim, &(struct lease_sim_client){.gpus = 2,
							      .fraction_ppm = 500000,
							      .kernel_ns = overruns[i % 2],
							      .random = true});
		go(sim, 300 * SEC);
		assert_share(sim, 0, 50, 1);
		assert_share(sim, 1, 50, 1);
		assert_share(sim, 2, 50, 1);
		assert_true(lease_sim_wasted(sim, 0) < 3 * SEC);
		lease_sim_free(sim);
	}
}

/* A gang with a GPU that nobody else wants gets no more of the other one for it. */
static void a_gang_has_the_least_of_its_shares(void **state)
{
	struct lease_setting setting = {COMPUTE_FAIR, 250 * MS, LEASE_GRANULARITY_DEFAULT};
	struct lease_sim *sim = sim_new(COMPUTE_FAIR, 250 * MS);

	lease_sim_set(sim, 1, &setting);
	lease_sim_add(sim, &(struct lease_sim_client){
				   .gpus = 3, .fraction_ppm = 250000, .kernel_ns = 1 * MS});
	busy(sim, 500000);
	busy(sim, 250000);
	go(sim, 300 * SEC);
	assert_share(sim, 0, 25, 1.5);
	assert_share(sim, 1, 50, 1.5);
	assert_share(sim, 2, 25, 1.5);
	lease_sim_free(sim);
}

/* Gangs that overlap in a ring all get on. */
static void overlapping_gangs(void **state)
{
	struct lease_setting setting = {COMPUTE_FAIR, 50 * MS, LEASE_GRANULARITY_DEFAULT};
	struct lease_sim *sim = sim_new(COMPUTE_FAIR, 50 * MS);

	for (uint32_t i = 0; i < 5; i++) {
		struct lease_sim_client c = {.gpus = 1ull << i | 1ull << (i + 1) % 5,
					     .fraction_ppm = 300000,
					     .kernel_ns = 1 * MS};

		lease_sim_set(sim, i, &setting);
		lease_sim_add(sim, &c);
	}
	go(sim, 300 * SEC);
	for (uint32_t i = 0; i < 5; i++) {
		/* Two of five at a time. */
		assert_true(share(sim, i) > 30);
		assert_true(lease_sim_result(sim, i).wait_longest_ns < 2 * SEC);
	}
	lease_sim_free(sim);
}

/* Both GPUs are wanted, and on one of them turns overrun by up to many leases. The gang has what it
 * asked for all the same, and so have the others. */
static void a_gang_beside_long_kernels(void **state)
{
	static const uint64_t sets[][2] = {
		{50 * MS, 200 * MS}, {50 * MS, 500 * MS}, {5 * MS, 500 * MS}, {250 * MS, 500 * MS}};

	for (enum compute_mode mode = COMPUTE_FAIR; mode <= COMPUTE_STRICT; mode++)
		for (size_t i = 0; i < ARRAY_SIZE(sets); i++) {
			struct lease_sim *sim = sim_new(mode, sets[i][0]);
			double rest = mode == COMPUTE_FAIR ? 69.3 : 60;

			set_all(sim, 2, mode, sets[i][0]);
			add(sim, 3, 300000, 0);
			add(sim, 2, 600000, 0);
			add(sim, 1, 600000, sets[i][1]);
			go(sim, 300 * SEC);
			assert_share(sim, 0, 29.9, 0.5);
			assert_share(sim, 1, rest, 1);
			assert_share(sim, 2, rest, 1);
			lease_sim_free(sim);
		}
}

/* A drain that is longer than any before: the other GPU of the gang that waits for it goes on. */
static void a_first_long_drain_holds_up_no_other_gpu(void **state)
{
	for (enum compute_mode mode = COMPUTE_FAIR; mode <= COMPUTE_STRICT; mode++) {
		struct lease_sim *sim = sim_new(mode, 50 * MS);

		set_all(sim, 2, mode, 50 * MS);
		add(sim, 3, 300000, 0);
		add(sim, 2, 600000, 0);
		lease_sim_add(sim, &(struct lease_sim_client){.gpus = 1,
							      .fraction_ppm = 600000,
							      .drain_ns = 4 * SEC,
							      .arrives = 10 * SEC});
		go(sim, 10 * SEC);
		double before = busy_ns(sim, 1);
		go(sim, 14 * SEC);
		double had = (busy_ns(sim, 1) - before) / 4e7;
		double due = mode == COMPUTE_FAIR ? 95 : 57;
		if (had < due)
			fail_msg("mode %d: it had %.1f%% of the GPU beside, not %.0f%%", mode, had,
				 due);
		lease_sim_free(sim);
	}
}

/* GPUs whose leases are not as long as each other. */
static void a_gang_over_unlike_leases(void **state)
{
	struct lease_sim *sim = sim_new(COMPUTE_STRICT, 50 * MS);
	struct lease_setting slow = {COMPUTE_STRICT, 1 * SEC, LEASE_GRANULARITY_DEFAULT};

	lease_sim_set(sim, 1, &slow);
	add(sim, 3, 300000, 0);
	add(sim, 2, 600000, 0);
	add(sim, 1, 600000, 0);
	go(sim, 300 * SEC);
	assert_share(sim, 0, 29.5, 1);
	assert_share(sim, 1, 60, 1);
	assert_share(sim, 2, 60, 1);
	lease_sim_free(sim);
}

/* Gangs of which only one runs at a time are not owed what they never could have: who comes later
 * has its share from its first second on. */
static void time_that_gangs_can_not_have_is_no_debt(void **state)
{
	for (enum compute_mode mode = COMPUTE_FAIR; mode <= COMPUTE_STRICT; mode++) {
		struct lease_sim *sim = sim_new(mode, 50 * MS);

		set_all(sim, 3, mode, 50 * MS);
		add(sim, 3, 500000, 0);
		add(sim, 6, 500000, 0);
		lease_sim_add(sim, &(struct lease_sim_client){
					   .gpus = 5, .fraction_ppm = 500000, .leaves = 100 * SEC});
		lease_sim_add(sim, &(struct lease_sim_client){.gpus = 1,
							      .fraction_ppm = 500000,
							      .arrives = 100 * SEC});
		go(sim, 101 * SEC);
		if (busy_ns(sim, 3) < 0.4e9)
			fail_msg("mode %d: it had %.1f%%", mode, busy_ns(sim, 3) / 1e7);
		lease_sim_free(sim);
	}
}

/* Two gangs with one GPU in common: the one that does not wait for long kernels itself waits for
 * the one that does, and is no worse off. */
static void gangs_in_a_row_wait_for_long_kernels_alike(void **state)
{
	struct lease_sim *sim = sim_new(COMPUTE_STRICT, 50 * MS);

	set_all(sim, 3, COMPUTE_STRICT, 50 * MS);
	add(sim, 3, 300000, 0);
	add(sim, 6, 300000, 0);
	add(sim, 1, 600000, 500 * MS);
	add(sim, 2, 350000, 0);
	add(sim, 4, 600000, 0);
	go(sim, 300 * SEC);
	assert_share(sim, 0, share(sim, 1), 1);
	assert_share(sim, 0, 23, 2);
	assert_share(sim, 3, 35, 1);
	assert_share(sim, 4, 60, 1);
	lease_sim_free(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gangs),
		cmocka_unit_test(a_gang_that_waits_leaves_its_gpus_to_others),
		cmocka_unit_test(a_gang_has_the_least_of_its_shares),
		cmocka_unit_test(overlapping_gangs),
		cmocka_unit_test(a_gang_beside_long_kernels),
		cmocka_unit_test(a_first_long_drain_holds_up_no_other_gpu),
		cmocka_unit_test(a_gang_over_unlike_leases),
		cmocka_unit_test(time_that_gangs_can_not_have_is_no_debt),
		cmocka_unit_test(gangs_in_a_row_wait_for_long_kernels_alike),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
