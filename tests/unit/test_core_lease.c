/* The lease policy under imagined clients (src/core/lease_sim.h): hours of imagined time. */
#include <errno.h>
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

/* ---- any calls in any order ---- */

#define IDS 10

struct model {
	struct lease_table *table;
	uint64_t rnd, now, next, gpus[IDS], held[IDS]; /* GPUs that its gate is open on */
	uint64_t sliced;
	bool closing[IDS];
	uint64_t grants;
};

static void model_act(struct model *m, uint64_t seed)
{
	for (int i = 0; i < 200; i++) {
		struct lease_action a = lease_next(m->table, m->now, &m->next);

		if (a.kind == LEASE_NONE) {
			assert_true(m->next > m->now);
			return;
		}
		assert_true(a.id < IDS && m->gpus[a.id]);
		if (a.kind == LEASE_REVOKE) {
			assert_true(m->held[a.id] && !m->closing[a.id]);
			m->closing[a.id] = true;
		} else if (a.kind == LEASE_CHANGE) {
			assert_true(m->held[a.id] && !m->closing[a.id]);
		} else {
			assert_true(!m->held[a.id] && m->gpus[a.id] & m->sliced);
			for (int other = 0; other < IDS; other++)
				if (m->held[other] & m->gpus[a.id] & m->sliced)
					fail_msg("seed %lu: %lu granted what %d has", seed, a.id,
						 other);
			m->held[a.id] = m->gpus[a.id];
			m->grants++;
			if (random_next(&m->rnd) % 4)
				lease_opened(m->table, a.id, m->now);
		}
	}
	fail_msg("seed %lu: no end of actions", seed);
}

static void model_close(struct model *m, uint64_t id)
{
	lease_closed(m->table, id, m->now);
	m->held[id] = 0;
	m->closing[id] = false;
}

static void model_set(struct model *m)
{
	uint32_t gpu = (uint32_t)(random_next(&m->rnd) % 3);
	struct lease_setting setting = {(enum compute_mode)(random_next(&m->rnd) % 3),
					random_next(&m->rnd) % (12 * SEC),
					(uint32_t)(random_next(&m->rnd) % 1000000)};

	lease_set(m->table, gpu, &setting, m->now);
	m->sliced = (m->sliced & ~(1ull << gpu)) | (setting.mode ? 1ull << gpu : 0);
	for (uint64_t id = 0; id < IDS; id++) {
		/* Without a sliced GPU it is none of the table's business. */
		if (m->gpus[id] & m->sliced)
			continue;
		m->held[id] = 0;
		m->closing[id] = false;
	}
}

static void model_step(struct model *m)
{
	uint64_t id = random_next(&m->rnd) % IDS, gpus = 1 + random_next(&m->rnd) % 7;
	uint32_t fraction =
		random_next(&m->rnd) % 3 ? (uint32_t)(random_next(&m->rnd) % 1000001) : 0;

	switch (random_next(&m->rnd) % 12) {
	case 0:
		if (lease_client_add(m->table, id, gpus, fraction, m->now) == 0)
			m->gpus[id] = gpus;
		break;
	case 1:
		lease_client_remove(m->table, id, m->now);
		m->gpus[id] = m->held[id] = 0;
		m->closing[id] = false;
		break;
	case 2:
		lease_client_share(m->table, id, fraction, m->now);
		break;
	case 3:
		if (random_next(&m->rnd) % 4 == 0)
			model_set(m);
		break;
	case 4:
	case 5:
		lease_opened(m->table, id, m->now); /* late, by itself, or again */
		if (m->gpus[id] & m->sliced)
			m->held[id] = m->gpus[id];
		break;
	case 6:
	case 7:
	case 8:
		if (m->held[id])
			model_close(m, id);
		break;
	default:
		lease_wants(m->table, id, random_next(&m->rnd) % 4, m->now);
	}
	struct lease_client_stat stat;
	if (lease_client_stat(m->table, id, m->now, &stat) == 0) {
		assert_true(stat.waited_longest_ns <= stat.waited_ns);
		assert_true(stat.received_minute_ppm <= LEASE_PPM);
	}
}

