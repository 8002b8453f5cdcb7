/* Tables that take one another's place (src/core/lease_left.h): shares, plans and what is shown go
 * on. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/macros.h"
#include "core/lease_left.h"

#define MS 1000000ull
#define SEC 1000000000ull
#define CLIENTS 3

/* Clients of one GPU that always want, and never overrun. */
struct world {
	struct lease_table *t;
	struct lease_setting setting;
	uint32_t fraction[CLIENTS], count;
	uint64_t now, held[CLIENTS], opened;
	int holder; /* -1: none */
	uint64_t next;
};

static void clients_add(struct world *w)
{
	for (uint32_t i = 0; i < w->count; i++)
		assert_int_equal(lease_client_add(w->t, i + 1, 0, 1, w->fraction[i], w->now), 0);
}

static void clients_want(struct world *w)
{
	for (uint32_t i = 0; i < w->count; i++)
		lease_wants(w->t, i + 1, true, w->now);
}

static void world_begin(struct world *w)
{
	w->t = lease_table_new();
	w->holder = -1;
	assert_non_null(w->t);
	lease_set(w->t, 0, &w->setting, w->now);
	clients_add(w);
	clients_want(w);
}

static void holder_end(struct world *w)
{
	if (w->holder >= 0)
		w->held[w->holder] += w->now - w->opened;
	w->holder = -1;
}

static void act(struct world *w)
{
	struct lease_action a;

	while ((a = lease_next(w->t, w->now, &w->next)).kind != LEASE_NONE) {
		if (a.kind == LEASE_GRANT) {
			assert_int_equal(w->holder, -1);
			w->holder = (int)a.id - 1;
			w->opened = w->now;
			lease_opened(w->t, a.id, w->now);
		} else if (a.kind == LEASE_REVOKE) {
			holder_end(w);
			lease_closed(w->t, a.id, w->now);
		}
	}
}

static void go(struct world *w, uint64_t until)
{
	for (act(w); w->next < until; act(w))
		w->now = w->next;
	w->now = until;
}

struct left {
	int64_t gpu[LEASE_LEFT_MAX], client[CLIENTS][LEASE_LEFT_MAX];
	size_t gpu_count, count[CLIENTS];
};

static void leave(struct world *w, struct left *left)
{
	left->gpu_count = lease_gpu_leave(w->t, 0, w->now, left->gpu);
	assert_true(left->gpu_count > 0);
	for (uint32_t i = 0; i < w->count; i++) {
		left->count[i] = lease_client_leave(w->t, i + 1, w->now, left->client[i]);
		assert_in_range(left->count[i], 1, LEASE_LEFT_MAX);
	}
}

/* The holder goes on for `gap`; then its gate is closed, and all ask again. */
static void restart(struct world *w, uint64_t gap)
{
	struct left left;

	leave(w, &left);
	w->now += gap;
	holder_end(w);
	lease_table_free(w->t);
	w->t = lease_table_new();
	lease_set(w->t, 0, &w->setting, w->now);
	assert_int_equal(lease_gpu_take_up(w->t, 0, left.gpu, left.gpu_count, w->now), 0);
	clients_add(w);
	for (uint32_t i = 0; i < w->count; i++)
		assert_int_equal(
			lease_client_take_up(w->t, i + 1, left.client[i], left.count[i], w->now),
			0);
	clients_want(w);
}

static void shares(const struct lease_setting *setting, const uint32_t *fraction, uint32_t count,
		   const double *wanted)
{
	struct world w = {.setting = *setting, .count = count, .now = 100 * SEC};

	for (uint32_t i = 0; i < count; i++)
		w.fraction[i] = fraction[i];
	world_begin(&w);
	for (int i = 0; i < 150; i++) {
		go(&w, w.now + 380 * MS);
		restart(&w, 20 * MS);
	}
	for (uint32_t i = 0; i < count; i++) {
		double share = (double)w.held[i] / (double)(w.now - 100 * SEC);
		struct lease_client_stat stat;

		if (share < wanted[i] - 0.02 || share > wanted[i] + 0.02)
			fail_msg("client %u got %.3f, not %.3f", i, share, wanted[i]);
		assert_int_equal(lease_client_stat(w.t, i + 1, w.now, &stat), 0);
		assert_int_equal(stat.held_ns, w.held[i]);
		share = stat.received_minute_ppm / 1e6;
		if (share < wanted[i] - 0.03 || share > wanted[i] + 0.03)
			fail_msg("client %u: shown %.3f, not %.3f", i, share, wanted[i]);
	}
	lease_table_free(w.t);
}

