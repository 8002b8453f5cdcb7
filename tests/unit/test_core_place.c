#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/macros.h"
#include "base/units.h"
#include "core/compute.h"
#include "core/place.h"

static struct place_gpu gpu_of(uint64_t total)
{
	return (struct place_gpu){.total = total, .offered = true};
}

static struct place_request bytes_of(uint64_t bytes)
{
	return (struct place_request){.kind = PLACE_BYTES, .bytes = bytes, .count = 1};
}

/* Grants what was decided, as the daemon does. */
static void take(struct place_gpu *gpus, const struct place_request *request,
		 const struct place_result *result)
{
	for (uint32_t i = 0; i < result->count; i++) {
		struct place_gpu *gpu = &gpus[result->grant[i].gpu];

		gpu->promised += result->grant[i].bytes;
		gpu->sessions++;
		gpu->share += place_compute(request);
	}
}

/* The specification's example: 81559 MiB cut into 5 GiB slices. */
static void tolerance_example(void **state)
{
	struct place_gpu gpu = gpu_of(MIB(81559));
	struct place_request request = bytes_of(GIB(5));
	struct place_result result;

	for (int i = 0; i < 15; i++) {
		assert_int_equal(place_decide(PLACE_PACK, &gpu, 1, &request, &result), 0);
		assert_false(result.tolerance_applied);
		assert_int_equal(result.grant[0].bytes, GIB(5));
		take(&gpu, &request, &result);
	}
	/* 4759 MiB are 92.95% of 5 GiB. */
	assert_int_equal(place_available(&gpu), MIB(4759));
	assert_int_equal(place_decide(PLACE_PACK, &gpu, 1, &request, &result), -ENOSPC);
	/* 93% of 5 GiB are 4761.6 MiB. */
	gpu.total = MIB(15 * 5120) + 4992899481u;
	assert_int_equal(place_decide(PLACE_PACK, &gpu, 1, &request, &result), -ENOSPC);
	gpu.total++;
	assert_int_equal(place_decide(PLACE_PACK, &gpu, 1, &request, &result), 0);
	assert_true(result.tolerance_applied);
	assert_int_equal(result.grant[0].bytes, 4992899482u);
	assert_int_equal(result.grant[0].requested, GIB(5));
	request.strict = true;
	assert_int_equal(place_decide(PLACE_PACK, &gpu, 1, &request, &result), -ENOSPC);
}

static void tolerance_is_last_resort(void **state)
{
	/* GPU 0 has 95%, GPU 1 all of it: no tolerance although GPU 0 would be the tighter fit. */
	struct place_gpu gpus[] = {gpu_of(MIB(950)), gpu_of(MIB(90000))};
	struct place_request request = bytes_of(MIB(1000));
	struct place_result result;

	assert_int_equal(place_decide(PLACE_PACK, gpus, 2, &request, &result), 0);
	assert_int_equal(result.grant[0].gpu, 1);
	assert_false(result.tolerance_applied);
	/* The larger of two remainders is taken. */
	gpus[1].total = MIB(960);
	assert_int_equal(place_decide(PLACE_PACK, gpus, 2, &request, &result), 0);
	assert_int_equal(result.grant[0].gpu, 1);
	assert_int_equal(result.grant[0].bytes, MIB(960));
	assert_true(result.tolerance_applied);
}

static void best_fit(void **state)
{
	struct place_gpu gpus[] = {gpu_of(GIB(80)), gpu_of(GIB(24)), gpu_of(GIB(24)),
				   gpu_of(GIB(8))};
	struct place_request request = bytes_of(GIB(10));
	struct place_result result;

	assert_int_equal(place_decide(PLACE_PACK, gpus, 4, &request, &result), 0);
	assert_int_equal(result.grant[0].gpu, 1);
	gpus[2].promised = GIB(10);
	assert_int_equal(place_decide(PLACE_PACK, gpus, 4, &request, &result), 0);
	assert_int_equal(result.grant[0].gpu, 2);
	static const uint8_t only_first[] = {1, 0, 0, 0};
	request.allowed = only_first;
	assert_int_equal(place_decide(PLACE_PACK, gpus, 4, &request, &result), 0);
	assert_int_equal(result.grant[0].gpu, 0);
	gpus[0].offered = false;
	assert_int_equal(place_decide(PLACE_PACK, gpus, 4, &request, &result), -ENOSPC);
}

