/* Strict shares beside kernels of any length: the time that a late hand-over took is given back. So
 * a client that has work misses next to nothing in any 20 s, and one that is late has nothing of
 * it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "test_core_lease.h"

#define CLIENTS 5
#define BIN (10 * MS)
#define BINS 20000u
#define WINDOW (20 * SEC)
#define FROM (10 * SEC)
#define UNTIL (BINS * BIN)

struct mix {
	size_t count;
	uint32_t fraction[CLIENTS], sync_every[CLIENTS];
	uint64_t kernel_ns[CLIENTS], work_ns[CLIENTS], rest_ns[CLIENTS];
};

struct had {
	uint64_t ns[CLIENTS][BINS + 1];
};

static struct had had;

static void mixed_span(void *context, const struct lease_sim_span *span)
{
	struct had *books = context;

	for (uint64_t at = span->from; at < span->to;) {
		uint64_t end = MIN(span->to, (at / BIN + 1) * BIN);

		if (at / BIN < BINS)
			books->ns[span->client][at / BIN] += end - at;
		at = end;
	}
}

static void mix_run(const struct mix *mix, uint64_t lease_ns)
{
	struct lease_setting setting = {COMPUTE_STRICT, lease_ns, LEASE_GRANULARITY_DEFAULT};
	struct lease_sim *sim = lease_sim_new(1, mixed_span, &had);

	assert_non_null(sim);
	memset(&had, 0, sizeof(had));
	lease_sim_set(sim, 0, &setting);
	/* A thread of a busy machine takes so long to begin. */
	lease_sim_costs(sim, 300000, 200000);
	for (size_t i = 0; i < mix->count; i++) {
		struct lease_sim_client c = {.owner = i + 1,
					     .gpus = 1,
					     .fraction_ppm = mix->fraction[i],
					     .kernel_ns = mix->kernel_ns[i],
					     .sync_every = mix->sync_every[i],
					     .work_ns = mix->work_ns[i],
					     .rest_ns = mix->rest_ns[i],
					     .arrives = i * 37 * MS};

		assert_true(lease_sim_add(sim, &c) == (int)i);
	}
	go(sim, UNTIL);
	lease_sim_flush(sim);
	lease_sim_free(sim);
}

/* Points that a client had beyond its share in the windows where it had least and most, wherever
 * they begin. */
struct windows {
	double least, most;
};

static struct windows windows_of(const struct mix *mix, size_t client)
{
	struct windows found = {100, -100};
	uint64_t sum = 0;

	for (size_t i = FROM / BIN; i < BINS; i++) {
		sum += had.ns[client][i];
		if (i < (FROM + WINDOW) / BIN)
			continue;
		sum -= had.ns[client][i - WINDOW / BIN];
		double off = 100.0 * (double)sum / WINDOW - mix->fraction[client] / 1e4;
		found.least = MIN(found.least, off);
		found.most = MAX(found.most, off);
	}
	return found;
}

static void assert_misses(const struct mix *mix, size_t client, double points, const char *what)
{
	struct windows found = windows_of(mix, client);

	if (found.least < -points)
		fail_msg("%s: client %zu (%.1f%%, kernels of %.2f ms) misses %.2f points in 20 s",
			 what, client, mix->fraction[client] / 1e4,
			 (double)mix->kernel_ns[client] / 1e6, -found.least);
}

static void kernels_of_50_us_5_ms_and_100_ms_have_their_shares(void **state)
{
	static const uint32_t shares[][3] = {{400000, 400000, 200000}, {200000, 300000, 500000},
					     {500000, 300000, 200000}, {330000, 330000, 340000},
					     {100000, 450000, 450000}, {800000, 100000, 100000}};

	for (size_t i = 0; i < ARRAY_SIZE(shares); i++)
		for (uint64_t lease = 50; lease <= 250; lease += 50) {
			struct mix mix = {.count = 3,
					  .sync_every = {8, 8, 1},
					  .kernel_ns = {50000, 5 * MS, 100 * MS}};

			memcpy(mix.fraction, shares[i], sizeof(shares[i]));
			mix_run(&mix, lease * MS);
			for (size_t c = 0; c < mix.count; c++)
				assert_misses(&mix, c, 1, "50 us, 5 ms, 100 ms");
		}
}

/* The kernels of one client last `longest`, those of the others 50 us to that. */
static struct mix random_mix(uint64_t *rnd, uint64_t longest)
{
	static const uint32_t syncs[] = {1, 8, 64};
	struct mix mix = {.count = 2 + random_next(rnd) % (CLIENTS - 1)};
	uint32_t left = LEASE_PPM;

