/* The lease policy where modes and settings change, or where they are unusual
 * (src/core/lease_sim.h): nobody who has work is left without, and none has more for it. */
#include <math.h>

#include "base/macros.h"
#include "test_core_lease.h"

#define CLIENTS 8u

struct crowd {
	struct lease_sim *sim;
	struct lease_setting setting;
	uint64_t rnd;
	uint32_t fraction[CLIENTS], count, steady; /* the first ones always have work */
	double due[CLIENTS];                       /* ns, by now */
};

static double busy_ns(const struct lease_sim *sim, uint32_t client)
{
	return (double)lease_sim_result(sim, client).busy_ns;
}

/* ---- from mode to mode ---- */

static void mode_set(struct crowd *c, enum compute_mode mode)
{
	c->setting.mode = mode;
	lease_sim_set(c->sim, 0, &c->setting);
}

/* The time due to a client while all of the crowd have work, as part of the time. */
static double part_due(const struct crowd *c, uint32_t client)
{
	double asked = 0, own = c->fraction[client] / 1e6, most = 1;
	uint32_t unsized = 0;

	for (uint32_t i = 0; i < c->count; i++) {
		asked += c->fraction[i] / 1e6;
		unsized += !c->fraction[i];
	}
	if (unsized)
		most = 0.99;
	if (asked > most)
		return own > 0 ? own * most / asked : 0.01 / unsized;
	if (c->setting.mode == COMPUTE_FAIR)
		return own + (1 - asked) / c->count;
	return own > 0 ? own : (1 - asked) / unsized;
}

static void crowd_go(struct crowd *c, uint64_t ns)
{
	for (uint32_t i = 0; i < c->count; i++)
		c->due[i] += part_due(c, i) * (double)ns;
	go(c->sim, lease_sim_now(c->sim) + ns);
}

/* Since `busy` and `due` were so. */
static void crowd_check(const struct crowd *c, const double *busy, const double *due, double slack,
			const char *when)
{
	for (uint32_t i = 0; i < c->steady; i++) {
		double had = busy_ns(c->sim, i) - busy[i], wanted = c->due[i] - due[i];
		bool all = c->steady == c->count;

		if (had < wanted - slack || (all && had > wanted + slack))
			fail_msg("%s: client %u (%u ppm) had %.0f ms, not %.0f; lease %lu ms", when,
				 i, c->fraction[i], had / 1e6, wanted / 1e6,
				 c->setting.lease_ns / MS);
	}
}

static void crowd_snapshot(const struct crowd *c, double *busy, double *due)
{
	for (uint32_t i = 0; i < c->count; i++) {
		busy[i] = busy_ns(c->sim, i);
		due[i] = c->due[i];
	}
}

static void crowd_add(struct crowd *c, uint32_t fraction, bool steady)
{
	struct lease_sim_client client = {.gpus = 1, .fraction_ppm = fraction, .kernel_ns = MS};

	if (!steady) {
		client.work_ns = 1 + random_next(&c->rnd) % (100 * MS);
		client.rest_ns = random_next(&c->rnd) % (500 * MS);
		client.random = true;
	}
	c->fraction[c->count++] = fraction;
	c->steady += steady;
	assert_true(lease_sim_add(c->sim, &client) >= 0);
}

static void crowd_begin(struct crowd *c, enum compute_mode mode, uint64_t lease_ns, uint64_t seed)
{
	*c = (struct crowd){.sim = sim_new(mode, lease_ns),
			    .setting = {mode, lease_ns, LEASE_GRANULARITY_DEFAULT},
			    .rnd = seed * 0x9e3779b97f4a7c15ull};
	lease_sim_costs(c->sim, 0, 200000);
}

/* Time that somebody had while the mode was another one is not held against him, or against others.
 */