/* With equal memory the time that is left decides: a fraction goes where another one is, and leaves
 * whole time for whole fractions. */
static void best_fit_by_time(void **state)
{
	struct place_gpu gpus[3] = {gpu_of(GIB(80)), gpu_of(GIB(80)), gpu_of(GIB(80))};
	struct place_request request = {
		.kind = PLACE_FRACTION, .share = 250000, .compute = 250000, .count = 1};
	struct place_result result;

	for (int i = 0; i < 3; i++) {
		gpus[i].promised = GIB(40);
		gpus[i].sessions = 1;
		gpus[i].shared_time = true;
	}
	gpus[0].share = 100000;
	gpus[1].share = 500000;
	gpus[2].share = 800000; /* has not as much left */
	assert_int_equal(place_decide(PLACE_PACK, gpus, 3, &request, &result), 0);
	assert_int_equal(result.grant[0].gpu, 1);
	/* Memory comes first. */
	gpus[0].promised = GIB(50);
	assert_int_equal(place_decide(PLACE_PACK, gpus, 3, &request, &result), 0);
	assert_int_equal(result.grant[0].gpu, 0);
	/* Where the driver shares time nothing is promised of it. */
	gpus[0].promised = GIB(40);
	for (int i = 0; i < 3; i++)
		gpus[i].shared_time = false;
	assert_int_equal(place_decide(PLACE_PACK, gpus, 3, &request, &result), 0);
	assert_int_equal(result.grant[0].gpu, 0);
}

static void several_gpus(void **state)
{
	struct place_gpu gpus[] = {gpu_of(GIB(40)), gpu_of(GIB(80)), gpu_of(GIB(41))};
	struct place_request request = bytes_of(GIB(40));
	struct place_result result;

	request.count = 2;
	assert_int_equal(place_decide(PLACE_PACK, gpus, 3, &request, &result), 0);
	assert_int_equal(result.count, 2);
	assert_int_equal(result.grant[0].gpu, 0);
	assert_int_equal(result.grant[1].gpu, 2);
	/* By tolerance the amount is the same on both: the smaller remainder. */
	request.bytes = GIB(42);
	assert_int_equal(place_decide(PLACE_PACK, gpus, 3, &request, &result), 0);
	assert_true(result.tolerance_applied);
	assert_int_equal(result.grant[0].gpu, 1);
	assert_int_equal(result.grant[1].gpu, 2);
	assert_int_equal(result.grant[0].bytes, GIB(41));
	assert_int_equal(result.grant[1].bytes, GIB(41));
	request.count = 4;
	assert_int_equal(place_decide(PLACE_PACK, gpus, 3, &request, &result), -ENOSPC);
	assert_false(place_possible(gpus, 3, &request));
}

static void fractions(void **state)
{
	struct place_gpu gpus[] = {gpu_of(GIB(81)), gpu_of(GIB(24))};
	struct place_request request = {.kind = PLACE_FRACTION, .share = SHARE_ONE / 4, .count = 1};
	struct place_result result;

	gpus[0].reserved = GIB(1);
	request.strict = true;
	/* Four quarters fit on each GPU, and not one more. */
	for (int i = 0; i < 8; i++) {
		assert_int_equal(place_decide(PLACE_PACK, gpus, 2, &request, &result), 0);
		assert_int_equal(result.grant[0].bytes,
				 result.grant[0].gpu == 0 ? GIB(20) : GIB(6));
		take(gpus, &request, &result);
	}
	assert_int_equal(place_available(&gpus[0]), 0);
	assert_int_equal(place_available(&gpus[1]), 0);
	assert_int_equal(place_decide(PLACE_PACK, gpus, 2, &request, &result), -ENOSPC);
}

