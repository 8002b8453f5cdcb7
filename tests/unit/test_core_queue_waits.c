/* Jobs that wait for ends and times (src/core/queue_waits.h): an end concerns only those that wait
 * for it, which is shown by counting them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "base/macros.h"
#include "core/queue_waits.h"

#define MANY 300000u
#define FEW 3u

static size_t told_all(const struct queue_waits *waits, struct queue_after **first)
{
	struct queue_after *wait;
	size_t count = 0;

	for (; (wait = queue_waits_told(waits)); count++) {
		if (count < FEW)
			first[count] = wait;
		queue_wait_end(wait);
	}
	return count;
}

static void an_end_concerns_only_what_waits_for_it(void **state)
{
	struct queue_after *all = calloc(MANY, sizeof(*all)), *told[FEW];
	struct queue_target popular = {0}, other = {0}, unwanted = {0};
	struct queue_waits waits;

	queue_waits_begin(&waits);
	for (size_t i = 0; i < MANY; i++)
		queue_wait_for(&all[i], i % (MANY / FEW) == 7 ? &other : &popular);
	queue_target_ended(&waits, &unwanted);
	assert_null(queue_waits_told(&waits));
	queue_target_ended(&waits, &other);
	assert_int_equal(told_all(&waits, told), FEW);
	for (size_t i = 0; i < FEW; i++)
		assert_ptr_equal(told[i], &all[i * (MANY / FEW) + 7]);
	queue_target_ended(&waits, &popular);
	assert_int_equal(told_all(&waits, told), MANY - FEW);
	queue_waits_free(&waits);
	free(all);
}

static void a_wait_that_ended_is_told_of_nothing(void **state)
{
	struct queue_after wait[4] = {0}, *told[FEW];
	struct queue_target target = {0};
	struct queue_waits waits;

	queue_waits_begin(&waits);
	for (size_t i = 0; i < ARRAY_SIZE(wait); i++)
		queue_wait_for(&wait[i], &target);
	queue_wait_end(&wait[1]);
	queue_wait_end(&wait[1]);
	queue_target_ended(&waits, &target);
	/* Likewise one whose turn has not come. */
	queue_wait_end(&wait[3]);
	assert_int_equal(told_all(&waits, told), 2);
	assert_ptr_equal(told[0], &wait[0]);
	assert_ptr_equal(told[1], &wait[2]);
	/* All that waited have ended: nothing is told a second time. */
	queue_target_ended(&waits, &target);
	assert_null(queue_waits_told(&waits));
	queue_waits_free(&waits);
}

static void several_ends_are_told_in_their_order(void **state)
{
	struct queue_target target[3] = {0};
	struct queue_after wait[3] = {0}, *told[FEW];
	struct queue_waits waits;

	queue_waits_begin(&waits);
	for (size_t i = 0; i < 3; i++)
		queue_wait_for(&wait[i], &target[i]);
	for (size_t i = 3; i-- > 0;)
		queue_target_ended(&waits, &target[i]);
	assert_int_equal(told_all(&waits, told), 3);
	for (size_t i = 0; i < 3; i++)
		assert_ptr_equal(told[i], &wait[2 - i]);
	queue_waits_free(&waits);
}

static void times_come_in_their_order_and_not_before(void **state)
{
	static const int64_t at[] = {50, 20, 90, 20, 70, 10, 60};
	struct queue_time time[ARRAY_SIZE(at)] = {0}, *due;
	struct queue_waits waits;
	int64_t before = 0;
	size_t count = 0;

	queue_waits_begin(&waits);
	for (size_t i = 0; i < ARRAY_SIZE(at); i++)
		assert_int_equal(queue_time_wait(&waits, &time[i], at[i]), 0);
	assert_null(queue_waits_due(&waits, 9));
	for (; (due = queue_waits_due(&waits, 60)); count++) {
		assert_true(due->at >= before && due->at <= 60);
		before = due->at;
		queue_time_end(&waits, due);
		queue_time_end(&waits, due);
	}
	assert_int_equal(count, 5);
	assert_int_equal(waits.count, 2);
	queue_waits_free(&waits);
}

/* Waits end in any order: the heap stays one, as each step shows. */
static void times_that_are_waited_for_no_more_do_not_come(void **state)
{
	enum { COUNT = 2000 };
	struct queue_time *time = calloc(COUNT, sizeof(*time));
	struct queue_waits waits;
	size_t left = 0;
	uint32_t random = 1;

	queue_waits_begin(&waits);
	for (size_t round = 0; round < 20 * COUNT; round++) {
		random = random * 1664525u + 1013904223u;
		struct queue_time *one = &time[(random >> 8) % COUNT];

		if (one->place) {
			queue_time_end(&waits, one);
			left--;
		} else {
			assert_int_equal(queue_time_wait(&waits, one, random % 997), 0);
			left++;
		}
		assert_int_equal(waits.count, left);
	}
	for (size_t i = 1; i <= waits.count; i++) {
		assert_int_equal(waits.heap[i - 1]->place, i);
		assert_true(waits.heap[i / 2 ? i / 2 - 1 : 0]->at <= waits.heap[i - 1]->at);
	}
	queue_waits_free(&waits);
	free(time);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_end_concerns_only_what_waits_for_it),
		cmocka_unit_test(a_wait_that_ended_is_told_of_nothing),
		cmocka_unit_test(several_ends_are_told_in_their_order),
		cmocka_unit_test(times_come_in_their_order_and_not_before),
		cmocka_unit_test(times_that_are_waited_for_no_more_do_not_come),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