static void fair_begins_anew_after_strict(void **state)
{
	static const uint64_t before[] = {1 * SEC, 10 * SEC, 600 * SEC};

	for (size_t i = 0; i < ARRAY_SIZE(before); i++) {
		double busy[CLIENTS] = {0}, due[CLIENTS] = {0};
		struct crowd c;

		crowd_begin(&c, COMPUTE_STRICT, 50 * MS, 1);
		crowd_add(&c, 300000, true);
		crowd_add(&c, 300000, true);
		crowd_add(&c, 0, true);
		crowd_go(&c, before[i]);
		for (int again = 0; again < 3; again++) {
			mode_set(&c, COMPUTE_FAIR);
			crowd_snapshot(&c, busy, due);
			crowd_go(&c, 2 * SEC);
			crowd_check(&c, busy, due, 100.0 * MS, "fair");
			mode_set(&c, COMPUTE_STRICT);
			crowd_snapshot(&c, busy, due);
			crowd_go(&c, 2 * SEC);
			crowd_check(&c, busy, due, 150.0 * MS, "strict");
		}
		lease_sim_free(c.sim);
	}
}

static void random_crowd(struct crowd *c, uint64_t seed)
{
	static const uint64_t leases[] = {10 * MS, 50 * MS, 250 * MS};
	uint32_t left = LEASE_PPM, count;

	crowd_begin(c, COMPUTE_STRICT, leases[seed % ARRAY_SIZE(leases)], seed);
	count = 2 + (uint32_t)(random_next(&c->rnd) % (CLIENTS - 2));
	for (uint32_t i = 0; i < count; i++) {
		uint32_t fraction = 10000 + (uint32_t)(random_next(&c->rnd) % 400000);
		bool sized = i == 0 || random_next(&c->rnd) % 3;

		fraction = sized && left >= 10000 ? MIN(fraction, left) : 0;
		left -= fraction;
		crowd_add(c, fraction, true);
	}
	if (seed % 2)
		crowd_add(c, MIN(left, 100000), false);
}

/* However often it changes. A client that always has work gets what is due to it, in each of the
 * longer stretches between two changes and in all. If all have work, it gets no more than that. */
static void modes_back_and_forth(void **state)
{
	for (uint64_t seed = 1; seed <= 60; seed++) {
		double busy[CLIENTS] = {0}, due[CLIENTS] = {0}, none[CLIENTS] = {0};
		struct crowd c;

		random_crowd(&c, seed);
		double lease = (double)c.setting.lease_ns;
		for (int i = 0; i < 60; i++) {
			bool brief = random_next(&c.rnd) % 3 == 0;
			uint64_t plans = 2 + random_next(&c.rnd) % 8;
			uint64_t ns = brief ? random_next(&c.rnd) % (4 * c.setting.lease_ns)
					    : plans * lease_plan_ns(&c.setting);

			mode_set(&c, COMPUTE_FAIR + (enum compute_mode)(random_next(&c.rnd) % 2));
			crowd_snapshot(&c, busy, due);
			crowd_go(&c, ns);
			crowd_check(&c, busy, due, 4 * lease, "stretch");
		}
		crowd_check(&c, none, none, 8 * lease, "all");
		lease_sim_free(c.sim);
	}
}

/* ---- who is sized by memory ---- */

/* While one whose share is needed for the sum of 1 sleeps, there is more than 1%. But that goes to
 * all, and is over before it is the turn of a client that is sized by memory. */
static void naps_of_others_do_not_take_the_floor(void **state)
{
	struct lease_sim *sim = sim_new(COMPUTE_FAIR, 250 * MS);
	struct lease_sim_client naps = {
		.gpus = 1, .fraction_ppm = 50000, .work_ns = 40 * MS, .rest_ns = 300 * MS};

	busy(sim, 550000);
	busy(sim, 400000);
	uint32_t unsized = busy(sim, 0);
	assert_true(lease_sim_add(sim, &naps) >= 0);
	go(sim, 60 * SEC);
	assert_true(share(sim, unsized) > 0.8 && share(sim, unsized) < 2);
	assert_true(share(sim, 0) > 54 && share(sim, 1) > 39);
	lease_sim_free(sim);
}