static void whole_gpus(void **state)
{
	struct place_gpu gpus[] = {gpu_of(GIB(80)), gpu_of(GIB(80)), gpu_of(GIB(80))};
	struct place_request request = {.kind = PLACE_WHOLE, .share = SHARE_ONE, .count = 2};
	struct place_result result;

	gpus[1].sessions = 1;
	gpus[1].promised = MIB(100);
	assert_int_equal(place_decide(PLACE_PACK, gpus, 3, &request, &result), 0);
	assert_int_equal(result.grant[0].gpu, 0);
	assert_int_equal(result.grant[1].gpu, 2);
	assert_int_equal(result.grant[0].bytes, GIB(80));
	request.count = 3;
	assert_int_equal(place_decide(PLACE_PACK, gpus, 3, &request, &result), -ENOSPC);
	assert_int_equal(place_check(gpus, 1, &request), PLACE_NOT_EMPTY);
	assert_true(place_possible(gpus, 3, &request));
	/* A desktop's few MiB do not make a GPU unusable as a whole. */
	request.count = 1;
	gpus[0].outside = gpus[2].outside = MIB(50);
	assert_int_equal(place_decide(PLACE_PACK, gpus, 3, &request, &result), 0);
	assert_true(result.tolerance_applied);
	assert_int_equal(result.grant[0].bytes, GIB(80) - MIB(50));
}

static void compute(void **state)
{
	struct place_gpu gpus[] = {gpu_of(GIB(80)), gpu_of(GIB(80))};
	struct place_request request = {.kind = PLACE_BYTES, .bytes = GIB(1), .count = 1};
	struct place_result result;

	request.compute = SHARE_ONE * 6 / 10;
	gpus[0].shared_time = gpus[1].shared_time = true;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(place_decide(PLACE_PACK, gpus, 2, &request, &result), 0);
		assert_int_equal(result.grant[0].gpu, i);
		take(gpus, &request, &result);
	}
	assert_int_equal(place_decide(PLACE_PACK, gpus, 2, &request, &result), -ENOSPC);
	assert_int_equal(place_check(gpus, 0, &request), PLACE_NO_COMPUTE);
	request.compute = SHARE_ONE * 4 / 10;
	assert_int_equal(place_decide(PLACE_PACK, gpus, 2, &request, &result), 0);
	/* Where time is not promised, it does not matter. */
	gpus[0].shared_time = gpus[1].shared_time = false;
	request.compute = SHARE_ONE;
	assert_int_equal(place_decide(PLACE_PACK, gpus, 2, &request, &result), 0);
}

static void contexts(void **state)
{
	struct place_gpu gpus[] = {gpu_of(GIB(80)), gpu_of(GIB(16))};
	struct place_request request = bytes_of(MIB(300));
	struct place_result result;

	gpus[0].context = MIB(500);
	gpus[1].context = MIB(200);
	/* It fits on the small one. */
	assert_int_equal(place_decide(PLACE_PACK, gpus, 2, &request, &result), 0);
	assert_int_equal(result.grant[0].gpu, 1);
	gpus[1].context = MIB(301);
	assert_int_equal(place_decide(PLACE_PACK, gpus, 2, &request, &result), -EDOM);
	assert_int_equal(place_check(gpus, 0, &request), PLACE_TOO_SMALL);
	gpus[1].context = MIB(300);
	assert_int_equal(place_decide(PLACE_PACK, gpus, 2, &request, &result), 0);
	/* A remainder too small for a context is no consolation. */
	gpus[1].promised = GIB(16) - MIB(290);
	assert_int_equal(place_decide(PLACE_PACK, gpus, 2, &request, &result), -ENOSPC);
}

