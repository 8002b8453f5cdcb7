/* The steps of the policy for programs outside carve, and whom it spares. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/outside.h"

#define SECOND 1000000000ull

/* Looks once a second, from `from` to `to` seconds. Returns the last step that was not NONE. */
static enum outside_step look(struct outside_life *life, unsigned from, unsigned to, bool ends)
{
	enum outside_step step, last = OUTSIDE_STEP_NONE;

	for (unsigned second = from; second <= to; second++) {
		step = outside_advance(life, second * SECOND, ends, 10 * SECOND);
		last = step == OUTSIDE_STEP_NONE ? last : step;
	}
	return last;
}

static void test_a_program_is_warned_then_terminated_then_killed(void **state)
{
	struct outside_life life = {0};

	assert_int_equal(look(&life, 100, 104, true), OUTSIDE_STEP_NONE);
	assert_int_equal(look(&life, 105, 105, true), OUTSIDE_STEP_WARN);
	assert_int_equal(outside_left_ns(&life, 10 * SECOND), 5 * SECOND);
	assert_int_equal(look(&life, 106, 109, true), OUTSIDE_STEP_NONE);
	assert_int_equal(look(&life, 110, 110, true), OUTSIDE_STEP_TERMINATE);
	assert_int_equal(look(&life, 111, 112, true), OUTSIDE_STEP_NONE);
	assert_int_equal(look(&life, 113, 113, true), OUTSIDE_STEP_KILL);
	assert_int_equal(look(&life, 114, 200, true), OUTSIDE_STEP_NONE);
}

static void test_a_report_is_made_once(void **state)
{
	struct outside_life life = {0};

	assert_int_equal(look(&life, 100, 109, false), OUTSIDE_STEP_NONE);
	assert_int_equal(look(&life, 110, 110, false), OUTSIDE_STEP_REPORT);
	assert_int_equal(look(&life, 111, 200, false), OUTSIDE_STEP_NONE);
}

static void test_a_change_of_the_policy_begins_the_time_anew(void **state)
{
	struct outside_life life = {0};

	assert_int_equal(look(&life, 100, 108, true), OUTSIDE_STEP_WARN);
	assert_int_equal(look(&life, 109, 110, false), OUTSIDE_STEP_NONE);
	assert_int_equal(look(&life, 111, 119, false), OUTSIDE_STEP_REPORT);
	assert_int_equal(look(&life, 120, 124, true), OUTSIDE_STEP_NONE);
	assert_int_equal(look(&life, 125, 125, true), OUTSIDE_STEP_WARN);
}

static void test_a_daemon_that_was_stopped_ends_nobody_at_its_next_look(void **state)
{
	struct outside_life life = {0};

	assert_int_equal(look(&life, 100, 101, true), OUTSIDE_STEP_NONE);
	assert_int_equal(look(&life, 4000, 4000, true), OUTSIDE_STEP_NONE);
	assert_true(outside_left_ns(&life, 10 * SECOND) >= 7 * SECOND);
}

static void test_ordinary_users_are_neither_root_nor_services(void **state)
{
	static const uint32_t others[] = {0, 1, 999, 61184, 65519, 65534, 65535, UINT32_MAX};
	static const uint32_t ordinary[] = {1000, 60000, 60513, 100000, 1234567890};

	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		assert_false(outside_user_is_ordinary(others[i]));
	for (size_t i = 0; i < sizeof(ordinary) / sizeof(*ordinary); i++)
		assert_true(outside_user_is_ordinary(ordinary[i]));
}

static void test_the_policy_ends_a_proved_program_of_an_ordinary_user_alone(void **state)
{
	const struct outside_facts right = {.uid = 1000, .one_user = true, .proved = true};
	struct outside_facts facts = right;

	assert_int_equal(outside_spared(&facts), OUTSIDE_SPARED_NOT);
	facts.uid = 0;
	assert_int_equal(outside_spared(&facts), OUTSIDE_SPARED_ROOT);
	facts.uid = 112;
	assert_int_equal(outside_spared(&facts), OUTSIDE_SPARED_SYSTEM);
	facts = right;
	facts.one_user = false;
	assert_int_equal(outside_spared(&facts), OUTSIDE_SPARED_USERS);
	facts = right;
	facts.exempt = true;
	assert_int_equal(outside_spared(&facts), OUTSIDE_SPARED_EXEMPT);
	facts = right;
	facts.graphics = true;
	assert_int_equal(outside_spared(&facts), OUTSIDE_SPARED_GRAPHICS);
	facts = right;
	facts.foreign = true;
	assert_int_equal(outside_spared(&facts), OUTSIDE_SPARED_NAMESPACE);
	facts = right;
	facts.proved = false;
	assert_int_equal(outside_spared(&facts), OUTSIDE_SPARED_UNPROVED);
	facts = right;
	facts.refused = true;
	assert_int_equal(outside_spared(&facts), OUTSIDE_SPARED_REFUSED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_program_is_warned_then_terminated_then_killed),
		cmocka_unit_test(test_a_report_is_made_once),
		cmocka_unit_test(test_a_change_of_the_policy_begins_the_time_anew),
		cmocka_unit_test(test_a_daemon_that_was_stopped_ends_nobody_at_its_next_look),
		cmocka_unit_test(test_ordinary_users_are_neither_root_nor_services),
		cmocka_unit_test(test_the_policy_ends_a_proved_program_of_an_ordinary_user_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
