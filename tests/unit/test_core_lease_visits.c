/* The lease policy for clients that come and go (src/core/lease_sim.h), and to those
 * beside them: visits, and what is owed for them. */
#include "base/macros.h"
#include "core/lease_table.h"
#include "test_core_lease.h"

/* Others that come and go every second don't take from one that stays. */
static void coming_and_going(void **state)
{
	for (enum compute_mode mode = COMPUTE_FAIR; mode <= COMPUTE_STRICT; mode++) {
		struct lease_sim *sim = sim_new(mode, 250 * MS);

		busy(sim, 500000);
		for (uint64_t i = 0; i < 240; i++) {
			struct lease_sim_client c = {.gpus = 1,
						     .fraction_ppm = 250000,
						     .kernel_ns = 1 * MS,
						     .arrives = i / 2 * SEC + i % 2 * 300 * MS};

			c.leaves = c.arrives + 1 * SEC;
			lease_sim_add(sim, &c);
		}
		go(sim, 120 * SEC);
		if (share(sim, 0) < 49.5)
			fail_msg("the one that stays got %.2f%%", share(sim, 0));
		lease_sim_free(sim);
	}
}

/* Sessions of a second or less, one after the other in three places, beside two that stay. */
static void sessions_that_come_and_go_take_no_share_of_others(void **state)
{
	static const uint64_t lives[] = {400 * MS, 1 * SEC, 3 * SEC};

	for (enum compute_mode mode = COMPUTE_FAIR; mode <= COMPUTE_STRICT; mode++)
		for (size_t i = 0; i < ARRAY_SIZE(lives); i++) {
			struct lease_sim *sim = sim_new(mode, 250 * MS);
			uint32_t quarter = busy(sim, 250000), more = busy(sim, 400000);

			for (uint64_t at = 1 * SEC; at < 61 * SEC; at += lives[i] / 3)
				assert_true(lease_sim_add(sim, &(struct lease_sim_client){
								       .gpus = 1,
								       .fraction_ppm = 100000,
								       .kernel_ns = 1 * MS,
								       .arrives = at,
								       .leaves = at + lives[i] -
										 20 * MS}) >= 0);
			go(sim, 61 * SEC);
			assert_true(share(sim, quarter) > 24 && share(sim, more) > 39);
			if (mode == COMPUTE_STRICT)
				assert_true(share(sim, quarter) < 26 && share(sim, more) < 41);
			lease_sim_free(sim);
		}
}

/* The next client of their owner pays for the time that they did not pay for. Their kernels are
 * longer than their turn, one a visit, though each comes as soon as the last has gone. */
static void visits_of_one_kernel_have_their_share(void **state)
{
	static const uint64_t kernels[] = {5 * MS, 20 * MS, 100 * MS, 1 * SEC};

	for (enum compute_mode mode = COMPUTE_FAIR; mode <= COMPUTE_STRICT; mode++)
		for (size_t i = 0; i < 2 * ARRAY_SIZE(kernels); i++) {
			struct lease_sim *sim = sim_new(mode, 50 * MS);
			struct lease_sim_client visitor = {.owner = 7,
							   .gpus = 1,
							   .fraction_ppm = 50000,
							   .work_ns = kernels[i / 2],
							   .rest_ns = 20 * MS,
							   .drain_ns = kernels[i / 2],
							   .visits = true};
			uint32_t stays = busy(sim, 900000);
			/* One visitor at a time, or two of half the share. */
			visitor.fraction_ppm /= (uint32_t)(1 + i % 2);
			for (size_t n = 0; n <= i % 2; n++)
				assert_true(lease_sim_add(sim, &visitor) > 0);
			go(sim, 300 * SEC);
			if (share(sim, stays) < 88)
				fail_msg("mode %d, kernels of %llu ms, %zu: %.2f%%\n", mode,
					 kernels[i / 2] / MS, 1 + i % 2, share(sim, stays));
			lease_sim_free(sim);
		}
}

/* The time of one that pauses, beside bursts of one kernel: those of visits, or of one that stays.
 */
static double beside_bursts(enum compute_mode mode, uint64_t kernel, uint64_t work, bool visits)
{
	struct lease_sim *sim = sim_new(mode, 50 * MS);
	double had;

	lease_sim_add(sim, &(struct lease_sim_client){.gpus = 1,
						      .fraction_ppm = 900000,
						      .work_ns = work,
						      .rest_ns = work / 30,
						      .kernel_ns = 1 * MS});
	lease_sim_add(sim, &(struct lease_sim_client){.owner = 7,
						      .gpus = 1,
						      .fraction_ppm = 50000,
						      .work_ns = kernel,
						      .rest_ns = 20 * MS,
						      .drain_ns = kernel,
						      .visits = visits});
	go(sim, 300 * SEC);
	had = share(sim, 0);
	lease_sim_free(sim);
	return had;
}

/* In fair mode whoever wants has the GPU when the others pause, and a kernel of any length: visits
 * have no more of that than one that stays. */