static void outside_use(void **state)
{
	struct place_gpu gpu = gpu_of(GIB(80));
	struct place_request request = bytes_of(GIB(40));
	struct place_result result;

	gpu.outside = GIB(45);
	assert_int_equal(place_decide(PLACE_PACK, &gpu, 1, &request, &result), -ENOSPC);
	assert_true(place_possible(&gpu, 1, &request));
	gpu.outside = GIB(100); /* the driver's figures may be off for a moment */
	assert_int_equal(place_available(&gpu), 0);
	request.bytes = GIB(81);
	assert_true(place_possible(&gpu, 1, &request)); /* by tolerance */
	request.strict = true;
	assert_false(place_possible(&gpu, 1, &request));
}

/* A strict fraction or whole GPU may lack what little programs outside carve hold, and an amount of
 * memory may not. */
static void resident_use(void **state)
{
	struct place_gpu gpu = gpu_of(GIB(80));
	struct place_request request = {.kind = PLACE_WHOLE,
					.share = SHARE_ONE,
					.count = 1,
					.strict = true,
					.lacks_resident = true};
	struct place_result result;

	gpu.outside = GIB(80) / 100;
	assert_int_equal(place_decide(PLACE_PACK, &gpu, 1, &request, &result), 0);
	assert_int_equal(result.grant[0].bytes, GIB(80) - gpu.outside);
	gpu.outside += 100;
	assert_int_equal(place_decide(PLACE_PACK, &gpu, 1, &request, &result), -ENOSPC);
	assert_true(place_possible(&gpu, 1, &request));
	gpu.outside = MIB(100);
	request.kind = PLACE_FRACTION;
	request.share = SHARE_ONE / 2;
	gpu.promised = GIB(40);
	assert_int_equal(place_decide(PLACE_PACK, &gpu, 1, &request, &result), 0);
	assert_int_equal(result.grant[0].bytes, GIB(40) - MIB(100));
	/* A byte more was promised to another slice: that is waited for. */
	gpu.promised++;
	assert_int_equal(place_decide(PLACE_PACK, &gpu, 1, &request, &result), -ENOSPC);
	gpu.promised--;
	request.kind = PLACE_BYTES;
	request.bytes = GIB(40);
	assert_int_equal(place_decide(PLACE_PACK, &gpu, 1, &request, &result), -ENOSPC);
	request.kind = PLACE_FRACTION;
	request.lacks_resident = false;
	assert_int_equal(place_decide(PLACE_PACK, &gpu, 1, &request, &result), -ENOSPC);
}

/* ---- properties -------------------------------------------------------------------------- */

static uint64_t any(uint64_t below)
{
	return ((uint64_t)random() << 31 ^ (uint64_t)random()) % below;
}

static struct place_request any_request(void)
{
	struct place_request request = {
		.kind = (enum place_kind)any(3),
		.bytes = SLICE_BYTES_MIN + any(GIB(60)),
		.share = 1000 + (uint32_t)any(SHARE_ONE - 1000),
		.compute = any(2) ? (uint32_t)any(SHARE_ONE) : 0,
		.count = 1 + (uint32_t)any(3),
		.strict = any(2),
	};
	return request;
}

/* Said once more, without the code under test: whether `count` GPUs have room for all that is
 * asked. */
static bool fits_in_full(const struct place_gpu *gpus, size_t n, const struct place_request *r)
{
	uint32_t found = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t capacity = gpus[i].total - gpus[i].reserved;
		uint64_t need = r->kind == PLACE_BYTES ? r->bytes
				: r->kind == PLACE_WHOLE
					? capacity
					: (uint64_t)((__int128)capacity * r->share / SHARE_ONE);
		uint32_t time = r->kind == PLACE_WHOLE ? SHARE_ONE : r->compute;

		found += gpus[i].offered && need >= SLICE_BYTES_MIN && need >= gpus[i].context &&
			 need + gpus[i].promised + gpus[i].outside <= capacity &&
			 !(r->kind == PLACE_WHOLE && gpus[i].sessions) &&
			 !(gpus[i].shared_time && gpus[i].share + time > SHARE_ONE);
	}
	return found >= r->count;
}