static const struct lease_setting strict = {COMPUTE_STRICT, 250 * MS, LEASE_GRANULARITY_DEFAULT};
static const struct lease_setting fair = {COMPUTE_FAIR, 250 * MS, LEASE_GRANULARITY_DEFAULT};

static void shares_are_kept(void **state)
{
	shares(&strict, (uint32_t[]){250000}, 1, (double[]){0.25});
	shares(&strict, (uint32_t[]){250000, 750000}, 2, (double[]){0.25, 0.75});
	shares(&strict, (uint32_t[]){300000, 0}, 2, (double[]){0.3, 0.7});
	shares(&fair, (uint32_t[]){200000, 300000, 500000}, 3, (double[]){0.2, 0.3, 0.5});
	shares(&fair, (uint32_t[]){0, 0}, 2, (double[]){0.5, 0.5});
}

static void a_malformed_list_is_refused(void **state)
{
	struct world w = {.setting = strict, .count = 2, .fraction = {250000, 750000}, .now = SEC};
	struct left left;

	world_begin(&w);
	go(&w, 3 * SEC);
	leave(&w, &left);
	struct lease_table *t = lease_table_new();
	lease_set(t, 0, &strict, w.now);
	assert_int_equal(lease_gpu_take_up(t, 0, left.gpu, left.gpu_count - 1, w.now), -EINVAL);
	assert_int_equal(lease_gpu_take_up(t, 0, left.client[0], left.count[0], w.now), -EINVAL);
	assert_int_equal(lease_gpu_take_up(t, 0, NULL, 0, w.now), -EINVAL);
	lease_client_add(t, 1, 0, 1, 250000, w.now);
	assert_int_equal(lease_client_take_up(t, 1, left.client[0], left.count[0] - 1, w.now),
			 -EINVAL);
	assert_int_equal(lease_client_take_up(t, 1, left.gpu, left.gpu_count, w.now), -EINVAL);
	assert_int_equal(lease_client_take_up(t, 1, left.client[0], left.count[0], SEC), -EINVAL);
	assert_int_equal(lease_client_take_up(t, 2, left.client[1], left.count[1], w.now), -EINVAL);
	/* A client of two GPUs is another one. */
	lease_client_add(t, 3, 0, 3, 250000, w.now);
	assert_int_equal(lease_client_take_up(t, 3, left.client[0], left.count[0], w.now), -EINVAL);
	left.client[0][0]++;
	assert_int_equal(lease_client_take_up(t, 1, left.client[0], left.count[0], w.now), -EINVAL);
	assert_int_equal(lease_client_leave(t, 9, w.now, left.client[0]), 0);
	lease_table_free(t);
	lease_table_free(w.t);
}

/* When the next client of owner 7 is granted, of what one of 10% left, who had the GPU for 0.5 s.
 */
static uint64_t first_turn(struct lease_table *t, uint64_t now)
{
	uint64_t next = now;

	assert_int_equal(lease_client_add(t, 2, 7, 1, 100000, now), 0);
	lease_wants(t, 2, true, now);
	while (lease_next(t, now, &next).kind != LEASE_GRANT) {
		assert_true(next != UINT64_MAX);
		now = next;
	}
	return now;
}

/* Debts of those that have gone are not forgotten; not for those either that stay, who are
 * added again. */
