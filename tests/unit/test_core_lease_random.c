/* Things that the lease policy must never do, whatever its clients are and whoever calls it in
 * whatever order: random ones, the same for the same seed. */
#include "base/macros.h"
#include "test_core_lease.h"

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
		if (lease_client_add(m->table, id, random_next(&m->rnd) % 4, gpus, fraction,
				     m->now) == 0)
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

/* With fractions that add up to `sum`, a client that always has work gets its fraction in every
 * minute. */
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

				double all = (double)now.busy[i] / 60e7 - limit * (double)minute;
				double late = i < endless ? 0 : limit * 5 / 60;

				/* A lease and a bit, once and for all; a minute that ends with one
				 * may follow one that began with one. Time that it slept through
				 * may come a plan late. */
				if (got > limit + 0.6 + late || all > 0.5 + late)
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

/* Loops of visits of few owners, beside one that stays. Their work goes on to its end however long
 * its turn is. *ret_least (or NULL): the smallest share of those that come and go. */
static struct lease_sim *visits_sim(uint64_t seed, enum compute_mode mode, uint32_t stays_ppm,
				    uint64_t work_ns, uint32_t *ret_least)
{
	uint64_t rnd = seed * 0x9e3779b97f4a7c15ull;
	struct lease_setting setting = {mode, 50 * MS, LEASE_GRANULARITY_DEFAULT};
	struct lease_sim *sim = lease_sim_new(seed, NULL, NULL);
	uint32_t f[8], count = (uint32_t)(1 + random_next(&rnd) % 5);

	lease_sim_set(sim, 0, &setting);
	busy(sim, stays_ppm);
	random_fractions(&rnd, 990000 - stays_ppm, count, f);
	for (uint32_t i = 0; i < count; i++)
		if (ret_least)
			*ret_least = i ? MIN(*ret_least, f[i]) : f[i];
	for (uint32_t i = 0; i < count; i++)
		assert_true(lease_sim_add(sim, &(struct lease_sim_client){
						       .owner = 1 + random_next(&rnd) % 3,
						       .gpus = 1,
						       .fraction_ppm = f[i],
						       .work_ns = random_next(&rnd) % work_ns,
						       .rest_ns = random_next(&rnd) % (50 * MS),
						       .drain_ns = 10 * SEC,
						       .random = true,
						       .visits = true}) > 0);
	return sim;
}

static void a_session_that_stays_has_its_share_beside_visits(void **state)
{
	for (uint64_t seed = 1; seed <= 60; seed++)
		for (enum compute_mode mode = COMPUTE_FAIR; mode <= COMPUTE_STRICT; mode++) {
			uint32_t stays = seed % 2 ? 900000 : 500000;
			struct lease_sim *sim = visits_sim(seed, mode, stays, 50 * MS, NULL);

			go(sim, 300 * SEC);
			if (share(sim, 0) < stays / 1e4 - 1)
				fail_msg("seed %lu, mode %d: %.2f%% of %.2f%%", seed, mode,
					 share(sim, 0), stays / 1e4);
			lease_sim_free(sim);
		}
}

/* Time that its owner's last ones took puts a visit off for as long as the shares take that paid
 * for it; then there are the turns of others. */
static void debts_put_nobody_off_for_longer_than_they_take(void **state)
{
	for (uint64_t seed = 1; seed <= 60; seed++)
		for (enum compute_mode mode = COMPUTE_FAIR; mode <= COMPUTE_STRICT; mode++) {
			uint32_t least;
			struct lease_sim *sim = visits_sim(seed, mode, 500000, 2 * SEC, &least);
			uint32_t first = busy(sim, 0);

			go(sim, 300 * SEC);
			for (uint32_t i = 1; i < first; i++) {
				double waited =
					(double)lease_sim_result(sim, i).wait_longest_ns / 1e9;

				/* Work takes up to 4 s. */
				if (waited > 0.5 + 4e6 / least + 4.1 * (first - 2))
					fail_msg("seed %lu, mode %d: %u of %u waited %.1f s", seed,
						 mode, i, first - 1, waited);
			}
			lease_sim_free(sim);
		}
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
		cmocka_unit_test(rules_hold),
		cmocka_unit_test(any_calls_in_any_order),
		cmocka_unit_test(strict_shares_hold),
		cmocka_unit_test(fair_guarantees_hold),
		cmocka_unit_test(nobody_starves),
		cmocka_unit_test(the_same_every_time),
		cmocka_unit_test(debts_put_nobody_off_for_longer_than_they_take),
		cmocka_unit_test(a_session_that_stays_has_its_share_beside_visits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