static void check_grant(const struct place_gpu *gpus, const struct place_request *request,
			const struct place_result *result)
{
	assert_int_equal(result->count, request->count);
	for (uint32_t i = 0; i < result->count; i++) {
		const struct place_gpu *gpu = &gpus[result->grant[i].gpu];
		const struct place_grant *grant = &result->grant[i];

		assert_true(i == 0 || grant->gpu > result->grant[i - 1].gpu);
		assert_true(gpu->offered);
		assert_true(gpu->reserved + gpu->outside + gpu->promised + grant->bytes <=
			    gpu->total);
		assert_true(grant->bytes >= gpu->context && grant->bytes >= SLICE_BYTES_MIN);
		assert_true(grant->bytes <= grant->requested);
		assert_true((__int128)grant->bytes * 100 >= (__int128)grant->requested * 93);
		assert_true(!request->strict || grant->bytes == grant->requested);
		assert_true(!gpu->shared_time || place_compute(request) == 0 ||
			    gpu->share + place_compute(request) <= SHARE_ONE);
	}
}

static void random_pools(void **state)
{
	srandom(20260101);
	for (int round = 0; round < 3000; round++) {
		struct place_gpu gpus[8];
		size_t n = 1 + any(8);

		for (size_t i = 0; i < n; i++) {
			gpus[i] = gpu_of(GIB(8) + any(GIB(72)));
			gpus[i].reserved = any(MIB(600));
			gpus[i].outside = any(4) ? 0 : any(GIB(6));
			gpus[i].context = any(2) ? any(MIB(700)) : 0;
			gpus[i].shared_time = any(2);
			gpus[i].offered = any(8);
		}
		for (int step = 0; step < 40; step++) {
			struct place_request request = any_request();
			struct place_result result;
			bool fits = fits_in_full(gpus, n, &request);
			int rc = place_decide(PLACE_PACK, gpus, n, &request, &result);

			if (fits)
				assert_int_equal(rc, 0);
			if (rc < 0)
				continue;
			assert_int_equal(result.tolerance_applied, !fits);
			check_grant(gpus, &request, &result);
			assert_true(place_possible(gpus, n, &request));
			take(gpus, &request, &result);
		}
	}
}

/* Time alone decides here: requests come and go on GPUs with memory for all of them, and GPUs
 * change between modes. A GPU in a time-slicing mode never promises more than all of its time.
 * Nothing is refused that some GPU has time for. */
static void compute_is_promised_once(void **state)
{
	struct place_gpu gpus[4];
	struct {
		uint32_t gpu, share;
	} held[64] = {0};

	srandom(20261122);
	for (int i = 0; i < 4; i++) {
		gpus[i] = gpu_of(GIB(80));
		gpus[i].shared_time = true;
	}
	for (int step = 0; step < 20000; step++) {
		size_t at = any(ARRAY_SIZE(held));
		struct place_request request = bytes_of(GIB(1));
		struct place_result result;
		bool room = false;

		if (held[at].share) {
			gpus[held[at].gpu].share -= held[at].share;
			gpus[held[at].gpu].promised -= GIB(1);
			gpus[held[at].gpu].sessions--;
			held[at].share = 0;
			continue;
		}
		/* Switched on only where that is no promise too many; off at any time. */
		size_t which = any(4);
		if (any(4) == 0)
			gpus[which].shared_time = gpus[which].share <= SHARE_ONE;
		else if (any(8) == 0)
			gpus[which].shared_time = false;
		request.compute = 1 + (uint32_t)any(any(2) ? SHARE_ONE : SHARE_ONE / 20);
		for (int i = 0; i < 4; i++)
			room |= !gpus[i].shared_time ||
				gpus[i].share + request.compute <= SHARE_ONE;
		int rc = place_decide(PLACE_PACK, gpus, 4, &request, &result);
		assert_int_equal(rc, room ? 0 : -ENOSPC);
		if (rc < 0)
			continue;
		take(gpus, &request, &result);
		held[at].gpu = result.grant[0].gpu;
		held[at].share = request.compute;
		for (int i = 0; i < 4; i++)
			assert_true(!gpus[i].shared_time || gpus[i].share <= SHARE_ONE);
	}
}

