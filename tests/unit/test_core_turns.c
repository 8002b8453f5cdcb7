/* Users take turns at work that is done in parts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/macros.h"
#include "core/turns.h"

#define ALICE 60101
#define BOB 60102
#define MALLORY 60103

struct work {
	struct turn turn; /* first */
	char name;
};

static char order[16];

static const char *in_order(const struct turns *turns)
{
	size_t used = 0;

	for (const struct turn *turn = turns->first; turn; turn = turn->next)
		order[used++] = ((const struct work *)turn)->name;
	order[used] = '\0';
	return order;
}

static void test_a_users_work_goes_behind_everybody_elses_in_its_order(void **state)
{
	struct work work[] = {{.name = '1'}, {.name = '2'}, {.name = '3'},
			      {.name = 'a'}, {.name = 'b'}, {.name = '4'}};
	const uid_t users[] = {MALLORY, MALLORY, MALLORY, ALICE, BOB, MALLORY};
	struct turns turns = {0};

	for (size_t i = 0; i < ARRAY_SIZE(work); i++)
		turns_add(&turns, &work[i].turn, users[i]);
	assert_string_equal(in_order(&turns), "123ab4");
	turns_pass(&turns, MALLORY);
	assert_string_equal(in_order(&turns), "ab1234");
	turns_pass(&turns, ALICE);
	assert_string_equal(in_order(&turns), "b1234a");
	turns_pass(&turns, BOB);
	assert_string_equal(in_order(&turns), "1234ab");
	turns_pass(&turns, 1);
	assert_string_equal(in_order(&turns), "1234ab");
}

static void test_work_that_is_done_leaves_wherever_it_stands(void **state)
{
	struct work work[] = {{.name = '1'}, {.name = '2'}, {.name = 'a'}};
	struct turns turns = {0};

	turns_add(&turns, &work[0].turn, MALLORY);
	turns_add(&turns, &work[1].turn, MALLORY);
	turns_add(&turns, &work[2].turn, ALICE);
	turns_remove(&turns, &work[1].turn);
	assert_string_equal(in_order(&turns), "1a");
	turns_remove(&turns, &work[0].turn);
	turns_pass(&turns, MALLORY);
	assert_string_equal(in_order(&turns), "a");
	turns_remove(&turns, &work[2].turn);
	turns_pass(&turns, ALICE);
	assert_null(turns.first);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_users_work_goes_behind_everybody_elses_in_its_order),
		cmocka_unit_test(test_work_that_is_done_leaves_wherever_it_stands),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