static void debts_are_kept(void **state)
{
	struct world w = {.setting = strict, .t = lease_table_new()};
	struct left left;

	lease_set(w.t, 0, &strict, 0);
	assert_int_equal(lease_client_add(w.t, 1, 7, 1, 100000, 0), 0);
	assert_int_equal(lease_client_add(w.t, 3, 7, 1, 100000, 0), 0);
	lease_opened(w.t, 1, 0);
	lease_client_remove(w.t, 1, 500 * MS);
	left.gpu_count = lease_gpu_leave(w.t, 0, 600 * MS, left.gpu);
	left.count[0] = lease_client_leave(w.t, 3, 600 * MS, left.client[0]);
	lease_table_free(w.t);
	w.t = lease_table_new();
	lease_set(w.t, 0, &strict, 600 * MS);
	assert_int_equal(lease_gpu_take_up(w.t, 0, left.gpu, left.gpu_count, 600 * MS), 0);
	assert_int_equal(lease_client_add(w.t, 3, 7, 1, 100000, 600 * MS), 0);
	assert_int_equal(lease_client_take_up(w.t, 3, left.client[0], left.count[0], 600 * MS), 0);
	assert_in_range(first_turn(w.t, 600 * MS), 4900 * MS, 5100 * MS);
	lease_table_free(w.t);
	/* These are left by a version that knows of no debts. */
	w.t = lease_table_new();
	lease_set(w.t, 0, &strict, 600 * MS);
	assert_int_equal(lease_gpu_take_up(w.t, 0, left.gpu, 5, 600 * MS), 0);
	assert_true(first_turn(w.t, 600 * MS) == 600 * MS);
	lease_table_free(w.t);
}

/* Turns go on, whatever the numbers say. */
static void any_numbers(void **state)
{
	uint64_t rnd = 88172645463325252ull;

	for (int round = 0; round < 2000; round++) {
		struct world w = {
			.setting = round % 2 ? fair : strict, .count = 2, .fraction = {250000, 0}};
		struct left left;
		uint32_t turns = 0;

		w.now = 100 * SEC;
		world_begin(&w);
		go(&w, 103 * SEC);
		leave(&w, &left);
		for (int i = 0; i < 6; i++) {
			int64_t *list = i % 3 ? left.client[i % 3 - 1] : left.gpu;
			size_t count = i % 3 ? left.count[i % 3 - 1] : left.gpu_count;

			rnd ^= rnd << 13, rnd ^= rnd >> 7, rnd ^= rnd << 17;
			list[2 + rnd % (count - 2)] = (int64_t)(rnd >> (rnd >> 58));
		}
		lease_table_free(w.t);
		w.t = lease_table_new();
		w.holder = -1;
		lease_set(w.t, 0, &w.setting, w.now);
		(void)lease_gpu_take_up(w.t, 0, left.gpu, left.gpu_count, w.now);
		clients_add(&w);
		for (uint32_t i = 0; i < 2; i++)
			(void)lease_client_take_up(w.t, i + 1, left.client[i], left.count[i],
						   w.now);
		clients_want(&w);
		for (act(&w); turns < 100 && w.next < 160 * SEC; act(&w), turns++)
			w.now = w.next;
		assert_true(turns > 0);
		lease_table_free(w.t);
	}
}

/* Nothing can be told of the first moments of a plan: what is shown is what was received of the
 * last one. */
static void a_change_shows_the_last_plan_until_the_next_is_over(void **state)
{
	struct world w = {.setting = strict, .count = 1, .fraction = {250000}, .now = 100 * SEC};
	struct lease_client_stat stat;

	world_begin(&w);
	go(&w, w.now + 60 * SEC);
	assert_int_equal(lease_client_stat(w.t, 1, w.now, &stat), 0);
	uint32_t last = stat.received_plan_ppm;
	assert_in_range(last, 200000, 300000);
	lease_set(w.t, 0, &fair, w.now);
	go(&w, w.now + 3 * MS);
	assert_int_equal(lease_client_stat(w.t, 1, w.now, &stat), 0);
	assert_int_equal(stat.received_plan_ppm, last);
	go(&w, w.now + 2 * lease_plan_ns(&fair));
	assert_int_equal(lease_client_stat(w.t, 1, w.now, &stat), 0);
	assert_in_range(stat.received_plan_ppm, 990000, 1000000);
	lease_table_free(w.t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_change_shows_the_last_plan_until_the_next_is_over),
		cmocka_unit_test(shares_are_kept),
		cmocka_unit_test(debts_are_kept),
		cmocka_unit_test(a_malformed_list_is_refused),
		cmocka_unit_test(any_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
