/* The time that the lease policy gives to imagined clients (src/core/lease_sim.h): shares, and
 * single cases, over hours of imagined time. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/macros.h"
#include "test_core_lease.h"

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
				struct lease_sim *sim = sim_new(mode, leases[l]);
				/* A switch costs 0.1 ms of a lease. */
				double loss = 100.0 * 0.12 * MS / (double)leases[l] * 1.2;

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
		struct lease_sim *sim = sim_new(COMPUTE_STRICT, 250 * MS);

		busy(sim, alone[i]);
		go(sim, 600 * SEC);
		assert_share(sim, 0, alone[i] / 10000.0, 0.05);
		lease_sim_free(sim);
	}
}

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

static void plans_are_exact(void **state)
{
	static const uint32_t set[] = {500000, 330000, 160000, 10000};
	struct lease_setting setting = {COMPUTE_STRICT, 250 * MS, LEASE_GRANULARITY_DEFAULT};
	struct plan_books books = {.plan_ns = lease_plan_ns(&setting)};
	struct lease_sim *sim = lease_sim_new(1, books_span, &books);

	lease_sim_set(sim, 0, &setting);

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

#define BIN (5 * MS)
#define BINS 12000u

struct bins {
	uint64_t held[8][BINS + 1];
};

static void bins_span(void *context, const struct lease_sim_span *span)
{
	struct bins *bins = context;

	for (uint64_t at = span->from; at < span->to;) {
		uint64_t end = MIN(span->to, (at / BIN + 1) * BIN);

		if (at / BIN < BINS)
			bins->held[span->client][at / BIN] += end - at;
		at = end;
	}
}

/* Points that the worst of all stretches as long as a plan is off. */
static double worst_stretch(const struct bins *bins, const uint32_t *fractions, size_t count,
			    uint64_t from, uint64_t to)
{
	const size_t length = 5 * SEC / BIN, begin = from / BIN;
	double worst = 0;

	for (size_t c = 0; c < count; c++) {
		uint64_t had = 0;

		for (size_t i = begin; i < to / BIN; i++) {
			had += bins->held[c][i];
			if (i < begin + length)
				continue;
			had -= bins->held[c][i - length];
			worst = MAX(worst, fabs(100.0 * (double)had / (double)(length * BIN) -
						fractions[c] / 1e4));
		}
	}
	return worst;
}

static void newcomers(struct lease_sim *sim, uint64_t seed, const uint32_t *set, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct lease_sim_client c = {.gpus = 1,
					     .fraction_ppm = set[i],
					     .kernel_ns = 1 * MS,
					     .drain_ns = 100000,
					     .random = true,
					     .arrives = seed * 977 * i % 400 * MS};

		assert_true(lease_sim_add(sim, &c) == (int)i);
	}
}

/* Wherever it begins: turns come in the same order again and again, though kernels take a little
 * more each time. The worst of the stretches of the first two plans is a lease off and a bit, as
 * their turns are short. From when they all are there, or two seconds later, the worst of the plans
 * is half of that off. */
static void any_stretch_as_long_as_a_plan_has_its_shares(void **state)
{
	static const uint32_t sets[][8] = {
		{250000, 750000},
		{500000, 300000, 200000},
		{125000, 125000, 125000, 125000, 125000, 125000, 125000, 125000},
	};
	static const struct {
		uint64_t from, to;
		double most;
	} stretches[] = {
		{12 * SEC, BINS * BIN, 1},           {400 * MS, 12 * SEC, 5.5},
		{400 * MS, 5 * SEC + 410 * MS, 3.2}, {2 * SEC, 7 * SEC + 10 * MS, 3},
		{7 * SEC, 12 * SEC + 10 * MS, 3},
	};

	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct lease_setting setting = {COMPUTE_STRICT, 250 * MS,
						LEASE_GRANULARITY_DEFAULT};
		const uint32_t *set = sets[seed % ARRAY_SIZE(sets)];
		struct bins *bins = calloc(1, sizeof(*bins));
		struct lease_sim *sim = lease_sim_new(seed, bins_span, bins);
		size_t count = 0;

		while (count < 8 && set[count])
			count++;
		lease_sim_set(sim, 0, &setting);
		newcomers(sim, seed, set, count);
		go(sim, BINS * BIN + SEC);
		for (size_t i = 0; i < ARRAY_SIZE(stretches); i++) {
			double worst =
				worst_stretch(bins, set, count, stretches[i].from, stretches[i].to);

			if (worst > stretches[i].most)
				fail_msg("seed %lu: %.2f points from %lu ms on", seed, worst,
					 stretches[i].from / MS);
		}
		lease_sim_free(sim);
		free(bins);
	}
}

