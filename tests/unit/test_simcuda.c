/* The parts of the simulated libcuda that stand alone: free stretches, the set of handles, ranges.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cuda/gap.h"
#include "cuda/handle.h"
#include "cuda/memory.h"

static void test_gaps_merge_again(void **state)
{
	struct gap *list = malloc(sizeof(*list));
	uint64_t at[8];

	*list = (struct gap){.size = 800};
	for (int i = 0; i < 8; i++) {
		assert_true(gap_take(&list, 100, &at[i]));
		assert_int_equal(at[i], i * 100);
	}
	assert_null(list);
	assert_false(gap_take(&list, 1, &at[0]));
	/* In any order they become one again. */
	const int order[] = {3, 1, 5, 7, 0, 4, 6, 2};
	for (int i = 0; i < 8; i++)
		gap_give(&list, (uint64_t)order[i] * 100, 100);
	assert_non_null(list);
	assert_null(list->next);
	assert_int_equal(list->offset, 0);
	assert_int_equal(list->size, 800);
	free(list);
}

static void test_gaps_take_the_first_fit(void **state)
{
	struct gap *list = NULL;
	uint64_t at;

	gap_give(&list, 0, 10);
	gap_give(&list, 100, 50);
	gap_give(&list, 200, 20);
	assert_true(gap_take(&list, 20, &at));
	assert_int_equal(at, 100);
	assert_true(gap_take(&list, 10, &at));
	assert_int_equal(at, 0);
	assert_false(gap_take(&list, 31, &at));
	while (list) {
		struct gap *next = list->next;

		free(list);
		list = next;
	}
}

static void test_handles_die(void **state)
{
	static char place[5000];

	for (size_t i = 0; i < sizeof(place); i++)
		assert_true(handle_add(&place[i], i % 2 ? HANDLE_EVENT : HANDLE_STREAM));
	for (size_t i = 0; i < sizeof(place); i += 3)
		handle_remove(&place[i]);
	for (size_t i = 0; i < sizeof(place); i++) {
		enum handle_type type = i % 2 ? HANDLE_EVENT : HANDLE_STREAM;

		assert_int_equal(handle_type_of(&place[i]), i % 3 ? type : HANDLE_NONE);
		assert_int_equal(handle_is(&place[i], HANDLE_MODULE), false);
	}
	assert_false(handle_is(NULL, HANDLE_NONE));
	/* Addresses come back, for other things. */
	for (int i = 0; i < 10000; i++) {
		assert_true(handle_add(&place[0], HANDLE_GRAPH));
		handle_remove(&place[0]);
	}
	assert_int_equal(handle_type_of(&place[0]), HANDLE_NONE);
}

static void test_ranges_are_found_by_any_address(void **state)
{
	struct range range;

	for (uint64_t i = 0; i < 1000; i++) {
		const struct range r = {
			.start = 0x1000 + i * 100, .size = 60, .kind = RANGE_LINEAR};

		assert_true(range_add(&r));
	}
	const struct range over = {.start = 0x1000 + 59, .size = 10, .kind = RANGE_LINEAR};
	assert_false(range_add(&over));
	assert_true(range_find(0x1000 + 500 * 100 + 59, &range));
	assert_int_equal(range.start, 0x1000 + 500 * 100);
	assert_false(range_find(0x1000 + 500 * 100 + 60, &range));
	assert_false(range_find(0xfff, &range));
	assert_false(range_remove(0x1001, 0, &range));
	assert_false(range_remove(0x1000, RANGE_POOL, &range));
	assert_true(range_remove(0x1000, RANGE_LINEAR, &range));
	assert_false(range_find(0x1000, &range));
}

static void test_ranges_cover_side_by_side(void **state)
{
	const struct range a = {.start = 0x800000, .size = 100, .kind = RANGE_VMM};
	const struct range b = {.start = 0x800000 + 100, .size = 50, .kind = RANGE_VMM};

	assert_true(range_add(&a));
	assert_true(range_add(&b));
	assert_true(range_covers(0x800000, 150));
	assert_true(range_covers(0x800000 + 149, 1));
	assert_false(range_covers(0x800000, 151));
	assert_false(range_covers(0x800000 - 1, 10));
	assert_false(range_covers(0x800000, UINT64_MAX));
}

static void test_ranges_of_a_context(void **state)
{
	CUcontext one = (CUcontext)(uintptr_t)8, two = (CUcontext)(uintptr_t)16;
	struct range range;
	int count = 0;

	for (uint64_t i = 0; i < 20; i++) {
		const struct range r = {.start = 0x900000 + i * 8,
					.size = 8,
					.kind = RANGE_LINEAR,
					.ctx = i % 2 ? one : two};

		assert_true(range_add(&r));
	}
	while (range_take_of(one, &range))
		count++;
	assert_int_equal(count, 10);
	assert_true(range_find(0x900000, &range));
	assert_false(range_find(0x900008, &range));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gaps_merge_again),
		cmocka_unit_test(test_gaps_take_the_first_fit),
		cmocka_unit_test(test_handles_die),
		cmocka_unit_test(test_ranges_are_found_by_any_address),
		cmocka_unit_test(test_ranges_cover_side_by_side),
		cmocka_unit_test(test_ranges_of_a_context),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