static void any_calls_in_any_order(void **state)
{
	uint64_t grants = 0;

	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct model m = {.table = lease_table_new(), .rnd = seed * 0x9e3779b97f4a7c15ull};

		for (int i = 0; i < 3000; i++) {
			model_step(&m);
			if (random_next(&m.rnd) % 2)
				model_act(&m, seed);
			m.now += random_next(&m.rnd) % (1ull << random_next(&m.rnd) % 33);
		}
		grants += m.grants;
		lease_table_free(m.table);
	}
	assert_true(grants > 1000);
}

/* ---- random workloads on one GPU ---- */

/* A window of time: what everybody used and for how long they wanted in it. */
struct window {
	uint64_t busy[32], wanting[32];
};

static struct window window_of(const struct lease_sim *sim, uint32_t clients)
{
	struct window w = {0};

	for (uint32_t i = 0; i < clients; i++) {
		struct lease_sim_result r = lease_sim_result(sim, i);

		w.busy[i] = r.busy_ns;
		w.wanting[i] = r.wanting_ns;
	}
	return w;
}

/* Fractions that come to `sum_ppm`, the last of `count` clients takes the rest. */
static void random_fractions(uint64_t *rnd, uint32_t sum_ppm, uint32_t count, uint32_t *out)
{
	uint32_t left = sum_ppm;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t most = left - 10000 * (count - 1 - i);
		uint32_t part = most / (count - i);

		out[i] =
			i + 1 == count ? left : (uint32_t)(10000 + random_next(rnd) % MAX(part, 1));
		left -= out[i];
	}
}

static const uint64_t kernels[] = {50000, 1 * MS, 5 * MS, 20 * MS, 100 * MS};

static struct lease_sim_client random_work(uint64_t *rnd, uint32_t fraction, bool endless)
{
	struct lease_sim_client c = {.gpus = 1, .fraction_ppm = fraction, .random = true};

	c.kernel_ns = kernels[random_next(rnd) % ARRAY_SIZE(kernels)];
	if (!endless) {
		c.work_ns = 1 * MS + random_next(rnd) % (1000 * MS);
		c.rest_ns = 1 * MS + random_next(rnd) % (2000 * MS);
	}
	return c;
}

static struct lease_sim *random_sim(uint64_t seed, enum compute_mode mode, uint32_t sum_ppm,
				    uint32_t *fractions, uint32_t *ret_count, uint32_t *ret_busy)
{
	uint64_t rnd = seed * 0x9e3779b97f4a7c15ull;
	struct lease_setting setting = {mode, 250 * MS, LEASE_GRANULARITY_DEFAULT};
	struct lease_sim *sim = lease_sim_new(seed, NULL, NULL);

	*ret_count = (uint32_t)(2 + random_next(&rnd) % 7);
	*ret_busy = (uint32_t)(1 + random_next(&rnd) % *ret_count);
	random_fractions(&rnd, sum_ppm, *ret_count, fractions);
	lease_sim_set(sim, 0, &setting);
	for (uint32_t i = 0; i < *ret_count; i++) {
		struct lease_sim_client c = random_work(&rnd, fractions[i], i < *ret_busy);

		assert_true(lease_sim_add(sim, &c) == (int)i);
	}
	return sim;
}

/* Of `sum` everybody who always has work gets its fraction in every minute. */
static void strict_shares_hold(void **state)
{
	for (uint64_t seed = 1; seed <= 60; seed++) {
		uint32_t f[32], count, endless, sum = seed % 3 ? 990000 : 700000;
		struct lease_sim *sim = random_sim(seed, COMPUTE_STRICT, sum, f, &count, &endless);
		struct window before = {0};

		for (uint64_t minute = 1; minute <= 10; minute++) {
			go(sim, minute * 60 * SEC);
			struct window now = window_of(sim, count);
			for (uint32_t i = 0; i < count; i++) {
				double got = (double)(now.busy[i] - before.busy[i]) / 60e7;
				double limit = f[i] / 1e4;

				/* What it slept through may come a plan late. */
				if (got > limit + (i < endless ? 0.5 : 0.5 + limit * 5 / 60))
					fail_msg("seed %lu: %u got %.2f%% of %.2f%%", seed, i, got,
						 limit);
				if (i < endless && got < limit - 1)
					fail_msg("seed %lu: %u only got %.2f%% of %.2f%%", seed, i,
						 got, limit);
			}
			before = now;
		}
		lease_sim_free(sim);
	}
}

