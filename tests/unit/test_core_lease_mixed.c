/* Kernels of very different lengths beside each other in strict mode: nobody who always has work
 * may have less than its share over 20 s because others' kernels are long. */
#include "test_core_lease.h"

#include "base/macros.h"

#define CLIENTS_MAX 5u
#define WINDOW (20 * SEC)
#define WINDOWS 10u
#define POINT (WINDOW / 100)
#define RANDOM_MIXES 9u

struct mix {
	uint32_t percent[CLIENTS_MAX];
	uint64_t kernel_ns[CLIENTS_MAX];
	uint64_t work_ns[CLIENTS_MAX], rest_ns[CLIENTS_MAX]; /* 0: it always has work */
};

static const struct mix mixes[] = {
	{{40, 40, 20}, {MS / 20, 5 * MS, 100 * MS}},
	{{20, 30, 50}, {MS / 20, 5 * MS, 100 * MS}},
	{{50, 50}, {MS / 20, 300 * MS}},
	{{10, 90}, {MS / 20, 300 * MS}},
	{{90, 10}, {MS / 20, 300 * MS}},
	{{25, 25, 25, 25}, {MS / 20, MS, 20 * MS, 200 * MS}},
	{{5, 5, 90}, {MS / 20, 100 * MS, 300 * MS}},
	{{60, 10, 30}, {MS / 20, 5 * MS, 200 * MS}},
	/* One that pauses and comes back, and one whose kernels are longer than its turns on
	   purpose. */
	{{40, 30, 30}, {MS / 20, 100 * MS, 5 * MS}, {0, 0, 40 * MS}, {0, 0, 90 * MS}},
	{{45, 45, 10}, {MS / 20, 5 * MS, 1000 * MS}},
	{{30, 30, 20, 20},
	 {MS / 20, 100 * MS, 1000 * MS, MS},
	 {0, 0, 0, 3 * MS},
	 {0, 0, 0, 40 * MS}},
};

/* Kernels of these lengths, or with these means, from the end of the third plan on. */
static void nobody_is_short(const struct mix *mix, uint64_t lease_ns, bool random, uint64_t bound)
{
	struct lease_sim *sim = sim_new(COMPUTE_STRICT, lease_ns);
	uint64_t from = 3 * lease_ns * LEASE_PPM / LEASE_GRANULARITY_DEFAULT, before[CLIENTS_MAX];
	uint32_t count = 0;

	for (; count < CLIENTS_MAX && mix->percent[count]; count++)
		assert_true(lease_sim_add(sim, &(struct lease_sim_client){
						       .owner = count + 1,
						       .gpus = 1,
						       .fraction_ppm = mix->percent[count] * 10000,
						       .kernel_ns = mix->kernel_ns[count],
						       .work_ns = mix->work_ns[count],
						       .rest_ns = mix->rest_ns[count],
						       .random = random,
					       }) >= 0);
	go(sim, from);
	for (uint64_t at = from; at < from + WINDOWS * WINDOW; at += WINDOW) {
		for (uint32_t i = 0; i < count; i++)
			before[i] = lease_sim_result(sim, i).busy_ns;
		go(sim, at + WINDOW);
		for (uint32_t i = 0; i < count; i++) {
			uint64_t had = lease_sim_result(sim, i).busy_ns - before[i];

			/* A kernel of its own more or less is its own doing. */
			if (!mix->work_ns[i] &&
			    had + bound + mix->kernel_ns[i] < mix->percent[i] * POINT)
				fail_msg("mix %zu, leases of %g ms: client %u of %u%% had %.2f%%",
					 (size_t)(mix - mixes), (double)lease_ns / MS, i,
					 mix->percent[i], (double)had / POINT);
		}
	}
	for (uint32_t i = 0; i < count; i++)
		if (!mix->work_ns[i])
			assert_share(sim, i, mix->percent[i], 0.3);
	lease_sim_free(sim);
}

static void test_long_kernels_of_others_take_at_most_a_point(void **state)
{
	(void)state;
	for (size_t m = 0; m < ARRAY_SIZE(mixes); m++)
		for (uint64_t lease_ns = 50 * MS; lease_ns <= 250 * MS; lease_ns += 200 * MS)
			nobody_is_short(&mixes[m], lease_ns, false, POINT);
}

/* Some of them ten times the mean, so not where that is a second. A window may begin just after
 * one's lease, and end just before the next. */
static void test_of_random_kernels_of_others_at_most_a_point_and_a_lease(void **state)
{
	(void)state;
	for (size_t m = 0; m < RANDOM_MIXES; m++)
		for (uint64_t lease_ns = 50 * MS; lease_ns <= 250 * MS; lease_ns += 200 * MS)
			nobody_is_short(&mixes[m], lease_ns, true, POINT + lease_ns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_long_kernels_of_others_take_at_most_a_point),
		cmocka_unit_test(test_of_random_kernels_of_others_at_most_a_point_and_a_lease),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
