/* The memory that is used, by a GPU's driver, beyond the sum of all processes, told from readings
 * that no two figures of are of one moment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"
#include "daemon/gpu/unlisted.h"

#define MOST ((unsigned)GPU_READINGS_USUAL)
#define ONE ((int64_t)MIB(1))

static struct unlisted u;
static struct gpu_sample sample;

static int fresh(void **state)
{
	memset(&u, 0, sizeof(u));
	memset(&sample, 0, sizeof(sample));
	return 0;
}

static void reading(int64_t least, int64_t most)
{
	sample.readings[sample.reading_count++] =
		(struct gpu_reading){.least = least * ONE, .most = most * ONE};
}

/* Readings so far become a sample. Returns what it comes to, in MiB. */
static int64_t taken(bool sure)
{
	sample.sure = sure;
	unlisted_add(&u, &sample, true);
	memset(&sample, 0, sizeof(sample));
	return unlisted_bytes(&u) / ONE;
}

/* `count` readings of a value during which nothing moved. */
static int64_t still(int64_t value, unsigned count, bool sure)
{
	for (unsigned i = 0; i < count; i++)
		reading(value, value);
	return taken(sure);
}

/* Takes `count` readings: so many are off, both ways in turn; the rest allows `value` and more. */
static int64_t moving(int64_t value, unsigned off, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		int64_t side = i % 2 ? 512 : -512;

		reading(i < off ? value + side : MIN(value, value + side),
			i < off ? value + side : MAX(value, value + side));
	}
	return taken(false);
}

static void nothing_is_known_before_a_sample(void **state)
{
	assert_true(unlisted_bytes(&u) == GPU_UNLISTED_ANY);
	taken(false); /* of no reading */
	assert_true(unlisted_bytes(&u) == GPU_UNLISTED_ANY);
}

static void the_first_reading_is_believed(void **state)
{
	assert_int_equal(still(640, 1, false), 640);
}

static void readings_that_agree_are_believed_at_once(void **state)
{
	assert_int_equal(still(0, 5, true), 0);
	assert_int_equal(still(10240, 5, true), 10240);
	assert_int_equal(still(64, 5, true), 64);
}

static void nothing_new_changes_nothing(void **state)
{
	assert_int_equal(still(64, 5, true), 64);
	moving(2048, 4, MOST);
	for (int i = 0; i < 5; i++)
		assert_int_equal(taken(false), 64);
}

static void readings_torn_both_ways_change_nothing(void **state)
{
	assert_int_equal(still(64, 5, true), 64);
	for (unsigned off = 0; off <= MOST / 2; off++)
		for (int i = 0; i < 4; i++)
			assert_int_equal(moving(64, off, MOST), 64);
}

/* Beside one program that is in step with the readings a whole sample may be off. */
static void one_sample_that_is_off_changes_nothing(void **state)
{
	assert_int_equal(still(0, 5, true), 0);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(still(i % 2 ? 512 : -512, MOST, false), 0);
		assert_int_equal(moving(0, MOST / 3, MOST), 0);
	}
}

static void growth_beside_others_is_found_with_the_second_sample(void **state)
{
	assert_int_equal(still(0, 5, true), 0);
	assert_int_equal(moving(10240, MOST / 3, MOST), 0);
	assert_int_equal(moving(10240, MOST / 3, MOST), 10240);
	assert_int_equal(moving(0, MOST / 3, MOST), 10240);
	assert_int_equal(moving(0, MOST / 3, MOST), 0);
}

/* The last thing that was known to be so lies between them. */
static void two_that_are_off_with_a_right_one_between_change_nothing(void **state)
{
	assert_int_equal(still(0, 5, true), 0);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(still(8192, MOST, false), 0);
		assert_int_equal(taken(false), 0);
	}
}

static void agreeing_readings_need_no_second_sample(void **state)
{
	assert_int_equal(still(0, 5, true), 0);
	assert_int_equal(moving(10240, GPU_READINGS_MOST / 3, GPU_READINGS_MOST), 10240);
	assert_int_equal(moving(0, GPU_READINGS_MOST / 3, GPU_READINGS_MOST), 0);
}

static void beside_no_slice_every_reading_is_believed(void **state)
{
	for (int i = 0; i < 20; i++) {
		reading(0, 4096);
		reading(i, i);
		unlisted_add(&u, &sample, false);
		memset(&sample, 0, sizeof(sample));
		assert_true(unlisted_bytes(&u) == i * ONE);
	}
}

static void a_driver_that_takes_long_is_followed_while_it_grows(void **state)
{
	int64_t behind = 0;

	assert_int_equal(still(0, 1, false), 0);
	for (int i = 1; i <= 60; i++) {
		behind = 100 * i - still((int64_t)100 * i, 1, false);
		assert_true(behind <= 400);
	}
	for (int i = 0; i < 8; i++)
		behind = 6000 - still(6000, 1, false);
	assert_int_equal(behind, 0);
}

/* A daemon that began beside others took what was torn for the truth. */
static void a_wrong_beginning_is_left(void **state)
{
	assert_int_equal(still(-8192, 1, false), -8192);
	moving(0, MOST / 3, MOST);
	assert_int_equal(moving(0, MOST / 3, MOST), 0);
}

/* One reading a second: of the last eight most have to agree, and no two are enough. */
static void a_driver_that_takes_long_is_believed_after_a_while(void **state)
{
	int seconds = 0;

	for (int i = 0; i < 20; i++)
		assert_int_equal(still(0, 1, false), 0);
	while (still(10240, 1, false) != 10240)
		assert_true(++seconds < 10);
	assert_true(seconds >= 3);
	for (int i = 0; i < 40; i++)
		assert_int_equal(still(i % 3 ? 10240 : 9728, 1, false), 10240);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(nothing_is_known_before_a_sample, fresh),
		cmocka_unit_test_setup(the_first_reading_is_believed, fresh),
		cmocka_unit_test_setup(readings_that_agree_are_believed_at_once, fresh),
		cmocka_unit_test_setup(nothing_new_changes_nothing, fresh),
		cmocka_unit_test_setup(readings_torn_both_ways_change_nothing, fresh),
		cmocka_unit_test_setup(one_sample_that_is_off_changes_nothing, fresh),
		cmocka_unit_test_setup(growth_beside_others_is_found_with_the_second_sample, fresh),
		cmocka_unit_test_setup(two_that_are_off_with_a_right_one_between_change_nothing,
				       fresh),
		cmocka_unit_test_setup(agreeing_readings_need_no_second_sample, fresh),
		cmocka_unit_test_setup(beside_no_slice_every_reading_is_believed, fresh),
		cmocka_unit_test_setup(a_driver_that_takes_long_is_followed_while_it_grows, fresh),
		cmocka_unit_test_setup(a_wrong_beginning_is_left, fresh),
		cmocka_unit_test_setup(a_driver_that_takes_long_is_believed_after_a_while, fresh),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