/* Slices sized by memory ask for no time, and are granted where all of it is promised. */
static void memory_needs_no_time(void **state)
{
	struct place_gpu gpu = gpu_of(GIB(80));
	struct place_request fraction = {
		.kind = PLACE_FRACTION, .share = SHARE_ONE / 2, .compute = SHARE_ONE, .count = 1};
	struct place_request memory = bytes_of(GIB(4));
	struct place_result result;

	gpu.shared_time = true;
	assert_int_equal(place_decide(PLACE_PACK, &gpu, 1, &fraction, &result), 0);
	take(&gpu, &fraction, &result);
	assert_int_equal(place_decide(PLACE_PACK, &gpu, 1, &memory, &result), 0);
	memory.compute = 1;
	assert_int_equal(place_decide(PLACE_PACK, &gpu, 1, &memory, &result), -ENOSPC);
	assert_int_equal(place_check(&gpu, 0, &memory), PLACE_NO_COMPUTE);
	assert_true(place_possible(&gpu, 1, &memory));
	/* A request made while nothing was promised may be too much by now; memory is granted
	 * still. */
	gpu.share = 3 * (uint64_t)SHARE_ONE;
	memory.compute = 0;
	assert_int_equal(place_decide(PLACE_PACK, &gpu, 1, &memory, &result), 0);
}

static void modes_have_names(void **state)
{
	static const char *const names[] = {"off", "fair", "strict"};
	enum compute_mode mode;

	for (int i = 0; i < 3; i++) {
		assert_true(compute_mode_parse(names[i], &mode));
		assert_int_equal(mode, i);
		assert_string_equal(compute_mode_text(mode), names[i]);
		assert_int_equal(compute_mode_promises(mode), i > 0);
	}
	assert_false(compute_mode_parse("Fair", &mode));
	assert_false(compute_mode_parse("", &mode));
}

static void thousand_gpus(void **state)
{
	struct place_gpu *gpus = calloc(1000, sizeof(*gpus));
	struct place_request request = bytes_of(GIB(5));
	struct place_result result;
	struct timespec from, to;

	assert_non_null(gpus);
	for (int i = 0; i < 1000; i++) {
		gpus[i] = gpu_of(GIB(80));
		gpus[i].promised = 8 * GIB(9);
		gpus[i].sessions = 8;
	}
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int i = 0; i < 1000; i++) {
		assert_int_equal(place_decide(PLACE_PACK, gpus, 1000, &request, &result), 0);
		take(gpus, &request, &result);
	}
	clock_gettime(CLOCK_MONOTONIC, &to);
	double each =
		((to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / 1000;
	assert_int_equal(place_decide(PLACE_PACK, gpus, 1000, &request, &result), -ENOSPC);
	print_message("# one decision over 1,000 GPUs: %.1f us\n", each / 1000);
	/* The goal is 100 us; sanitizers and busy machines get room. */
	assert_true(each < 2000000);
	free(gpus);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tolerance_example),
		cmocka_unit_test(tolerance_is_last_resort),
		cmocka_unit_test(best_fit),
		cmocka_unit_test(best_fit_by_time),
		cmocka_unit_test(several_gpus),
		cmocka_unit_test(fractions),
		cmocka_unit_test(whole_gpus),
		cmocka_unit_test(compute),
		cmocka_unit_test(contexts),
		cmocka_unit_test(outside_use),
		cmocka_unit_test(resident_use),
		cmocka_unit_test(random_pools),
		cmocka_unit_test(compute_is_promised_once),
		cmocka_unit_test(memory_needs_no_time),
		cmocka_unit_test(modes_have_names),
		cmocka_unit_test(thousand_gpus),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
