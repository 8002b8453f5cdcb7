/* The idle policy by the clock: when a session is idle, is warned, is spared, is released. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/idle.h"

#define S 1000000000ull
#define HOUR (3600 * S)

static const struct idle_policy two_hours = {.timeout_ns = 2 * HOUR, .warning_ns = 600 * S};

static enum idle_step look(struct idle_clock *clock, enum idle_look what, uint64_t now)
{
	return idle_advance(clock, &two_hours, false, what, now);
}

static void the_warning_is_a_tenth_and_ten_minutes_at_most(void **state)
{
	struct idle_policy policy = {.timeout_ns = 600 * S};

	assert_int_equal(idle_warning_ns(&policy), 60 * S);
	policy.timeout_ns = 24 * HOUR;
	assert_int_equal(idle_warning_ns(&policy), 600 * S);
	policy.warning_ns = HOUR;
	assert_int_equal(idle_warning_ns(&policy), HOUR);
}

static void an_unused_session_is_warned_and_then_released(void **state)
{
	struct idle_clock clock;

	idle_begin(&clock, 5 * S);
	assert_int_equal(look(&clock, IDLE_LOOK_UNUSED, 6 * S), IDLE_STEP_NONE);
	assert_int_equal(clock.since_ns, 5 * S);
	assert_int_equal(look(&clock, IDLE_LOOK_UNUSED, 5 * S + 2 * HOUR - 601 * S),
			 IDLE_STEP_NONE);
	assert_int_equal(look(&clock, IDLE_LOOK_UNUSED, 5 * S + 2 * HOUR - 600 * S),
			 IDLE_STEP_WARN);
	assert_int_equal(idle_release_ns(&clock, &two_hours, false), 5 * S + 2 * HOUR);
	assert_int_equal(look(&clock, IDLE_LOOK_UNUSED, 5 * S + 2 * HOUR - S), IDLE_STEP_NONE);
	assert_int_equal(look(&clock, IDLE_LOOK_UNUSED, 5 * S + 2 * HOUR), IDLE_STEP_RELEASE);
}

/* Use between two looks may have ended at any time before the second one. */
static void the_time_begins_with_the_last_look_that_saw_use(void **state)
{
	struct idle_clock clock;

	idle_begin(&clock, S);
	assert_int_equal(look(&clock, IDLE_LOOK_USED, 10 * S), IDLE_STEP_NONE);
	assert_int_equal(clock.since_ns, 0);
	assert_int_equal(look(&clock, IDLE_LOOK_UNUSED, 11 * S), IDLE_STEP_NONE);
	assert_int_equal(clock.since_ns, 10 * S);
	assert_int_equal(look(&clock, IDLE_LOOK_UNUSED, 12 * S), IDLE_STEP_NONE);
	assert_int_equal(clock.since_ns, 10 * S);
}

static void use_withdraws_a_warning(void **state)
{
	struct idle_clock clock;

	idle_begin(&clock, S);
	assert_int_equal(look(&clock, IDLE_LOOK_UNUSED, 2 * HOUR), IDLE_STEP_WARN);
	assert_int_equal(look(&clock, IDLE_LOOK_USED, 2 * HOUR + S), IDLE_STEP_WITHDRAW);
	assert_int_equal(look(&clock, IDLE_LOOK_USED, 2 * HOUR + 2 * S), IDLE_STEP_NONE);
	assert_int_equal(look(&clock, IDLE_LOOK_UNUSED, 3 * HOUR), IDLE_STEP_NONE);
	assert_int_equal(look(&clock, IDLE_LOOK_UNUSED, 4 * HOUR), IDLE_STEP_WARN);
}

static void nobody_is_released_for_what_cannot_be_told(void **state)
{
	struct idle_clock clock;

	idle_begin(&clock, S);
	for (uint64_t now = S; now < 10 * HOUR; now += 600 * S) {
		assert_int_equal(look(&clock, IDLE_LOOK_UNKNOWN, now), IDLE_STEP_NONE);
		assert_int_equal(idle_release_ns(&clock, &two_hours, false), 0);
	}
	assert_int_equal(look(&clock, IDLE_LOOK_UNUSED, 11 * HOUR), IDLE_STEP_NONE);
	assert_true(clock.since_ns >= 9 * HOUR);
}

static void a_policy_that_becomes_stricter_leaves_the_time_of_the_warning(void **state)
{
	struct idle_policy policy = {.timeout_ns = 24 * HOUR, .warning_ns = 60 * S};
	struct idle_clock clock;

	idle_begin(&clock, S);
	assert_int_equal(idle_advance(&clock, &policy, false, IDLE_LOOK_UNUSED, 10 * HOUR),
			 IDLE_STEP_NONE);
	policy.timeout_ns = HOUR;
	assert_int_equal(idle_advance(&clock, &policy, false, IDLE_LOOK_UNUSED, 11 * HOUR),
			 IDLE_STEP_WARN);
	assert_int_equal(idle_advance(&clock, &policy, false, IDLE_LOOK_UNUSED, 11 * HOUR + 59 * S),
			 IDLE_STEP_NONE);
	assert_int_equal(idle_advance(&clock, &policy, false, IDLE_LOOK_UNUSED, 11 * HOUR + 60 * S),
			 IDLE_STEP_RELEASE);
}

static void a_policy_that_becomes_milder_withdraws_the_warning(void **state)
{
	struct idle_policy policy = two_hours;
	struct idle_clock clock;

	idle_begin(&clock, S);
	assert_int_equal(idle_advance(&clock, &policy, false, IDLE_LOOK_UNUSED, 2 * HOUR),
			 IDLE_STEP_WARN);
	policy.timeout_ns = 0;
	assert_int_equal(idle_advance(&clock, &policy, false, IDLE_LOOK_UNUSED, 2 * HOUR + S),
			 IDLE_STEP_WITHDRAW);
	assert_int_equal(idle_advance(&clock, &policy, false, IDLE_LOOK_UNUSED, 100 * HOUR),
			 IDLE_STEP_NONE);
	assert_int_equal(clock.since_ns, S);
}

static void the_exempt_are_neither_warned_nor_released(void **state)
{
	struct idle_clock clock;

	idle_begin(&clock, S);
	assert_int_equal(idle_advance(&clock, &two_hours, true, IDLE_LOOK_UNUSED, 9 * HOUR),
			 IDLE_STEP_NONE);
	assert_int_equal(clock.since_ns, S);
	assert_int_equal(idle_release_ns(&clock, &two_hours, true), 0);
	assert_int_equal(look(&clock, IDLE_LOOK_UNUSED, 9 * HOUR + S), IDLE_STEP_WARN);
	assert_int_equal(idle_advance(&clock, &two_hours, true, IDLE_LOOK_UNUSED, 9 * HOUR + 2 * S),
			 IDLE_STEP_WITHDRAW);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_warning_is_a_tenth_and_ten_minutes_at_most),
		cmocka_unit_test(an_unused_session_is_warned_and_then_released),
		cmocka_unit_test(the_time_begins_with_the_last_look_that_saw_use),
		cmocka_unit_test(use_withdraws_a_warning),
		cmocka_unit_test(nobody_is_released_for_what_cannot_be_told),
		cmocka_unit_test(a_policy_that_becomes_stricter_leaves_the_time_of_the_warning),
		cmocka_unit_test(a_policy_that_becomes_milder_withdraws_the_warning),
		cmocka_unit_test(the_exempt_are_neither_warned_nor_released),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
