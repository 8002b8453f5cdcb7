#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/macros.h"
#include "core/tally.h"

#define HOUR_NS 3600000000000ull
#define DAY(n) ((int64_t)(n) * (int64_t)TALLY_DAY_NS)

static void a_slice_counts_by_its_part_of_the_gpu(void **state)
{
	struct tally tally = {0};

	assert_int_equal(tally_part(GIB(20), GIB(80), 0), 250000);
	/* The larger of both parts. */
	assert_int_equal(tally_part(GIB(20), GIB(80), 500000), 500000);
	assert_int_equal(tally_part(GIB(20), GIB(80), 100000), 250000);
	/* A GPU whose size is not known counts whole, and nothing counts more than whole. */
	assert_int_equal(tally_part(GIB(20), 0, 0), 1000000);
	assert_int_equal(tally_part(GIB(90), GIB(80), 2000000), 1000000);
	tally_add_time(&tally, &(struct tally_time){.ns = 4 * HOUR_NS,
						    .part_ppm = 250000,
						    .bytes = GIB(20),
						    .peak_bytes = GIB(5),
						    .measured_ns = 9 * HOUR_NS,
						    .used_ns = 9 * HOUR_NS});
	assert_int_equal(tally.held_ns, 4 * HOUR_NS);
	assert_int_equal(tally.gpu_ns, HOUR_NS);
	/* Nobody uses a GPU for longer than the slice was held. */
	assert_int_equal(tally.used_ns, 4 * HOUR_NS);
	assert_int_equal(tally.asked_mib_ms / tally.peak_mib_ms, 4);
	assert_int_equal(tally.peak_bytes, GIB(5));
}

static void time_that_nobody_measured_is_not_taken_for_idle(void **state)
{
	struct tally tally = {0};

	tally_add_time(&tally, &(struct tally_time){.ns = HOUR_NS, .used_ns = HOUR_NS});
	assert_int_equal(tally.used_ns, 0);
	assert_int_equal(tally.measured_ns, 0);
	assert_int_equal(tally.held_ns, HOUR_NS);
}

static void a_year_of_64_large_gpus_does_not_overflow(void **state)
{
	struct tally sum = {0};

	for (int i = 0; i < 64; i++)
		tally_add_time(&sum, &(struct tally_time){.ns = 366 * TALLY_DAY_NS,
							  .part_ppm = 1000000,
							  .bytes = GIB(1024),
							  .peak_bytes = GIB(1024)});
	assert_true(tally_average_bytes(sum.asked_mib_ms, sum.held_ns) <= 1ull << 40);
	assert_true(sum.asked_mib_ms < INT64_MAX && sum.gpu_ns < INT64_MAX);
	assert_int_equal(sum.asked_mib_ms / (sum.held_ns / 1000000), 1024 * 1024);
}

static void the_average_of_one_size_is_that_size_and_never_more(void **state)
{
	struct tally tally = {0};

	/* Parts of a millisecond are in the time, and not in the sums. */
	for (int i = 0; i < 5; i++)
		tally_add_time(&tally, &(struct tally_time){.ns = 1200999999 + i * 777777,
							    .bytes = GIB(20),
							    .peak_bytes = GIB(3) + 12345});
	assert_int_equal(tally_average_bytes(tally.asked_mib_ms, tally.held_ns), GIB(20));
	assert_in_range(tally_average_bytes(tally.peak_mib_ms, tally.held_ns), GIB(3) + 11000,
			GIB(3) + 12345);
	tally_add_time(&tally, &(struct tally_time){.ns = 999999, .bytes = GIB(20)});
	assert_in_range(tally_average_bytes(tally.asked_mib_ms, tally.held_ns), 1, GIB(20));
	/* Less than a millisecond is no reason to divide by 0. */
	assert_in_range(tally_average_bytes(20480, 999999), GIB(20), GIB(21));
	assert_int_equal(tally_average_bytes(0, 1), 0);
}

static void a_time_over_midnight_is_divided_among_the_days(void **state)
{
	int64_t end = DAY(100) + (int64_t)HOUR_NS, day;
	uint64_t left = 26 * HOUR_NS, part;

	part = tally_day_take(&end, left, &day);
	assert_int_equal(day, 100);
	assert_int_equal(part, HOUR_NS);
	left -= part;
	part = tally_day_take(&end, left, &day);
	assert_int_equal(day, 99);
	assert_int_equal(part, 24 * HOUR_NS);
	left -= part;
	part = tally_day_take(&end, left, &day);
	assert_int_equal(day, 98);
	assert_int_equal(part, left);
}

static void a_clock_at_1970_ends_the_division(void **state)
{
	int64_t end = 5, day;

	assert_int_equal(tally_day_take(&end, 26 * HOUR_NS, &day), 26 * HOUR_NS);
	assert_int_equal(day, 0);
	end = -7;
	assert_int_equal(tally_day_take(&end, HOUR_NS, &day), HOUR_NS);
	assert_int_equal(day, 0);
}

static void months_are_those_of_the_calendar(void **state)
{
	/* 2024-02-29 and 2024-03-01. */
	assert_int_equal(tally_month(19782), 19782 - 28);
	assert_int_equal(tally_month(19783), 19783);
	assert_int_equal(tally_month(0), 0);
	assert_int_equal(tally_month(30), 0);
	assert_int_equal(tally_month(31), 31);
}

static void counting_goes_on_where_the_last_daemon_ended(void **state)
{
	uint64_t until = 10 * HOUR_NS, now = 12 * HOUR_NS;
	int64_t at = DAY(20000);

	assert_int_equal(tally_resume(until, at, at - 5, now), until);
	assert_int_equal(tally_resume(until, at, at + (int64_t)HOUR_NS, now), 11 * HOUR_NS);
	/* The clock was set by a year: nothing is counted, rather than a year. */
	assert_int_equal(tally_resume(until, at, at + DAY(365), now), now);
	assert_int_equal(tally_resume(until, at, at - DAY(365), now), until);
	/* A mark from another life of the host. */
	assert_int_equal(tally_resume(now + 1, at, at, now), now);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_slice_counts_by_its_part_of_the_gpu),
		cmocka_unit_test(time_that_nobody_measured_is_not_taken_for_idle),
		cmocka_unit_test(a_year_of_64_large_gpus_does_not_overflow),
		cmocka_unit_test(the_average_of_one_size_is_that_size_and_never_more),
		cmocka_unit_test(a_time_over_midnight_is_divided_among_the_days),
		cmocka_unit_test(a_clock_at_1970_ends_the_division),
		cmocka_unit_test(months_are_those_of_the_calendar),
		cmocka_unit_test(counting_goes_on_where_the_last_daemon_ended),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
