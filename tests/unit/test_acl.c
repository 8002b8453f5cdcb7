/* Access control lists: entries of users come and go, and all else stays. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/acl.h"

static unsigned char list[ACL_SIZE_MAX], next[ACL_SIZE_MAX];

static size_t set(size_t size, mode_t mode, uid_t uid, unsigned permissions)
{
	const struct acl_user user = {.uid = uid, .permissions = permissions};
	ssize_t n = acl_set_user(list, size, mode, &user, next, sizeof(next));

	assert_true(n > 0);
	memcpy(list, next, (size_t)n);
	return (size_t)n;
}

static void entry_check(size_t i, unsigned tag, unsigned permissions, uint32_t id)
{
	uint16_t words[2];
	uint32_t number;

	memcpy(words, list + 4 + 8 * i, 4);
	memcpy(&number, list + 8 + 8 * i, 4);
	assert_int_equal(words[0], tag);
	assert_int_equal(words[1], permissions);
	assert_int_equal(number, id);
}

static void test_users_are_kept_in_order_beside_the_mode(void **state)
{
	size_t size = set(0, 0660, 1002, 7);

	size = set(size, 0660, 1001, 7);
	size = set(size, 0660, 1003, 6);
	assert_int_equal(size, 4 + 7 * 8);
	entry_check(0, 0x01, 6, UINT32_MAX);
	entry_check(1, 0x02, 7, 1001);
	entry_check(2, 0x02, 7, 1002);
	entry_check(3, 0x02, 6, 1003);
	entry_check(4, 0x04, 6, UINT32_MAX);
	entry_check(5, 0x10, 6, UINT32_MAX);
	entry_check(6, 0x20, 0, UINT32_MAX);
}

static void test_a_user_who_leaves_takes_the_entry_along_and_the_last_one_the_mask(void **state)
{
	size_t size = set(0, 0660, 1002, 7);

	size = set(size, 0660, 1001, 7);
	size = set(size, 0660, 1002, 0);
	assert_int_equal(size, 4 + 5 * 8);
	entry_check(1, 0x02, 7, 1001);
	size = set(size, 0660, 1001, 0);
	assert_int_equal(size, 4 + 3 * 8);
	entry_check(1, 0x04, 6, UINT32_MAX);
	assert_int_equal(set(size, 0660, 77, 0), size);
}

static void test_a_user_is_replaced_and_not_doubled(void **state)
{
	size_t size = set(0, 0600, 1002, 4);

	assert_int_equal(set(size, 0640, 1002, 7), size);
	entry_check(1, 0x02, 7, 1002);
	/* The group itself keeps having nothing. */
	entry_check(2, 0x04, 0, UINT32_MAX);
	entry_check(3, 0x10, 6, UINT32_MAX);
}

static void test_the_entries_of_users_are_listed(void **state)
{
	size_t size = set(0, 0660, 1002, 7), at = 0;
	struct acl_user user;

	size = set(size, 0660, 1001, 6);
	assert_true(acl_next_user(list, size, &at, &user));
	assert_int_equal(user.uid, 1001);
	assert_int_equal(user.permissions, 6);
	assert_true(acl_next_user(list, size, &at, &user));
	assert_int_equal(user.uid, 1002);
	assert_false(acl_next_user(list, size, &at, &user));
	at = 0;
	assert_false(acl_next_user(list, 0, &at, &user));
}

static void test_a_broken_list_or_one_without_room_is_refused(void **state)
{
	const struct acl_user user = {.uid = 1, .permissions = 7};
	size_t size = set(0, 0660, 1002, 7);

	assert_int_equal(acl_set_user(list, size - 1, 0660, &user, next, sizeof(next)), -EINVAL);
	assert_int_equal(acl_set_user(list, size, 0660, &user, next, size), -ENOSPC);
	assert_int_equal(acl_set_user(list, size, 0660, &user, next, 3), -ENOSPC);
	list[0] = 1;
	assert_int_equal(acl_set_user(list, size, 0660, &user, next, sizeof(next)), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_users_are_kept_in_order_beside_the_mode),
		cmocka_unit_test(
			test_a_user_who_leaves_takes_the_entry_along_and_the_last_one_the_mask),
		cmocka_unit_test(test_a_user_is_replaced_and_not_doubled),
		cmocka_unit_test(test_the_entries_of_users_are_listed),
		cmocka_unit_test(test_a_broken_list_or_one_without_room_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