static void visits_have_no_more_than_one_that_stays(void **state)
{
	static const uint64_t kernels[] = {5 * MS, 20 * MS, 100 * MS, 1 * SEC};

	for (enum compute_mode mode = COMPUTE_FAIR; mode <= COMPUTE_STRICT; mode++)
		for (size_t i = 0; i < 2 * ARRAY_SIZE(kernels); i++) {
			uint64_t kernel = kernels[i / 2], work = i % 2 ? 20 * MS : 200 * MS;
			double visits = beside_bursts(mode, kernel, work, true);
			double stays = beside_bursts(mode, kernel, work, false);

			if (visits < stays - 5)
				fail_msg("mode %d, %llu ms: %.1f%% beside visits, %.1f%%", mode,
					 kernel / MS, visits, stays);
		}
}

/* They cost nobody else his first turn: it comes when that of one or both of them has ended. */
static void visits_delay_no_newcomer_of_others(void **state)
{
	for (enum compute_mode mode = COMPUTE_FAIR; mode <= COMPUTE_STRICT; mode++) {
		struct lease_sim *sim = sim_new(mode, 50 * MS);
		struct lease_sim_client visitor = {.owner = 7,
						   .gpus = 1,
						   .fraction_ppm = 50000,
						   .work_ns = 100 * MS,
						   .rest_ns = 5 * MS,
						   .drain_ns = 100 * MS,
						   .visits = true};

		busy(sim, 800000);
		assert_true(lease_sim_add(sim, &visitor) == 1);
		assert_true(lease_sim_add(sim, &visitor) == 2);
		for (uint64_t at = 1 * SEC; at < 100 * SEC; at += 1370 * MS) {
			int new =
				lease_sim_add(sim, &(struct lease_sim_client){.owner = 8,
									      .gpus = 1,
									      .fraction_ppm = 50000,
									      .work_ns = 1 * MS,
									      .rest_ns = 900 * SEC,
									      .arrives = at,
									      .leaves = at + SEC});

			go(sim, at + SEC);
			struct lease_sim_result r = lease_sim_result(sim, (uint32_t) new);
			assert_true(r.bursts == 1);
			if (r.wait_longest_ns > 260 * MS)
				fail_msg("mode %d, at %llu ms: waited %llu ms", mode, at / MS,
					 r.wait_longest_ns / MS);
		}
		lease_sim_free(sim);
	}
}

/* The same of what is nobody's: two without a share, one of which comes and goes. */
static void visits_without_a_share_have_their_turns(void **state)
{
	for (enum compute_mode mode = COMPUTE_FAIR; mode <= COMPUTE_STRICT; mode++)
		for (uint32_t promised = 0; promised <= 500000; promised += 500000) {
			struct lease_sim *sim = sim_new(mode, 50 * MS);
			uint32_t stays = busy(sim, 0);
			double half = promised ? mode == COMPUTE_FAIR ? 16.6 : 25 : 50;

			assert_true(
				lease_sim_add(sim, &(struct lease_sim_client){.owner = 7,
									      .gpus = 1,
									      .work_ns = 300 * MS,
									      .rest_ns = 2 * MS,
									      .drain_ns = 300 * MS,
									      .visits = true}) > 0);
			if (promised)
				busy(sim, promised);
			go(sim, 300 * SEC);
			if (share(sim, stays) < half - 2)
				fail_msg("mode %d, %u promised: %.2f%%", mode, promised,
					 share(sim, stays));
			lease_sim_free(sim);
		}
}

/* One visit by hand: it comes, has a turn of `ns`, goes. When its turn began. */
static uint64_t visit(struct lease_table *t, uint64_t id, uint64_t owner, uint32_t fraction,
		      uint64_t ns, uint64_t now)
{
	uint64_t next;

	assert_int_equal(lease_client_add(t, id, owner, 1, fraction, now), 0);
	lease_wants(t, id, true, now);
	for (;;) {
		struct lease_action a = lease_next(t, now, &next);

		if (a.kind == LEASE_GRANT)
			break;
		assert_int_equal(a.kind, LEASE_NONE);
		assert_true(next != UINT64_MAX);
		now = next;
	}
	lease_opened(t, id, now);
	lease_client_remove(t, id, now + ns);
	return now;
}

static struct lease_table *strict_table(void)
{
	struct lease_setting setting = {COMPUTE_STRICT, 50 * MS, LEASE_GRANULARITY_DEFAULT};
	struct lease_table *t = lease_table_new();

	lease_set(t, 0, &setting, 0);
	return t;
}

/* A debt of an owner keeps his next client waiting, as long as it would have kept him, and nobody
 * else. */