/* Where a plan's floor is less than a lease is worth, it is had in some plans, and adds up. */
static void floor_check(const struct lease_setting *setting, uint32_t unsized)
{
	static const uint32_t sets[][3] = {
		{500000, 500000}, {300000, 300000, 400000}, {990000, 10000}};

	for (size_t i = 0; i < ARRAY_SIZE(sets); i++) {
		struct lease_sim *sim = sim_new(COMPUTE_OFF, 250 * MS);
		double all = 0, its = 0;
		uint32_t n = 0;

		lease_sim_set(sim, 0, setting);
		for (; n < 3 && sets[i][n]; n++)
			busy(sim, sets[i][n]);
		for (uint32_t k = 0; k < unsized; k++)
			busy(sim, 0);
		go(sim, MAX(12 * lease_plan_ns(setting), 20 * SEC));
		for (uint32_t k = 0; k < n + unsized; k++)
			all += share(sim, k);
		for (uint32_t k = n; k < n + unsized; k++) {
			its += share(sim, k);
			assert_true(share(sim, k) > 0.15);
		}
		for (uint32_t k = 0; k < n; k++) {
			double due = sets[i][k] / 1e6 * (unsized ? 99 : 100), had = share(sim, k);

			if (had < due * all / 100 - 0.3)
				fail_msg("mode %d, lease %lu ms, granularity %u: %.3f%% of %.2f%%",
					 setting->mode, setting->lease_ns / MS,
					 setting->granularity_ppm, had, due);
		}
		if (unsized && (its < 0.8 || its > 1.15))
			fail_msg("mode %d, lease %lu ms, granularity %u: the floor is %.3f%%",
				 setting->mode, setting->lease_ns / MS, setting->granularity_ppm,
				 its);
		lease_sim_free(sim);
	}
}

static void every_setting_has_a_floor(void **state)
{
	static const uint64_t leases[] = {5 * MS,   8 * MS,   10 * MS, 25 * MS, 50 * MS,
					  100 * MS, 250 * MS, 1 * SEC, 10 * SEC};
	static const uint32_t granularities[] = {10000, 20000, 50000, 100000, 200000, 500000};

	for (size_t l = 0; l < ARRAY_SIZE(leases); l++)
		for (size_t p = 0; p < ARRAY_SIZE(granularities); p++)
			for (uint32_t unsized = 0; unsized <= 3; unsized++)
				for (enum compute_mode m = COMPUTE_FAIR; m <= COMPUTE_STRICT; m++)
					floor_check(&(struct lease_setting){m, leases[l],
									    granularities[p]},
						    unsized);
}

/* Alone, too: what is promised is not his, whether anybody uses it or not. */
static void the_floor_is_had_alone(void **state)
{
	struct lease_setting setting = {COMPUTE_STRICT, 5 * MS, LEASE_GRANULARITY_MAX};
	struct lease_sim *sim = sim_new(COMPUTE_OFF, 250 * MS);

	lease_sim_set(sim, 0, &setting);
	for (int i = 0; i < 2; i++)
		assert_true(lease_sim_add(sim, &(struct lease_sim_client){.gpus = 1,
									  .fraction_ppm = 500000,
									  .idle = true}) >= 0);
	uint32_t unsized = busy(sim, 0);
	go(sim, 60 * SEC);
	assert_share(sim, unsized, 1, 0.1);
	lease_sim_free(sim);
}

/* ---- promises to whom is no client yet ---- */

static double share_since(const struct lease_sim *sim, uint32_t client, double busy, uint64_t from)
{
	return 100.0 * (busy_ns(sim, client) - busy) / (double)(lease_sim_now(sim) - from);
}

/* Goes on for 30 s. The client's share of them. */
static double promised_share(struct lease_sim *sim, uint32_t client, uint32_t ppm)
{
	uint64_t from = lease_sim_now(sim);
	double busy = busy_ns(sim, client);

	lease_promise(lease_sim_table(sim), 0, ppm, from);
	lease_sim_set(sim, 0, lease_get(lease_sim_table(sim), 0)); /* it is asked again */
	go(sim, from + 30 * SEC);
	return share_since(sim, client, busy, from);
}

static void promised_time_is_not_given_away(void **state)
{
	static const struct {
		uint32_t ppm;
		double strict;
	} steps[] = {{0, 100}, {900000, 10}, {500000, 50}, {1000000, 1}, {995000, 1}, {0, 100}};

	for (enum compute_mode mode = COMPUTE_FAIR; mode <= COMPUTE_STRICT; mode++) {
		struct lease_sim *sim = sim_new(mode, 50 * MS);
		uint32_t unsized = busy(sim, 0);

		for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
			double had = promised_share(sim, unsized, steps[i].ppm);
			double due = mode == COMPUTE_STRICT ? steps[i].strict : 100;

			if (had < due - 0.5 || had > due + 0.5)
				fail_msg("mode %d, %u promised: %.2f%%", mode, steps[i].ppm, had);
		}
		lease_sim_free(sim);
	}
}