static void fair_guarantees_hold(void **state)
{
	for (uint64_t seed = 1; seed <= 60; seed++) {
		uint32_t f[32], count, endless, sum = seed % 3 ? 1000000 : 600000;
		struct lease_sim *sim = random_sim(seed, COMPUTE_FAIR, sum, f, &count, &endless);
		struct window before = {0};

		for (uint64_t minute = 1; minute <= 10; minute++) {
			go(sim, minute * 60 * SEC);
			struct window now = window_of(sim, count);
			for (uint32_t i = 0; i < endless; i++) {
				double got = (double)(now.busy[i] - before.busy[i]) / 60e7;

				if (got < f[i] / 1e4 - 1)
					fail_msg("seed %lu: %u only got %.2f%% of %.2f%%", seed, i,
						 got, f[i] / 1e4);
			}
			before = now;
		}
		/* Work conserving: nobody who had work saw the GPU idle. */
		if (lease_sim_wasted(sim, 0) > lease_sim_now(sim) / 1000)
			fail_msg("seed %lu: %lu ms wasted", seed, lease_sim_wasted(sim, 0) / MS);
		lease_sim_free(sim);
	}
}

/* The longest that one with work at all times waits: the turns of the others in its period. */
static void nobody_starves(void **state)
{
	for (uint64_t seed = 1; seed <= 60; seed++)
		for (enum compute_mode mode = COMPUTE_FAIR; mode <= COMPUTE_STRICT; mode++) {
			uint32_t f[32], count, endless;
			struct lease_sim *sim = random_sim(seed, mode, 990000, f, &count, &endless);

			go(sim, 300 * SEC);
			for (uint32_t i = 0; i < endless; i++) {
				double waited =
					(double)lease_sim_result(sim, i).wait_longest_ns / 1e6;
				double turn = MIN(250.0, 5000.0 * f[i] / 1e6);
				/* Its turn's period, twice, and a turn and overrun of each other.
				 */
				double most = 2 * turn / (f[i] / 1e6) + count * 350.0;

				if (waited > most)
					fail_msg("seed %lu: %u of %.2f%% waited %.0f ms", seed, i,
						 f[i] / 1e4, waited);
			}
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

	for (size_t k = 0; k < ARRAY_SIZE(fractions); k++)
		for (enum compute_mode mode = COMPUTE_FAIR; mode <= COMPUTE_STRICT; mode++) {
			struct lease_sim *sim = sim_new(mode, 250 * MS, NULL);
			double got[8];

			for (uint32_t i = 0; i < 8; i++) {
				struct lease_sim_client c = {.gpus = 1,
							     .fraction_ppm = fractions[k],
							     .random = true,
							     .kernel_ns = kernels[i % 5]};

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
	struct lease_sim *sim = sim_new(COMPUTE_STRICT, 250 * MS, NULL);
	struct lease_sim_client c = {
		.gpus = 1, .fraction_ppm = 250000, .work_ns = 1, .rest_ns = 100 * SEC};

	lease_sim_add(sim, &c);
	go(sim, 50 * SEC);
	lease_sim_add(sim, &(struct lease_sim_client){
				   .gpus = 1, .fraction_ppm = 750000, .arrives = 200 * SEC});
	go(sim, 100 * SEC);
	lease_sim_free(sim);

	sim = sim_new(COMPUTE_STRICT, 250 * MS, NULL);
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
		struct lease_sim *sim = sim_new(COMPUTE_FAIR, 250 * MS, NULL);
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

/* A gang takes its GPUs together, gets its share beside singles that always want, and they theirs.
 */
static void gangs(void **state)
{
	for (enum compute_mode mode = COMPUTE_FAIR; mode <= COMPUTE_STRICT; mode++)
		for (uint32_t gpus = 2; gpus <= 8; gpus *= 2) {
			struct lease_sim *sim = sim_new(mode, 250 * MS, NULL);
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

/* A gang with a GPU that nobody else wants gets no more of the other one for it. */
static void a_gang_has_the_least_of_its_shares(void **state)
{
	struct lease_setting setting = {COMPUTE_FAIR, 250 * MS, LEASE_GRANULARITY_DEFAULT};
	struct lease_sim *sim = sim_new(COMPUTE_FAIR, 250 * MS, NULL);

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

/* What it left to others as excess isn't owed to one that slept. */
static void excess_is_not_saved(void **state)
{
	struct lease_sim *sim = sim_new(COMPUTE_FAIR, 250 * MS, NULL);
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
	assert_int_equal(lease_client_add(t, 1, 1, 500000, 0), 0);
	assert_int_equal(lease_client_add(t, 1, 1, 500000, 0), -EEXIST);
	assert_int_equal(lease_client_add(t, 2, 0, 500000, 0), -EINVAL);
	assert_int_equal(lease_client_add(t, 2, 1, 500000, 0), 0);
	lease_wants(t, 1, true, 0);
	assert_int_equal(lease_next(t, 0, &next).kind, LEASE_GRANT);
	lease_client_remove(t, 1, 1 * MS);
	lease_wants(t, 2, true, 1 * MS);
	struct lease_action a = lease_next(t, 1 * MS, &next);
	assert_true(a.kind == LEASE_GRANT && a.id == 2 && a.until == 251 * MS);
	lease_opened(t, 2, 1 * MS);
	assert_int_equal(lease_next(t, 1 * MS, &next).kind, LEASE_NONE);
	assert_true(next == 251 * MS);
	assert_int_equal(lease_next(t, next, &next).kind, LEASE_REVOKE);
	lease_closed(t, 2, 251 * MS);
	assert_int_equal(lease_next(t, 251 * MS, &next).kind, LEASE_NONE);
	/* 250 ms of half the time. */
	assert_true(next >= 499 * MS && next < 502 * MS);
	assert_int_equal(lease_next(t, next, &next).kind, LEASE_GRANT);
	lease_table_free(t);
}

/* Gangs that overlap in a ring all get on. */
static void overlapping_gangs(void **state)
{
	struct lease_setting setting = {COMPUTE_FAIR, 50 * MS, LEASE_GRANULARITY_DEFAULT};
	struct lease_sim *sim = sim_new(COMPUTE_FAIR, 50 * MS, NULL);

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

/* Others that come and go every second don't take from one that stays. */
static void coming_and_going(void **state)
{
	for (enum compute_mode mode = COMPUTE_FAIR; mode <= COMPUTE_STRICT; mode++) {
		struct lease_sim *sim = sim_new(mode, 250 * MS, NULL);

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

/* Mode, lease and granularity change every few seconds. */
static void settings_change(void **state)
{
	static const uint64_t leases[] = {250 * MS, 5 * MS, 50 * MS, 1 * SEC};
	static const uint32_t grains[] = {50000, 500000, 100000};
	struct lease_sim *sim = sim_new(COMPUTE_FAIR, 250 * MS, NULL);

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

struct hash {
	uint64_t value, spans;
};

static void hash_span(void *context, const struct lease_sim_span *span)
{
	struct hash *h = context;

	h->value = (h->value ^ span->from ^ span->to << 20 ^ span->client) * 0x100000001b3ull;
	h->spans++;
}

static void the_same_every_time(void **state)
{
	struct hash first = {0};

	for (int round = 0; round < 2; round++) {
		struct hash h = {0};
		uint64_t rnd = 77;
		struct lease_sim *sim = lease_sim_new(7, hash_span, &h);

		random_settings(sim, &rnd, 4);
		for (int i = 0; i < 20; i++) {
			struct lease_sim_client c = random_client(&rnd, 4, 20 * SEC);

			lease_sim_add(sim, &c);
		}
		go(sim, 60 * SEC);
		assert_true(h.spans > 100);
		if (round)
			assert_true(h.value == first.value && h.spans == first.spans);
		first = h;
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
		cmocka_unit_test(any_calls_in_any_order),
		cmocka_unit_test(strict_shares_hold),
		cmocka_unit_test(fair_guarantees_hold),
		cmocka_unit_test(nobody_starves),
		cmocka_unit_test(equals_get_the_same),
		cmocka_unit_test(slept_through),
		cmocka_unit_test(interactive_beside_batch),
		cmocka_unit_test(gangs),
		cmocka_unit_test(overlapping_gangs),
		cmocka_unit_test(a_gang_has_the_least_of_its_shares),
		cmocka_unit_test(excess_is_not_saved),
		cmocka_unit_test(switching_on_while_several_run),
		cmocka_unit_test(gone_before_it_was_opened),
		cmocka_unit_test(coming_and_going),
		cmocka_unit_test(settings_change),
		cmocka_unit_test(the_same_every_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
