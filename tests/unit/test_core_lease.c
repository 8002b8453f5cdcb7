/* The lease policy under imagined clients (src/core/lease_sim.h): hours of imagined time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/macros.h"
#include "core/lease_sim.h"

#define MS 1000000ull
#define SEC 1000000000ull

struct plan_books {
	uint64_t plan_ns;
	uint64_t held[8][64];
	uint64_t last_to[64]; /* by GPU: no two spans at once */
};

static void books_span(void *context, const struct lease_sim_span *span)
{
	struct plan_books *books = context;

	for (uint64_t at = span->from; at < span->to;) {
		uint64_t plan = at / books->plan_ns,
			 end = MIN(span->to, (plan + 1) * books->plan_ns);

		if (span->client < 8 && plan < 64)
			books->held[span->client][plan] += end - at;
		at = end;
	}
}

static struct lease_sim *sim_new(enum compute_mode mode, uint64_t lease_ns,
				 struct plan_books *books)
{
	struct lease_setting setting = {mode, lease_ns, LEASE_GRANULARITY_DEFAULT};
	struct lease_sim *sim = lease_sim_new(1, books ? books_span : NULL, books);

	assert_non_null(sim);
	if (books)
		*books = (struct plan_books){.plan_ns = lease_plan_ns(&setting)};
	lease_sim_set(sim, 0, &setting);
	return sim;
}

static uint32_t busy(struct lease_sim *sim, uint32_t fraction_ppm)
{
	int n = lease_sim_add(sim, &(struct lease_sim_client){.gpus = 1,
							      .fraction_ppm = fraction_ppm,
							      .kernel_ns = 1 * MS});

	assert_true(n >= 0);
	return (uint32_t)n;
}

static void go(struct lease_sim *sim, uint64_t until)
{
	if (lease_sim_run(sim, until) < 0)
		fail_msg("%s", lease_sim_fault(sim));
}

static double share(const struct lease_sim *sim, uint32_t client)
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

static void shares_of_busy_clients(void **state)
{
	static const uint32_t sets[][8] = {
		{250000, 750000},
		{500000, 300000, 200000},
		{100000, 900000},
		{125000, 125000, 125000, 125000, 125000, 125000, 125000, 125000},
		{330000, 340000, 330000},
		{10000, 990000},
	};
	static const uint64_t leases[] = {250 * MS, 50 * MS, 10 * MS, 5 * MS};

	for (size_t i = 0; i < ARRAY_SIZE(sets); i++)
		for (size_t l = 0; l < ARRAY_SIZE(leases); l++)
			for (enum compute_mode mode = COMPUTE_FAIR; mode <= COMPUTE_STRICT;
			     mode++) {
				struct lease_sim *sim = sim_new(mode, leases[l], NULL);
				/* A switch costs 0.1 ms of a lease. */
				double loss = 100.0 * 0.12 * MS / leases[l] * 1.2;

				for (uint32_t c = 0; c < 8 && sets[i][c]; c++)
					busy(sim, sets[i][c]);
				go(sim, 60 * SEC);
				for (uint32_t c = 0; c < 8 && sets[i][c]; c++)
					assert_share(sim, c, sets[i][c] / 10000.0, 0.2 + loss);
				lease_sim_free(sim);
			}
}

static void strict_leaves_time_idle(void **state)
{
	static const uint32_t alone[] = {250000, 10000, 330000, 500000, 1000000, 1000};

	for (size_t i = 0; i < ARRAY_SIZE(alone); i++) {
		struct lease_sim *sim = sim_new(COMPUTE_STRICT, 250 * MS, NULL);

		busy(sim, alone[i]);
		go(sim, 600 * SEC);
		assert_share(sim, 0, alone[i] / 10000.0, 0.05);
		lease_sim_free(sim);
	}
}

static void plans_are_exact(void **state)
{
	static const uint32_t set[] = {500000, 330000, 160000, 10000};
	struct plan_books books;
	struct lease_sim *sim = sim_new(COMPUTE_STRICT, 250 * MS, &books);

	for (size_t i = 0; i < ARRAY_SIZE(set); i++)
		busy(sim, set[i]);
	lease_sim_costs(sim, 0, 200000);
	go(sim, 301 * SEC);
	for (size_t i = 0; i < ARRAY_SIZE(set); i++)
		for (size_t plan = 0; plan < 60; plan++) {
			int64_t off = (int64_t)books.held[i][plan] - (int64_t)(5000ull * set[i]);

			if (llabs(off) > (int64_t)(20 * MS))
				fail_msg("client %zu: %lld us off in plan %zu", i, off / 1000ll,
					 plan);
		}
	lease_sim_free(sim);
}

static void memory_sized(void **state)
{
	for (enum compute_mode mode = COMPUTE_FAIR; mode <= COMPUTE_STRICT; mode++) {
		struct lease_sim *sim = sim_new(mode, 250 * MS, NULL);

		busy(sim, 0);
		go(sim, 60 * SEC);
		assert_share(sim, 0, 100, 0.1);
		lease_sim_free(sim);

		sim = sim_new(mode, 250 * MS, NULL);
		for (int i = 0; i < 3; i++)
			busy(sim, 0);
		go(sim, 60 * SEC);
		for (uint32_t i = 0; i < 3; i++)
			assert_share(sim, i, 33.3, 0.5);
		lease_sim_free(sim);

		sim = sim_new(mode, 250 * MS, NULL);
		busy(sim, 500000);
		busy(sim, 0);
		busy(sim, 0);
		go(sim, 60 * SEC);
		assert_share(sim, 0, mode == COMPUTE_STRICT ? 50 : 66.67, 0.5);
		assert_share(sim, 1, mode == COMPUTE_STRICT ? 25 : 16.67, 0.5);
		assert_share(sim, 2, mode == COMPUTE_STRICT ? 25 : 16.67, 0.5);
		lease_sim_free(sim);

		sim = sim_new(mode, 250 * MS, NULL);
		busy(sim, 250000);
		busy(sim, 750000);
		busy(sim, 0);
		busy(sim, 0);
		go(sim, 300 * SEC);
		assert_share(sim, 0, 24.75, 0.1);
		assert_share(sim, 1, 74.25, 0.1);
		assert_share(sim, 2, 0.5, 0.05);
		assert_share(sim, 3, 0.5, 0.05);
		lease_sim_free(sim);
	}
}