/* A promise is as a client that never wants: to others with a share it makes no difference, but for
 * the floor, and clients are part of it. */
static void promises_are_as_sleeping_clients(void **state)
{
	struct lease_sim *sim = sim_new(COMPUTE_STRICT, 50 * MS);
	uint32_t sized = busy(sim, 200000), unsized = busy(sim, 0);
	double busy_before = busy_ns(sim, sized);

	assert_true(fabs(promised_share(sim, unsized, 700000) - 30) < 0.5);
	assert_true(fabs(share_since(sim, sized, busy_before, 0) - 20) < 0.5);
	busy_before = busy_ns(sim, sized);
	assert_true(fabs(promised_share(sim, unsized, 1000000) - 1) < 0.2);
	assert_true(fabs(share_since(sim, sized, busy_before, 30 * SEC) - 19.8) < 0.3);
	busy_before = busy_ns(sim, sized);
	/* Less than its clients have is what these have. */
	assert_true(fabs(promised_share(sim, unsized, 0) - 80) < 0.5);
	assert_true(fabs(share_since(sim, sized, busy_before, 60 * SEC) - 20) < 0.5);
	lease_sim_free(sim);
}

/* Likewise a client that comes, or whose share becomes more, while the one sized by memory has the
 * GPU with no end. */
static void a_new_promise_ends_an_open_end(void **state)
{
	struct lease_sim *sim = sim_new(COMPUTE_STRICT, 50 * MS);
	uint32_t unsized = busy(sim, 0);
	struct lease_sim_client sleeps = {
		.gpus = 1, .fraction_ppm = 600000, .idle = true, .arrives = 10 * SEC};

	assert_int_equal(lease_sim_add(sim, &sleeps), 1);
	go(sim, 10 * SEC);
	double before = busy_ns(sim, unsized);
	go(sim, 40 * SEC);
	assert_true(fabs(share_since(sim, unsized, before, 10 * SEC) - 40) < 0.5);
	lease_sim_free(sim);
}

/* Whether it is granted a lease now. */
static bool is_granted(struct lease_table *t, uint64_t id, uint64_t now)
{
	uint64_t next;
	struct lease_action a;
	bool granted = false;

	while ((a = lease_next(t, now, &next)).kind != LEASE_NONE) {
		if (a.kind == LEASE_GRANT)
			lease_opened(t, a.id, now);
		granted |= a.kind == LEASE_GRANT && a.id == id;
	}
	return granted;
}

/* It waited for a GPU whose time is not sliced any more: the others are its own at once. */
static void a_gang_waits_for_no_gpu_that_is_off(void **state)
{
	struct lease_setting setting = {COMPUTE_STRICT, 250 * MS, LEASE_GRANULARITY_DEFAULT};
	struct lease_setting off = {.mode = COMPUTE_OFF};
	struct lease_table *t = lease_table_new();

	lease_set(t, 0, &setting, 0);
	lease_set(t, 1, &setting, 0);
	assert_int_equal(lease_client_add(t, 1, 0, 1, 500000, 0), 0);
	assert_int_equal(lease_client_add(t, 2, 0, 3, 500000, 0), 0);
	lease_wants(t, 1, true, 0);
	assert_true(is_granted(t, 1, 0));
	lease_wants(t, 2, true, 1 * MS);
	assert_false(is_granted(t, 2, 1 * MS));
	lease_set(t, 0, &off, 2 * MS);
	assert_true(is_granted(t, 2, 2 * MS));
	lease_table_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fair_begins_anew_after_strict),
		cmocka_unit_test(modes_back_and_forth),
		cmocka_unit_test(naps_of_others_do_not_take_the_floor),
		cmocka_unit_test(every_setting_has_a_floor),
		cmocka_unit_test(the_floor_is_had_alone),
		cmocka_unit_test(promised_time_is_not_given_away),
		cmocka_unit_test(promises_are_as_sleeping_clients),
		cmocka_unit_test(a_new_promise_ends_an_open_end),
		cmocka_unit_test(a_gang_waits_for_no_gpu_that_is_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
