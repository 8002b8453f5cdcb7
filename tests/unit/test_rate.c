/* How many of something each user has had within a minute. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/store/rate.h"

#define ALICE 60101
#define MALLORY 60103
#define SECOND 1000000000ull

static void test_the_first_beyond_the_bound_is_told_apart(void **state)
{
	struct rate rate = {.most = 3};

	for (int i = 0; i < 3; i++)
		assert_int_equal(rate_note(&rate, MALLORY, SECOND), RATE_WITHIN);
	assert_int_equal(rate_note(&rate, MALLORY, 2 * SECOND), RATE_FIRST_BEYOND);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(rate_note(&rate, MALLORY, 60 * SECOND), RATE_BEYOND);
	rate_free(&rate);
}

static void test_another_user_has_a_minute_of_its_own(void **state)
{
	struct rate rate = {.most = 1};

	assert_int_equal(rate_note(&rate, MALLORY, SECOND), RATE_WITHIN);
	assert_int_equal(rate_note(&rate, MALLORY, SECOND), RATE_FIRST_BEYOND);
	assert_int_equal(rate_note(&rate, ALICE, SECOND), RATE_WITHIN);
	rate_free(&rate);
}

static void test_a_minute_later_it_begins_anew(void **state)
{
	struct rate rate = {.most = 1};

	assert_int_equal(rate_note(&rate, MALLORY, SECOND), RATE_WITHIN);
	assert_int_equal(rate_note(&rate, MALLORY, 60 * SECOND), RATE_FIRST_BEYOND);
	assert_int_equal(rate_note(&rate, MALLORY, 61 * SECOND), RATE_WITHIN);
	assert_int_equal(rate_note(&rate, MALLORY, 61 * SECOND), RATE_FIRST_BEYOND);
	rate_free(&rate);
}

static void test_users_whose_minute_is_over_take_no_room(void **state)
{
	struct rate rate = {.most = 1};

	for (uid_t uid = 0; uid < 10000; uid++)
		assert_int_equal(rate_note(&rate, uid, uid * SECOND), RATE_WITHIN);
	assert_true(rate.count <= 60);
	rate_free(&rate);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_first_beyond_the_bound_is_told_apart),
		cmocka_unit_test(test_another_user_has_a_minute_of_its_own),
		cmocka_unit_test(test_a_minute_later_it_begins_anew),
		cmocka_unit_test(test_users_whose_minute_is_over_take_no_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
