/* Users take turns at the daemon's loop, however many calls one of them has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/host/fair.h"

#define ALICE 60101
#define MALLORY 60103

struct job {
	struct fair_work work; /* first */
	char name;
};

static char done[64];

/* Takes a whole pass of the loop. */
static void on_run(struct fair_work *work)
{
	uint64_t until = now_monotonic_ns() + FAIR_NS;
	size_t used = strlen(done);

	done[used] = ((struct job *)work)->name;
	while (now_monotonic_ns() < until)
		;
}

/* A pass of the loop, in which nothing but the lines has work. */
static bool pass(struct fair *fair)
{
	fair_pass(fair);
	return fair_run(fair);
}

static struct job job(char name)
{
	return (struct job){.work = {.run = on_run}, .name = name};
}

static int begin(void **state)
{
	memset(done, 0, sizeof(done));
	return 0;
}

static void test_work_runs_at_once_where_nobody_waits(void **state)
{
	struct fair fair = {0};
	struct job first = job('1');

	assert_true(fair_do(&fair, MALLORY, &first.work));
	assert_string_equal(done, "1");
	assert_null(first.work.line);
}

static void test_a_user_waits_for_one_call_of_another(void **state)
{
	struct fair fair = {0};
	struct job many[5] = {job('1'), job('2'), job('3'), job('4'), job('5')}, one = job('a');

	for (size_t i = 0; i < ARRAY_SIZE(many); i++)
		assert_int_equal(fair_do(&fair, MALLORY, &many[i].work), i == 0);
	assert_false(fair_do(&fair, ALICE, &one.work));
	while (pass(&fair))
		;
	assert_string_equal(done, "12a345");
	fair_pass(&fair);
	assert_false(fair_waits(&fair));
}

static void test_a_pass_ends_after_its_time(void **state)
{
	struct fair fair = {0};
	struct job many[3] = {job('1'), job('2'), job('3')};

	for (size_t i = 0; i < ARRAY_SIZE(many); i++)
		(void)fair_do(&fair, MALLORY, &many[i].work);
	assert_true(pass(&fair));
	assert_string_equal(done, "12");
	assert_false(pass(&fair));
	assert_string_equal(done, "123");
}

static void test_work_that_is_withdrawn_does_not_run(void **state)
{
	struct fair fair = {0};
	struct job many[4] = {job('1'), job('2'), job('3'), job('4')}, one = job('a');

	for (size_t i = 0; i < ARRAY_SIZE(many); i++)
		(void)fair_do(&fair, MALLORY, &many[i].work);
	(void)fair_do(&fair, ALICE, &one.work);
	fair_withdraw(&many[1].work);
	fair_withdraw(&many[3].work);
	fair_withdraw(&one.work);
	fair_withdraw(&one.work);
	while (pass(&fair))
		;
	assert_string_equal(done, "13");
	/* Its line is gone, and is made anew. */
	fair_pass(&fair);
	(void)fair_do(&fair, ALICE, &many[0].work);
	assert_false(fair_do(&fair, ALICE, &one.work));
	assert_false(pass(&fair));
	assert_string_equal(done, "131a");
}

/* What was spent before the lines is not theirs. One piece is done in each pass all the same. */
static void test_all_work_of_a_pass_draws_on_one_budget(void **state)
{
	struct fair fair = {0};
	struct job many[3] = {job('1'), job('2'), job('3')}, other = job('x');

	for (size_t i = 0; i < ARRAY_SIZE(many); i++)
		assert_true(fair_line_up(&fair, MALLORY, &many[i].work));
	fair_pass(&fair);
	fair_begin(&fair);
	assert_false(fair_is_spent(&fair));
	on_run(&other.work);
	assert_true(fair_is_spent(&fair));
	fair_end(&fair);
	assert_true(fair_run(&fair));
	assert_string_equal(done, "x1");
	/* Nor is what comes from outside after them. */
	assert_false(fair_do(&fair, ALICE, &other.work));
	assert_true(pass(&fair));
	assert_string_equal(done, "x12");
	/* The lines go with the last work in them. */
	fair_withdraw(&many[2].work);
	fair_withdraw(&other.work);
	assert_null(fair.lines);
}

static void test_work_within_other_work_counts_once(void **state)
{
	struct fair fair = {0};
	uint64_t began = now_monotonic_ns();

	fair_begin(&fair);
	fair_begin(&fair);
	on_run(&(struct job){.name = 'a'}.work);
	fair_end(&fair);
	fair_end(&fair);
	assert_true(fair_is_spent(&fair));
	assert_true(fair.spent_ns <= now_monotonic_ns() - began);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_work_runs_at_once_where_nobody_waits, begin),
		cmocka_unit_test_setup(test_a_user_waits_for_one_call_of_another, begin),
		cmocka_unit_test_setup(test_a_pass_ends_after_its_time, begin),
		cmocka_unit_test_setup(test_work_that_is_withdrawn_does_not_run, begin),
		cmocka_unit_test_setup(test_all_work_of_a_pass_draws_on_one_budget, begin),
		cmocka_unit_test_setup(test_work_within_other_work_counts_once, begin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
