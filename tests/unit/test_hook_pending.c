/* Changes that a hook has not been told of: users take turns, and lists have a bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/host/owner.h"
#include "daemon/queue/hook_pending.h"

#define ALICE 60101
#define BOB 60102
#define MALLORY 60103
/* More than a user's list holds. */
#define MANY 5000

static struct hook_user *add(struct hook_pending *pending, uid_t uid, int64_t id, int64_t change)
{
	struct queue_event event = {.uid = uid, .id = id, .change = change};
	struct hook_user *user = NULL;

	assert_in_range(hook_pending_add(pending, &event, false, &user), 0, 1);
	return user;
}

static int64_t take(struct hook_pending *pending)
{
	struct hook_event *event = hook_pending_take(pending);
	int64_t id = event->event.id;

	free(event);
	return id;
}

static void test_users_take_turns(void **state)
{
	static const int64_t wanted[] = {1, 11, 21, 2, 12, 3, 4};
	struct hook_pending pending = {0};

	for (int64_t id = 1; id <= 4; id++)
		add(&pending, MALLORY, id, 0);
	add(&pending, ALICE, 11, 0);
	add(&pending, BOB, 21, 0);
	add(&pending, ALICE, 12, 0);
	for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
		/* As the hook does with one who has none left. */
		while (!pending.first->first)
			hook_pending_forget(&pending);
		assert_int_equal(take(&pending), wanted[i]);
	}
	hook_pending_clear(&pending);
	assert_null(pending.first);
}

static void test_changes_beyond_a_list_are_dropped_and_counted(void **state)
{
	struct hook_pending pending = {0};
	struct hook_user *mallory = NULL;

	for (int64_t id = 1; id <= MANY; id++)
		mallory = add(&pending, MALLORY, id, 0);
	assert_in_range(mallory->count, 1, MANY - 1);
	assert_int_equal(mallory->count + mallory->dropped, MANY);
	assert_int_equal(mallory->dropped_untold, mallory->dropped);
	/* Nothing of another user's is. */
	struct hook_user *alice = add(&pending, ALICE, MANY + 1, 0);
	assert_int_equal(alice->count, 1);
	assert_int_equal(alice->dropped, 0);
	/* The count is told with the next change. */
	assert_int_equal(take(&pending), 1);
	assert_int_equal(mallory->dropped_untold, 0);
	hook_pending_clear(&pending);
}

static void test_ends_beyond_a_list_are_owed_from_the_disk(void **state)
{
	struct hook_pending pending = {0};
	struct hook_user *mallory = NULL;

	for (int64_t id = 1; id <= MANY; id++)
		mallory = add(&pending, MALLORY, id, id);
	assert_int_equal(mallory->dropped, 0);
	assert_int_equal(mallory->owed_from, mallory->count);
	assert_int_equal(mallory->owed_to, MANY);
	/* All behind an owed end is owed, too, even where there is room again: in their order. */
	assert_int_equal(take(&pending), 1);
	add(&pending, MALLORY, MANY + 1, MANY + 1);
	assert_int_equal(mallory->owed_to, MANY + 1);
	struct hook_user *user = NULL;
	struct queue_event read_again = {.uid = MALLORY, .id = 7, .change = 7};
	uint32_t count = mallory->count;
	assert_int_equal(hook_pending_add(&pending, &read_again, true, &user), 0);
	assert_ptr_equal(user, mallory);
	assert_int_equal(mallory->count, count + 1);
	hook_pending_clear(&pending);
}

static void test_one_that_was_told_in_vain_is_its_users_first_again(void **state)
{
	struct hook_pending pending = {0};

	add(&pending, MALLORY, 1, 0);
	add(&pending, MALLORY, 2, 0);
	hook_pending_return(&pending, hook_pending_take(&pending));
	assert_int_equal(take(&pending), 1);
	struct hook_event *last = hook_pending_take(&pending);
	hook_pending_forget(&pending);
	assert_null(pending.first);
	/* Its user had none left, and is there again. */
	hook_pending_return(&pending, last);
	assert_int_equal(take(&pending), 2);
	hook_pending_clear(&pending);
}

static void test_the_lowest_end_is_the_first_that_a_restart_reads(void **state)
{
	struct hook_pending pending = {0};

	assert_int_equal(hook_pending_lowest(&pending, 100), 100);
	add(&pending, ALICE, 1, 40);
	add(&pending, BOB, 2, 30);
	add(&pending, BOB, 3, 0);
	assert_int_equal(hook_pending_lowest(&pending, 100), 30);
	assert_int_equal(hook_pending_lowest(&pending, 20), 20);
	struct hook_user *bob = pending.first->next;
	assert_int_equal(bob->owner, BOB);
	bob->owed_from = 9;
	bob->owed_to = 50;
	assert_int_equal(hook_pending_lowest(&pending, 100), 10);
	hook_pending_clear(&pending);
}

static void test_subordinate_users_are_their_owner(void **state)
{
	struct hook_pending pending = {0};
	char path[] = "/tmp/carve-subuid-XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_true(dprintf(fd, "%d:200000:65536\n", MALLORY) > 0);
	close(fd);
	owner_load_from(path);
	for (uid_t uid = 200000; uid < 200013; uid++)
		add(&pending, uid, uid, 0);
	add(&pending, ALICE, 1, 0);
	(void)take(&pending);
	assert_int_equal(take(&pending), 1);
	hook_pending_clear(&pending);
	unlink(path);
	owner_load_from("/dev/null");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_users_take_turns),
		cmocka_unit_test(test_changes_beyond_a_list_are_dropped_and_counted),
		cmocka_unit_test(test_ends_beyond_a_list_are_owed_from_the_disk),
		cmocka_unit_test(test_one_that_was_told_in_vain_is_its_users_first_again),
		cmocka_unit_test(test_the_lowest_end_is_the_first_that_a_restart_reads),
		cmocka_unit_test(test_subordinate_users_are_their_owner),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