	for (size_t i = 0; i < mix.count; i++) {
		uint32_t most = left - (uint32_t)(mix.count - 1 - i) * 50000;
		uint32_t part = 50000 + (uint32_t)(random_next(rnd) % MAX(most / 2, 1));

		mix.fraction[i] = i + 1 < mix.count ? MIN(part, most) : left;
		left -= mix.fraction[i];
		mix.kernel_ns[i] = (uint64_t)(50000 * pow((double)longest / 50000,
							  (double)(random_next(rnd) % 1000) / 1e3));
		mix.sync_every[i] = syncs[random_next(rnd) % ARRAY_SIZE(syncs)];
	}
	mix.kernel_ns[random_next(rnd) % mix.count] = longest;
	return mix;
}

/* A window of 20 s cuts the kernels at its ends. Where these last up to 300 ms (1.5 points) it can
 * not be exact to one point, but is to less than a kernel. */
static void random_mixes_have_their_shares(void **state)
{
	static const struct {
		uint64_t longest;
		double points;
	} kinds[] = {{20 * MS, 1}, {50 * MS, 1}, {100 * MS, 1}, {200 * MS, 1.25}, {300 * MS, 1.5}};
	uint64_t rnd = 0x9e3779b97f4a7c15ull;

	for (int i = 0; i < 100; i++) {
		size_t kind = (size_t)i % ARRAY_SIZE(kinds);
		struct mix mix = random_mix(&rnd, kinds[kind].longest);
		char what[64];

		snprintf(what, sizeof(what), "mix %d", i);
		mix_run(&mix, 250 * MS);
		for (size_t c = 0; c < mix.count; c++)
			assert_misses(&mix, c, kinds[kind].points, what);
	}
}

/* A client that returns has what it is owed at once, but only so much that nobody misses more. */
static void a_client_that_rests_and_returns_takes_nothing(void **state)
{
	static const uint64_t rests[] = {50 * MS, 700 * MS, 3 * SEC, 11 * SEC};

	for (size_t i = 0; i < ARRAY_SIZE(rests); i++) {
		struct mix mix = {.count = 3,
				  .fraction = {400000, 400000, 200000},
				  .sync_every = {8, 8, 1},
				  .kernel_ns = {50000, 5 * MS, 100 * MS},
				  .work_ns = {0, 0, 1 * SEC},
				  .rest_ns = {0, 0, rests[i]}};

		mix_run(&mix, 250 * MS);
		assert_misses(&mix, 0, 1, "beside one that rests");
		assert_misses(&mix, 1, 1, "beside one that rests");
		assert_true(windows_of(&mix, 2).most < 1);
	}
}

/* Late time is charged to whoever was late. */
static void long_kernels_win_nothing(void **state)
{
	static const uint64_t kernels[] = {30 * MS, 90 * MS, 249 * MS, 251 * MS, 300 * MS};
	static const uint32_t syncs[] = {1, 2, 64};

	for (size_t i = 0; i < ARRAY_SIZE(kernels); i++)
		for (size_t s = 0; s < ARRAY_SIZE(syncs); s++) {
			struct mix mix = {.count = 3,
					  .fraction = {450000, 350000, 200000},
					  .sync_every = {8, 8, syncs[s]},
					  .kernel_ns = {50000, 1 * MS, kernels[i]}};
			uint64_t sum = 0;

			mix_run(&mix, 250 * MS);
			/* A kernel longer than 1 point of 20 s can stand at a window's end. */
			double points = kernels[i] > 200 * MS ? 1.25 : 1;
			assert_misses(&mix, 0, points, "beside long kernels");
			assert_misses(&mix, 1, points, "beside long kernels");
			for (size_t bin = 0; bin < BINS; bin++)
				sum += had.ns[2][bin];
			/* A kernel at the end is not paid for yet. */
			double off = 100.0 * (double)sum / UNTIL - 20;
			if (off > 0.1)
				fail_msg("kernels of %.0f ms won %.2f points",
					 (double)kernels[i] / 1e6, off);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernels_of_50_us_5_ms_and_100_ms_have_their_shares),
		cmocka_unit_test(random_mixes_have_their_shares),
		cmocka_unit_test(a_client_that_rests_and_returns_takes_nothing),
		cmocka_unit_test(long_kernels_win_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
