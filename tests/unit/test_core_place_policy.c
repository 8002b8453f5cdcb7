/* Which of several GPUs a request gets: the policy, the time that was used lately, and GPUs that
 * are drained. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/macros.h"
#include "base/units.h"
#include "core/busy.h"
#include "core/place.h"

#define SECOND 1000000000ull

static struct place_gpu gpu_of(uint64_t total)
{
	return (struct place_gpu){.total = total, .offered = true};
}

static struct place_request bytes_of(uint64_t bytes)
{
	return (struct place_request){.kind = PLACE_BYTES, .bytes = bytes, .count = 1};
}

/* The first GPU that the request gets, which is then promised; -1: none. */
static int granted(enum place_policy policy, struct place_gpu *gpus, size_t count,
		   const struct place_request *request)
{
	struct place_result result;

	if (place_decide(policy, gpus, count, request, &result) < 0)
		return -1;
	for (uint32_t i = 0; i < result.count; i++) {
		gpus[result.grant[i].gpu].promised += result.grant[i].bytes;
		gpus[result.grant[i].gpu].share += place_compute(request);
		gpus[result.grant[i].gpu].sessions++;
	}
	return (int)result.grant[0].gpu;
}

static void pack_fills_one_gpu_and_spread_takes_the_gpus_in_turn(void **state)
{
	struct place_gpu gpus[3] = {gpu_of(GIB(80)), gpu_of(GIB(80)), gpu_of(GIB(80))};
	struct place_request request = bytes_of(GIB(20));

	for (int i = 0; i < 4; i++)
		assert_int_equal(granted(PLACE_PACK, gpus, 3, &request), 0);
	assert_int_equal(granted(PLACE_PACK, gpus, 3, &request), 1);
	for (int i = 0; i < 3; i++)
		gpus[i] = gpu_of(GIB(80));
	for (int i = 0; i < 6; i++)
		assert_int_equal(granted(PLACE_SPREAD, gpus, 3, &request), i % 3);
}

/* A GPU of 80 GiB takes as many parts as it is larger. */
static void spread_compares_parts_of_gpus_of_several_sizes(void **state)
{
	struct place_gpu gpus[2] = {gpu_of(GIB(24)), gpu_of(GIB(80))};
	struct place_request request = bytes_of(GIB(12));

	assert_int_equal(granted(PLACE_SPREAD, gpus, 2, &request), 1);
	assert_int_equal(granted(PLACE_SPREAD, gpus, 2, &request), 1);
	/* 24 of 80 are promised; 12 more leave 55% there, and 50% of GPU 0. */
	assert_int_equal(granted(PLACE_SPREAD, gpus, 2, &request), 1);
	assert_int_equal(granted(PLACE_SPREAD, gpus, 2, &request), 0);
}

static void spread_holds_for_several_gpus_and_for_fractions(void **state)
{
	struct place_gpu gpus[4] = {gpu_of(GIB(80)), gpu_of(GIB(80)), gpu_of(GIB(80)),
				    gpu_of(GIB(80))};
	struct place_request request = {.kind = PLACE_FRACTION, .share = SHARE_ONE / 4, .count = 2};
	struct place_result result;

	gpus[0].promised = GIB(10);
	gpus[2].promised = GIB(20);
	assert_int_equal(place_decide(PLACE_SPREAD, gpus, 4, &request, &result), 0);
	assert_int_equal(result.grant[0].gpu, 1);
	assert_int_equal(result.grant[1].gpu, 3);
	assert_int_equal(place_decide(PLACE_PACK, gpus, 4, &request, &result), 0);
	assert_int_equal(result.grant[0].gpu, 0);
	assert_int_equal(result.grant[1].gpu, 2);
}

static void spread_takes_the_gpu_with_the_most_time_left_of_equal_ones(void **state)
{
	struct place_gpu gpus[2] = {gpu_of(GIB(80)), gpu_of(GIB(80))};
	struct place_request request = {.kind = PLACE_FRACTION,
					.share = SHARE_ONE / 4,
					.compute = SHARE_ONE / 4,
					.count = 1};
	struct place_result result;

	gpus[0].shared_time = gpus[1].shared_time = true;
	gpus[0].share = 500000;
	gpus[1].share = 250000;
	assert_int_equal(place_decide(PLACE_SPREAD, gpus, 2, &request, &result), 0);
	assert_int_equal(result.grant[0].gpu, 1);
	assert_int_equal(place_decide(PLACE_PACK, gpus, 2, &request, &result), 0);
	assert_int_equal(result.grant[0].gpu, 0);
}

static void the_least_used_of_equal_gpus_is_taken_where_time_is_not_sliced(void **state)
{
	static const enum place_policy policies[] = {PLACE_PACK, PLACE_SPREAD};

	for (int i = 0; i < 2; i++) {
		struct place_gpu gpus[3] = {gpu_of(GIB(80)), gpu_of(GIB(80)), gpu_of(GIB(80))};
		struct place_request request = bytes_of(GIB(10));
		struct place_result result;

		gpus[0].busy = 90;
		gpus[1].busy = 5;
		gpus[2].busy = 40;
		assert_int_equal(place_decide(policies[i], gpus, 3, &request, &result), 0);
		assert_int_equal(result.grant[0].gpu, 1);
		/* Two GPUs of one session: those that were used least. */
		request.count = 2;
		assert_int_equal(place_decide(policies[i], gpus, 3, &request, &result), 0);
		assert_int_equal(result.grant[0].gpu, 1);
		assert_int_equal(result.grant[1].gpu, 2);
		/* Memory comes first. */
		request.count = 1;
		gpus[0].promised = policies[i] == PLACE_PACK ? GIB(1) : 0;
		gpus[1].promised = policies[i] == PLACE_SPREAD ? GIB(1) : 0;
		gpus[2].promised = gpus[1].promised;
		assert_int_equal(place_decide(policies[i], gpus, 3, &request, &result), 0);
		assert_int_equal(result.grant[0].gpu, 0);
		/* Where time is sliced, each session has its share whatever others did. */
		for (int g = 0; g < 3; g++) {
			gpus[g].promised = 0;
			gpus[g].shared_time = true;
		}
		assert_int_equal(place_decide(policies[i], gpus, 3, &request, &result), 0);
		assert_int_equal(result.grant[0].gpu, 0);
	}
}