static void debts_are_their_owners(void **state)
{
	struct lease_table *t = strict_table();

	assert_true(visit(t, 1, 7, 100000, 500 * MS, 0) == 0);
	assert_true(visit(t, 2, 8, 100000, 500 * MS, 1 * SEC) == 1 * SEC);
	/* 0.5 s of 10% are 5 s. */
	assert_in_range(visit(t, 3, 7, 100000, 1 * MS, 2 * SEC), 4990 * MS, 5010 * MS);
	/* A debt that is forgiven is forgiven; and so is time that nobody waited for. */
	assert_true(visit(t, 4, 8, 100000, 1 * MS, 8 * SEC) == 8 * SEC);
	/* Twice the share pays what is left in half the time. */
	assert_true(visit(t, 5, 7, 100000, 500 * MS, 20 * SEC) == 20 * SEC);
	assert_in_range(visit(t, 6, 7, 200000, 1 * MS, 21 * SEC), 22900 * MS, 23100 * MS);
	lease_table_free(t);
}

/* Each of several clients that come has the part that its share pays in that time, until all is
 * taken. */
static void debts_are_divided_by_share(void **state)
{
	struct lease_table *t = strict_table();
	uint64_t next, began[4] = {0};

	assert_true(visit(t, 9, 7, 100000, 500 * MS, 0) == 0);
	for (uint64_t id = 0; id < 4; id++) {
		assert_int_equal(lease_client_add(t, id, 7, 1, 40000, 1 * SEC), 0);
		lease_wants(t, id, true, 1 * SEC);
	}
	for (uint64_t now = 1 * SEC; now < 6 * SEC; now = next) {
		struct lease_action a = lease_next(t, now, &next);

		next = MIN(next, now + 1 * MS);
		if (a.kind == LEASE_GRANT)
			lease_opened(t, a.id, began[a.id] = now);
		else if (a.kind == LEASE_REVOKE)
			lease_closed(t, a.id, now);
		if (a.kind == LEASE_GRANT)
			lease_wants(t, a.id, false, now);
	}
	assert_in_range(began[0], 4900 * MS, 5200 * MS);
	assert_in_range(began[1], 4900 * MS, 5200 * MS);
	/* Half of it. */
	assert_in_range(began[2], 2900 * MS, 3200 * MS);
	assert_in_range(began[3], 1000 * MS, 1100 * MS);
	lease_table_free(t);
}

/* However much somebody owed: so long, or four plans. */
static void debts_put_nobody_off_for_long(void **state)
{
	static const uint64_t leases[] = {50 * MS, 10 * SEC}, most[] = {600 * SEC, 800 * SEC};

	for (size_t i = 0; i < ARRAY_SIZE(leases); i++) {
		struct lease_setting setting = {COMPUTE_STRICT, leases[i],
						LEASE_GRANULARITY_DEFAULT};
		struct lease_table *t = strict_table();

		lease_set(t, 0, &setting, 0);
		for (uint64_t id = 0; id < 5; id++)
			assert_int_equal(lease_client_add(t, id, 7, 1, 10000, 0), 0);
		for (uint64_t id = 0; id < 5; id++) {
			lease_opened(t, id, id * 100 * SEC);
			lease_closed(t, id, (id + 1) * 100 * SEC);
		}
		for (uint64_t id = 0; id < 5; id++)
			lease_client_remove(t, id, 501 * SEC);
		assert_in_range(visit(t, 9, 7, 10000, 1, 501 * SEC), 501 * SEC + most[i] - SEC,
				501 * SEC + most[i] + SEC);
		/* Settings that make plans shorter. */
		assert_int_equal(lease_client_add(t, 8, 6, 1, 10000, 2000 * SEC), 0);
		lease_opened(t, 8, 2000 * SEC);
		lease_client_remove(t, 8, 2100 * SEC);
		setting.lease_ns = 50 * MS;
		lease_set(t, 0, &setting, 2100 * SEC);
		assert_in_range(visit(t, 9, 6, 10000, 1, 2100 * SEC), 2699 * SEC, 2701 * SEC);
		lease_table_free(t);
	}
}

/* So many owners are remembered, those that owe most. */
static void the_smallest_debt_is_forgotten_first(void **state)
{
	const uint64_t owners = LEASE_DEBTS + 1, took = 450 * MS, last = owners * took + 50 * MS;

	for (uint64_t who = 0; who < owners; who++) {
		struct lease_table *t = strict_table();

		for (uint64_t i = 0; i < owners; i++)
			assert_true(visit(t, i, i, 5000, took - (i == 0) * 50 * MS, i * took) ==
				    i * took);
		uint64_t began = visit(t, 1000, who, 5000, 0, last);
		assert_true((began == last) == (who == 0));
		lease_table_free(t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(coming_and_going),
		cmocka_unit_test(sessions_that_come_and_go_take_no_share_of_others),
		cmocka_unit_test(visits_of_one_kernel_have_their_share),
		cmocka_unit_test(visits_have_no_more_than_one_that_stays),
		cmocka_unit_test(visits_delay_no_newcomer_of_others),
		cmocka_unit_test(visits_without_a_share_have_their_turns),
		cmocka_unit_test(debts_are_their_owners),
		cmocka_unit_test(debts_are_divided_by_share),
		cmocka_unit_test(debts_put_nobody_off_for_long),
		cmocka_unit_test(the_smallest_debt_is_forgotten_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