static void memory_sized(void **state)
{
	for (enum compute_mode mode = COMPUTE_FAIR; mode <= COMPUTE_STRICT; mode++) {
		struct lease_sim *sim = sim_new(mode, 250 * MS);

		busy(sim, 0);
		go(sim, 60 * SEC);
		assert_share(sim, 0, 100, 0.1);
		lease_sim_free(sim);

		sim = sim_new(mode, 250 * MS);
		for (int i = 0; i < 3; i++)
			busy(sim, 0);
		go(sim, 60 * SEC);
		for (uint32_t i = 0; i < 3; i++)
			assert_share(sim, i, 33.3, 0.5);
		lease_sim_free(sim);

		sim = sim_new(mode, 250 * MS);
		busy(sim, 500000);
		busy(sim, 0);
		busy(sim, 0);
		go(sim, 60 * SEC);
		assert_share(sim, 0, mode == COMPUTE_STRICT ? 50 : 66.67, 0.5);
		assert_share(sim, 1, mode == COMPUTE_STRICT ? 25 : 16.67, 0.5);
		assert_share(sim, 2, mode == COMPUTE_STRICT ? 25 : 16.67, 0.5);
		lease_sim_free(sim);

		sim = sim_new(mode, 250 * MS);
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
		struct lease_sim *sim = sim_new(mode, 250 * MS);
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
		struct lease_sim *sim = sim_new(mode, 250 * MS);

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

/* Two that always want, by hand, until then; what each had its gate open for is added to `held`. */
static void alternate(struct lease_table *t, uint64_t from, uint64_t until, uint64_t held[3])
{
	uint64_t opened = from, next = from;

	for (uint64_t now = from; now < until; now = MIN(next, until)) {
		struct lease_action a = lease_next(t, now, &next);

		for (; a.kind != LEASE_NONE; a = lease_next(t, now, &next)) {
			if (a.kind == LEASE_GRANT) {
				lease_opened(t, a.id, now);
				opened = now;
			} else if (a.kind == LEASE_REVOKE) {
				held[a.id] += now - opened;
				lease_closed(t, a.id, now);
			}
		}
	}
}

/* Work that a drain was not waited for any longer is paid for by its client, when it has ended. */
static void leaked_work_is_charged(void **state)
{
	static const uint32_t fractions[] = {500000, 0};

	for (enum compute_mode mode = COMPUTE_FAIR; mode <= COMPUTE_STRICT; mode++)
		for (size_t i = 0; i < ARRAY_SIZE(fractions); i++) {
			struct lease_setting setting = {mode, 250 * MS, LEASE_GRANULARITY_DEFAULT};
			struct lease_table *t = lease_table_new();
			uint64_t held[3] = {0};
			struct lease_client_stat stat;

			lease_set(t, 0, &setting, 0);
			for (uint64_t id = 1; id <= 2; id++) {
				lease_client_add(t, id, 0, 1, fractions[i], 0);
				lease_wants(t, id, true, 0);
			}
			alternate(t, 0, 2 * SEC, held);
			lease_leaked(t, 1, 3 * SEC, 2 * SEC);
			alternate(t, 2 * SEC, 60 * SEC, held);
			int64_t off = (int64_t)(held[1] + 3 * SEC) - (int64_t)held[2];
			if (llabs(off) > (int64_t)(600 * MS))
				fail_msg("mode %d, fraction %u: %ld ms off", mode, fractions[i],
					 off / (int64_t)MS);
			lease_client_stat(t, 1, 60 * SEC, &stat);
			assert_true(stat.overrun_ns >= 3 * SEC);
			lease_table_free(t);
		}
}

/* A new client's first turn comes at once in fair mode, and next in strict mode, though others have
 * waited for long; its share is none the larger for it. */
static void a_first_turn_comes_soon(void **state)
{
	for (enum compute_mode mode = COMPUTE_FAIR; mode <= COMPUTE_STRICT; mode++) {
		struct lease_sim *sim = sim_new(mode, 250 * MS);
		uint64_t arrives = 10 * SEC + 30 * MS;
		uint64_t soon = mode == COMPUTE_FAIR ? 20 * MS : 300 * MS;

		for (int i = 0; i < 3; i++)
			busy(sim, 300000);
		int new = lease_sim_add(sim, &(struct lease_sim_client){.gpus = 1,
									.fraction_ppm = 100000,
									.kernel_ns = 1 * MS,
									.arrives = arrives});
		go(sim, arrives + soon);
		if (!lease_sim_result(sim, (uint32_t) new).busy_ns)
			fail_msg("mode %d: no turn within %lu ms", mode, soon / MS);
		go(sim, arrives + 60 * SEC);
		uint64_t had = lease_sim_result(sim, (uint32_t) new).busy_ns;
		assert_true(had > 5700 * MS && had < 6300 * MS);
		lease_sim_free(sim);
	}
}

static double jain(const double *x, uint32_t n)
{
	double sum = 0, squares = 0;

	for (uint32_t i = 0; i < n; i++) {
		sum += x[i];
		squares += x[i] * x[i];
	}
	return sum * sum / (n * squares);
}

static void equals_get_the_same(void **state)
{
	static const uint32_t fractions[] = {0, 125000, 50000};
	static const uint64_t kernels[] = {50000, 1 * MS, 5 * MS, 20 * MS, 100 * MS};

	for (size_t k = 0; k < ARRAY_SIZE(fractions); k++)
		for (enum compute_mode mode = COMPUTE_FAIR; mode <= COMPUTE_STRICT; mode++) {
			struct lease_sim *sim = sim_new(mode, 250 * MS);
			double got[8];

			for (uint32_t i = 0; i < 8; i++) {
				struct lease_sim_client c = {
					.gpus = 1,
					.fraction_ppm = fractions[k],
					.random = true,
					.kernel_ns = kernels[i % ARRAY_SIZE(kernels)]};

				assert_true(lease_sim_add(sim, &c) == (int)i);
			}
			go(sim, 300 * SEC);
			for (uint32_t i = 0; i < 8; i++)
				got[i] = share(sim, i);
			assert_true(jain(got, 8) >= 0.999);
			lease_sim_free(sim);
		}
}

/* ---- single cases ---- */

/* A strict client that slept a plan has what it slept through, once, where time is left. */
static void slept_through(void **state)
{
	struct lease_sim *sim = sim_new(COMPUTE_STRICT, 250 * MS);
	struct lease_sim_client c = {
		.gpus = 1, .fraction_ppm = 250000, .work_ns = 1, .rest_ns = 100 * SEC};

	lease_sim_add(sim, &c);
	go(sim, 50 * SEC);
	lease_sim_add(sim, &(struct lease_sim_client){
				   .gpus = 1, .fraction_ppm = 750000, .arrives = 200 * SEC});
	go(sim, 100 * SEC);
	lease_sim_free(sim);

	sim = sim_new(COMPUTE_STRICT, 250 * MS);
	c.work_ns = 2500 * MS;
	c.rest_ns = 60 * SEC;
	lease_sim_add(sim, &c);
	go(sim, 200 * SEC);
	struct lease_sim_result r = lease_sim_result(sim, 0);
	/* 1.25 s saved, 0.25 s a second: the first burst took 9.25 s, later ones not 4.5 s. */
	assert_true(r.bursts >= 3 && r.burst_longest_ns > 9 * SEC);
	assert_true(r.burst_sum_ns < r.burst_longest_ns + (r.bursts - 1) * 5 * SEC);
	lease_sim_free(sim);
}

/* 5 ms of work, 10% of the time, beside others that never end. */
static void interactive_beside_batch(void **state)
{
	static const uint32_t sets[][3] = {
		{500000, 500000, 0}, {250000, 750000, 0}, {0, 0, 0}, {500000, 250000, 250000}};

	for (size_t i = 0; i < ARRAY_SIZE(sets); i++) {
		struct lease_sim *sim = sim_new(COMPUTE_FAIR, 250 * MS);
		struct lease_sim_client job = {.gpus = 1,
					       .fraction_ppm = sets[i][0],
					       .arrives = 1 * SEC,
					       .work_ns = 5 * MS,
					       .rest_ns = 45 * MS};

		lease_sim_add(sim, &job);
		busy(sim, sets[i][1]);
		if (sets[i][2])
			busy(sim, sets[i][2]);
		go(sim, 10 * SEC);
		struct lease_sim_result before = lease_sim_result(sim, 0);
		lease_sim_forget(sim);
		go(sim, 600 * SEC);
		struct lease_sim_result r = lease_sim_result(sim, 0);
		double mean = (double)(r.burst_sum_ns - before.burst_sum_ns) /
			      (double)(r.bursts - before.bursts);
		if (r.burst_longest_ns > 25 * MS || mean > 8 * MS)
			fail_msg("set %zu: longest %lu us, mean %.0f us", i,
				 r.burst_longest_ns / 1000, mean / 1000);
		assert_true(!sets[i][2] || lease_sim_result(sim, 1).stat.preempted > 1000);
		assert_share(sim, 1, sets[i][2] ? 44 : 88, 3);
		lease_sim_free(sim);
	}
}

/* The same from its first moment on, with little more of a share than it uses. It is owed little
 * then, but asks for no more at a time. */
static void interactive_newcomer(void **state)
{
	static const uint32_t fractions[] = {300000, 200000, 150000, 120000, 100000};
	static const uint64_t leases[] = {250 * MS, 50 * MS};

	for (size_t i = 0; i < ARRAY_SIZE(fractions) * ARRAY_SIZE(leases); i++) {
		struct lease_sim *sim = sim_new(COMPUTE_FAIR, leases[i % 2]);
		uint32_t fraction = fractions[i / 2];

		lease_sim_add(sim, &(struct lease_sim_client){.gpus = 1,
							      .fraction_ppm = fraction,
							      .arrives = 6 * SEC,
							      .work_ns = 5 * MS,
							      .rest_ns = 45 * MS});
		busy(sim, 600000);
		go(sim, 66 * SEC);
		struct lease_sim_result r = lease_sim_result(sim, 0);
		/* With no more than it uses it is owed its next burst only some time later. */
		uint64_t most = fraction == 100000 ? 300 * MS : i % 2 ? 60 * MS : 25 * MS;
		if (r.burst_longest_ns > most || r.burst_sum_ns > r.bursts * 8 * MS)
			fail_msg("%u ppm, leases of %llu ms: longest %.1f ms, mean %.1f ms",
				 fraction, leases[i % 2] / MS, (double)r.burst_longest_ns / 1e6,
				 (double)r.burst_sum_ns / (double)r.bursts / 1e6);
		assert_share(sim, 1, 90, 1);
		lease_sim_free(sim);
	}
}

/* Time left to others as excess isn't owed to one that slept. */
static void excess_is_not_saved(void **state)
{
	struct lease_sim *sim = sim_new(COMPUTE_FAIR, 250 * MS);
	struct lease_sim_client c = {.gpus = 1, .work_ns = 20 * SEC, .rest_ns = 60 * SEC};

	lease_sim_add(sim, &c);
	busy(sim, 0);
	go(sim, 1000 * SEC);
	struct lease_sim_result r = lease_sim_result(sim, 0);
	assert_true(r.bursts > 5 && r.burst_sum_ns / r.bursts > 38 * SEC);
	lease_sim_free(sim);
}

struct overlap {
	uint64_t ends[2], spans;
};

static void overlap_span(void *context, const struct lease_sim_span *span)
{
	struct overlap *o = context;

	if (o->spans < 2)
		o->ends[o->spans] = span->to;
	o->spans++;
}

/* Both ran as they liked; when the mode is switched on both have to stop before one may go on. */
static void switching_on_while_several_run(void **state)
{
	struct overlap o = {0};
	struct lease_setting setting = {COMPUTE_FAIR, 250 * MS, LEASE_GRANULARITY_DEFAULT};
	struct lease_sim *sim = lease_sim_new(1, overlap_span, &o);

	busy(sim, 500000);
	busy(sim, 500000);
	go(sim, 1 * SEC);
	lease_sim_set(sim, 0, &setting);
	go(sim, 2 * SEC);
	assert_true(o.spans > 2 && o.ends[0] < 1010 * MS && o.ends[1] < 1010 * MS);
	lease_sim_free(sim);
}

/* One that is gone between its grant and its gate's opening leaves no trace. */
static void gone_before_it_was_opened(void **state)
{
	struct lease_setting setting = {COMPUTE_STRICT, 250 * MS, LEASE_GRANULARITY_DEFAULT};
	struct lease_table *t = lease_table_new();
	uint64_t next;

	lease_set(t, 0, &setting, 0);
	assert_int_equal(lease_client_add(t, 1, 0, 1, 500000, 0), 0);
	assert_int_equal(lease_client_add(t, 1, 0, 1, 500000, 0), -EEXIST);
	assert_int_equal(lease_client_add(t, 2, 0, 0, 500000, 0), -EINVAL);
	assert_int_equal(lease_client_add(t, 2, 0, 1, 500000, 0), 0);
	lease_wants(t, 1, true, 0);
	assert_int_equal(lease_next(t, 0, &next).kind, LEASE_GRANT);
	lease_client_remove(t, 1, 1 * MS);
	lease_wants(t, 2, true, 1 * MS);
	struct lease_action a = lease_next(t, 1 * MS, &next);
	/* A newcomer's first one is short. */
	uint64_t until = a.until;
	assert_true(a.kind == LEASE_GRANT && a.id == 2 && until > 20 * MS && until < 100 * MS);
	lease_opened(t, 2, 1 * MS);
	assert_int_equal(lease_next(t, 1 * MS, &next).kind, LEASE_NONE);
	assert_true(next == until);
	assert_int_equal(lease_next(t, next, &next).kind, LEASE_REVOKE);
	lease_closed(t, 2, until);
	assert_int_equal(lease_next(t, until, &next).kind, LEASE_NONE);
	/* It has half the time. */
	assert_true(next >= 2 * until - 3 * MS && next < 2 * until + 1 * MS);
	assert_int_equal(lease_next(t, next, &next).kind, LEASE_GRANT);
	lease_table_free(t);
}

/* Mode, lease and granularity change every few seconds. */
static void settings_change(void **state)
{
	static const uint64_t leases[] = {250 * MS, 5 * MS, 50 * MS, 1 * SEC};
	static const uint32_t grains[] = {50000, 500000, 100000};
	struct lease_sim *sim = sim_new(COMPUTE_FAIR, 250 * MS);

	busy(sim, 250000);
	busy(sim, 750000);
	for (uint64_t i = 1; i <= 200; i++) {
		struct lease_setting setting = {i % 2 ? COMPUTE_STRICT : COMPUTE_FAIR,
						leases[i % 4], grains[i % 3]};

		go(sim, i * 1700 * MS);
		lease_sim_set(sim, 0, &setting);
	}
	assert_share(sim, 0, 25, 1);
	assert_share(sim, 1, 74.3, 1.2);
	lease_sim_free(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shares_of_busy_clients),
		cmocka_unit_test(strict_leaves_time_idle),
		cmocka_unit_test(plans_are_exact),
		cmocka_unit_test(any_stretch_as_long_as_a_plan_has_its_shares),
		cmocka_unit_test(memory_sized),
		cmocka_unit_test(idle_time),
		cmocka_unit_test(overruns_are_charged),
		cmocka_unit_test(leaked_work_is_charged),
		cmocka_unit_test(a_first_turn_comes_soon),
		cmocka_unit_test(equals_get_the_same),
		cmocka_unit_test(slept_through),
		cmocka_unit_test(interactive_beside_batch),
		cmocka_unit_test(interactive_newcomer),
		cmocka_unit_test(excess_is_not_saved),
		cmocka_unit_test(switching_on_while_several_run),
		cmocka_unit_test(gone_before_it_was_opened),
		cmocka_unit_test(settings_change),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