static void idle_time(void **state)
{
	for (enum compute_mode mode = COMPUTE_FAIR; mode <= COMPUTE_STRICT; mode++) {
		struct lease_sim *sim = sim_new(mode, 250 * MS, NULL);
		struct lease_sim_client idle = {
			.gpus = 1, .fraction_ppm = 500000, .work_ns = 1, .rest_ns = 1000 * SEC};

		busy(sim, 250000);
		busy(sim, 250000);
		assert_true(lease_sim_add(sim, &idle) == 2);
		go(sim, 60 * SEC);
		assert_share(sim, 0, mode == COMPUTE_STRICT ? 25 : 50, 0.5);
		assert_share(sim, 1, mode == COMPUTE_STRICT ? 25 : 50, 0.5);
		lease_sim_free(sim);
	}
}

/* A client whose leases end much too late pays for it. */
static void overruns_are_charged(void **state)
{
	for (enum compute_mode mode = COMPUTE_FAIR; mode <= COMPUTE_STRICT; mode++) {
		struct lease_sim *sim = sim_new(mode, 250 * MS, NULL);

		busy(sim, 500000);
		lease_sim_add(sim, &(struct lease_sim_client){.gpus = 1,
							      .fraction_ppm = 500000,
							      .kernel_ns = 1 * MS,
							      .drain_ns = 20 * MS});
		go(sim, 600 * SEC);
		assert_share(sim, 0, 50, 0.1);
		assert_share(sim, 1, 50, 0.1);
		assert_true(lease_sim_result(sim, 1).stat.overrun_ns > 10 * SEC);
		lease_sim_free(sim);
	}
}

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void random_settings(struct lease_sim *sim, uint64_t *rnd, uint32_t gpus)
{
	static const uint64_t leases[] = {250 * MS, 50 * MS, 10 * MS, 5 * MS, 2 * SEC};

	for (uint32_t gpu = 0; gpu < gpus; gpu++) {
		struct lease_setting setting = {
			(enum compute_mode)(random_next(rnd) % 8 ? 1 + random_next(rnd) % 2 : 0),
			leases[random_next(rnd) % ARRAY_SIZE(leases)],
			(uint32_t)(10000 + random_next(rnd) % 490000)};

		lease_sim_set(sim, gpu, &setting);
	}
}

static struct lease_sim_client random_client(uint64_t *rnd, uint64_t gpus, uint64_t until)
{
	uint64_t gpu = random_next(rnd) % gpus, mask = 1ull << gpu;
	struct lease_sim_client c = {.random = true};

	if (random_next(rnd) % 4 == 0)
		mask |= 1ull << (gpu + 1) % gpus | (random_next(rnd) & ((1ull << gpus) - 1));
	c.gpus = mask;
	c.fraction_ppm = random_next(rnd) % 3 ? (uint32_t)(random_next(rnd) % 300000) : 0;
	if (random_next(rnd) % 2) {
		c.work_ns = 1 + random_next(rnd) % (500 * MS);
		c.rest_ns = random_next(rnd) % SEC;
	}
	c.kernel_ns = random_next(rnd) % 3 ? 1 * MS : random_next(rnd) % (100 * MS);
	c.arrives = random_next(rnd) % until;
	if (random_next(rnd) % 2)
		c.leaves = c.arrives + 1 + random_next(rnd) % (10 * SEC);
	return c;
}

/* Anything goes, settings change every few seconds: nobody is granted what somebody has, actions
 * end, what is charged is what was used. */
static void rules_hold(void **state)
{
	for (uint64_t seed = 1; seed <= 40; seed++) {
		uint64_t rnd = seed * 0x9e3779b97f4a7c15ull, gpus = 1 + seed % 6;
		struct lease_sim *sim = lease_sim_new(seed, NULL, NULL);
		uint32_t clients = (uint32_t)(2 + random_next(&rnd) % 30);

		for (uint32_t i = 0; i < clients; i++) {
			struct lease_sim_client c = random_client(&rnd, gpus, 60 * SEC);

			assert_true(lease_sim_add(sim, &c) == (int)i);
		}
		for (uint64_t at = 0; at < 120 * SEC; at += 1 + random_next(&rnd) % (10 * SEC)) {
			if (lease_sim_run(sim, at) < 0)
				fail_msg("seed %lu: %s", seed, lease_sim_fault(sim));
			random_settings(sim, &rnd, (uint32_t)gpus);
		}
		for (uint32_t i = 0; i < clients; i++) {
			struct lease_sim_result r = lease_sim_result(sim, i);

			if (r.busy_ns - r.free_ns > r.stat.held_ns)
				fail_msg("seed %lu: client %u used %lu, was charged %lu", seed, i,
					 r.busy_ns - r.free_ns, r.stat.held_ns);
		}
		lease_sim_free(sim);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shares_of_busy_clients),
		cmocka_unit_test(strict_leaves_time_idle),
		cmocka_unit_test(plans_are_exact),
		cmocka_unit_test(memory_sized),
		cmocka_unit_test(idle_time),
		cmocka_unit_test(overruns_are_charged),
		cmocka_unit_test(rules_hold),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