static void whole_gpus_go_to_those_that_were_used_least(void **state)
{
	struct place_gpu gpus[2] = {gpu_of(GIB(80)), gpu_of(GIB(80))};
	struct place_request request = {.kind = PLACE_WHOLE, .count = 1};
	struct place_result result;

	gpus[0].busy = 30;
	assert_int_equal(place_decide(PLACE_PACK, gpus, 2, &request, &result), 0);
	assert_int_equal(result.grant[0].gpu, 1);
}

static void the_larger_remainder_is_taken_in_either_policy(void **state)
{
	struct place_gpu gpus[2] = {gpu_of(MIB(950)), gpu_of(MIB(960))};
	struct place_request request = bytes_of(MIB(1000));
	struct place_result result;

	for (int policy = PLACE_PACK; policy <= PLACE_SPREAD; policy++) {
		assert_int_equal(
			place_decide((enum place_policy)policy, gpus, 2, &request, &result), 0);
		assert_true(result.tolerance_applied);
		assert_int_equal(result.grant[0].gpu, 1);
	}
}

/* ---- drained GPUs ------------------------------------------------------------------------ */

static void nothing_is_granted_on_a_drained_gpu_though_it_is_possible(void **state)
{
	struct place_gpu gpus[2] = {gpu_of(GIB(80)), gpu_of(GIB(24))};
	struct place_request request = bytes_of(GIB(10));
	struct place_result result;

	gpus[0].drained = true;
	assert_int_equal(place_decide(PLACE_SPREAD, gpus, 2, &request, &result), 0);
	assert_int_equal(result.grant[0].gpu, 1);
	assert_int_equal(place_check(gpus, 0, &request), PLACE_DRAINED);
	/* A request may wait until the GPU is resumed. */
	request = bytes_of(GIB(40));
	assert_int_equal(place_decide(PLACE_PACK, gpus, 2, &request, &result), -ENOSPC);
	assert_true(place_possible(gpus, 2, &request));
	/* What the GPU could never grant is not worth waiting for. */
	request = bytes_of(GIB(90));
	assert_false(place_possible(gpus, 2, &request));
	request = bytes_of(GIB(40));
	gpus[0].context = GIB(41);
	assert_int_equal(place_check(gpus, 0, &request), PLACE_TOO_SMALL);
}

/* ---- the window -------------------------------------------------------------------------- */

static void the_share_is_of_the_last_five_minutes(void **state)
{
	struct busy busy = {0};
	uint64_t now = 1000 * SECOND;

	assert_int_equal(busy_percent(&busy, now), 0);
	for (int i = 0; i < 60; i++)
		busy_add(&busy, now += SECOND, SECOND);
	assert_int_equal(busy_percent(&busy, now), 20);
	for (int i = 0; i < 600; i++)
		busy_add(&busy, now += SECOND, SECOND / 2);
	assert_in_range(busy_percent(&busy, now), 49, 50);
	/* It is forgotten slot by slot, whether somebody adds or not. */
	assert_in_range(busy_percent(&busy, now + 150 * SECOND), 24, 26);
	assert_int_equal(busy_percent(&busy, now + 301 * SECOND), 0);
	busy_add(&busy, now + 1000 * SECOND, 30 * SECOND);
	assert_int_equal(busy_percent(&busy, now + 1000 * SECOND), 10);
}

static void a_moment_of_work_counts_as_none(void **state)
{
	struct busy busy = {0};

	busy_add(&busy, 10 * SECOND, 2 * SECOND);
	assert_int_equal(busy_percent(&busy, 10 * SECOND), 0);
	busy_add(&busy, 11 * SECOND, SECOND);
	assert_int_equal(busy_percent(&busy, 11 * SECOND), 1);
}

/* A clock that stands still, or a figure that is too high, does no harm. */
static void the_share_is_one_hundred_per_cent_at_most(void **state)
{
	struct busy busy = {0};

	for (int i = 0; i < 1000; i++)
		busy_add(&busy, SECOND, 2 * SECOND);
	assert_int_equal(busy_percent(&busy, SECOND), 100);
	assert_int_equal(busy_percent(&busy, 0), 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pack_fills_one_gpu_and_spread_takes_the_gpus_in_turn),
		cmocka_unit_test(spread_compares_parts_of_gpus_of_several_sizes),
		cmocka_unit_test(spread_holds_for_several_gpus_and_for_fractions),
		cmocka_unit_test(spread_takes_the_gpu_with_the_most_time_left_of_equal_ones),
		cmocka_unit_test(the_least_used_of_equal_gpus_is_taken_where_time_is_not_sliced),
		cmocka_unit_test(whole_gpus_go_to_those_that_were_used_least),
		cmocka_unit_test(the_larger_remainder_is_taken_in_either_policy),
		cmocka_unit_test(nothing_is_granted_on_a_drained_gpu_though_it_is_possible),
		cmocka_unit_test(the_share_is_of_the_last_five_minutes),
		cmocka_unit_test(a_moment_of_work_counts_as_none),
		cmocka_unit_test(the_share_is_one_hundred_per_cent_at_most),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
