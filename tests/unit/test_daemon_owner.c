/* Ranges of subordinate user IDs, and budgets that count them as their owner's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "daemon/host/bounded_root.h"
#include "daemon/host/budget.h"
#include "daemon/host/owner.h"

static void ranges_set(const char *text)
{
	char path[] = "/tmp/carve-test-subuid-XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	owner_load_from(path);
	unlink(path);
}

static void test_a_range_is_its_owners(void **state)
{
	ranges_set("60103:300000:65536\nroot:400000:10\n");
	assert_int_equal(owner_of(299999), 299999);
	assert_int_equal(owner_of(300000), 60103);
	assert_int_equal(owner_of(365535), 60103);
	assert_int_equal(owner_of(365536), 365536);
	assert_int_equal(owner_of(400009), 0);
	assert_int_equal(owner_of(1000), 1000);
}

static void test_lines_that_are_wrong_are_passed_over(void **state)
{
	ranges_set("\n:::\n60103\n60103:x:1\n60103:1:-\n#60103:300000:1\nno-such-user-x:300000:9\n"
		   "60104:300000:99999999999999999999999\n");
	assert_int_equal(owner_of(300000), 300000);
	owner_load_from("/nonexistent");
	assert_int_equal(owner_of(300000), 300000);
}

static void test_subordinates_share_their_owners_budget(void **state)
{
	struct budget budget;
	uid_t owner, other;
	unsigned count = 0;

	ranges_set("60103:300000:65536\n");
	budget_begin_any(&budget, 100);
	for (uid_t i = 0; i < 1000; i++)
		count += budget_enter(&budget, 300000 + i, &owner);
	assert_int_equal(count, 50);
	assert_int_equal(owner, 60103);
	assert_false(budget_enter(&budget, 60103, &owner));
	assert_true(budget_enter(&budget, 60101, &other));
	assert_int_equal(other, 60101);
	/* Ranges that changed meanwhile do not: it leaves as whom it came. */
	ranges_set("");
	for (unsigned i = 0; i < 50; i++)
		budget_leave(&budget, 60103);
	assert_int_equal(budget.total, 1);
	budget_free(&budget);
}

static void test_many_enter_together_or_not_at_all(void **state)
{
	struct budget budget;
	uid_t owner;

	budget_begin_any(&budget, 100);
	assert_false(budget_enter_many(&budget, 60103, 51, &owner));
	assert_false(budget_enter_many(&budget, 60103, UINT32_MAX, &owner));
	assert_true(budget_enter_many(&budget, 60103, 50, &owner));
	assert_false(budget_enter_many(&budget, 60101, 26, &owner));
	assert_true(budget_enter_many(&budget, 60101, 25, &owner));
	assert_false(budget_enter(&budget, 60101, &owner));
	budget_leave_many(&budget, 60103, 50);
	assert_int_equal(budget.total, 25);
	budget_free(&budget);
}

/* How many more of 100 a user gets, one by one. */
static unsigned taken(struct budget *budget, uid_t uid)
{
	unsigned count = 0;
	uid_t owner;

	while (budget_enter(budget, uid, &owner))
		count++;
	return count;
}

static void test_root_leaves_the_last_quarter_to_others(void **state)
{
	struct budget budget;
	uid_t owner;

	budget_begin_any(&budget, 100);
	assert_false(budget_enter_many(&budget, 0, 76, &owner));
	assert_int_equal(taken(&budget, 0), 75);
	assert_int_equal(taken(&budget, 60101), 12);
	assert_int_equal(taken(&budget, 60102), 6);
	budget_free(&budget);
	/* Where users came first, root has what any user has. */
	assert_int_equal(taken(&budget, 60101), 50);
	assert_int_equal(taken(&budget, 60102), 25);
	assert_int_equal(taken(&budget, 0), 12);
	budget_free(&budget);
}

static void test_roots_of_containers_have_users_budgets(void **state)
{
	struct budget budget;

	budget_begin_any(&budget, 100);
	assert_int_equal(taken(&budget, BOUNDED_ROOT_FIRST), 50);
	/* However many one of them is, the last quarter is not theirs, and root has a part, too. */
	for (uid_t i = 1; i < 1000; i++)
		(void)taken(&budget, BOUNDED_ROOT_FIRST + i);
	assert_int_equal(budget.total, 75);
	assert_int_equal(taken(&budget, 0), 12);
	assert_int_equal(taken(&budget, 60101), 6);
	budget_free(&budget);
}

static void test_subordinates_of_root_are_not_root(void **state)
{
	struct budget budget;

	ranges_set("root:400000:65536\n");
	budget_begin_any(&budget, 100);
	for (uid_t i = 0; i < 1000; i++)
		(void)taken(&budget, 400000 + i);
	assert_int_equal(budget.total, 50);
	assert_int_equal(taken(&budget, 0), 25);
	budget_free(&budget);
	ranges_set("");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_range_is_its_owners),
		cmocka_unit_test(test_lines_that_are_wrong_are_passed_over),
		cmocka_unit_test(test_subordinates_share_their_owners_budget),
		cmocka_unit_test(test_many_enter_together_or_not_at_all),
		cmocka_unit_test(test_root_leaves_the_last_quarter_to_others),
		cmocka_unit_test(test_roots_of_containers_have_users_budgets),
		cmocka_unit_test(test_subordinates_of_root_are_not_root),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
