#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "core/leaf.h"
#include "proto/cgroup_limits.h"

static enum leaf_choice choice_of(struct leaf_facts facts)
{
	const char *why;
	enum leaf_choice choice = leaf_choose(&facts, &why);

	assert_int_equal(choice == LEAF_NONE, why != NULL);
	return choice;
}

static void only_a_cgroup_of_its_own_carries_the_limit(void **state)
{
	assert_int_equal(choice_of((struct leaf_facts){.alone = true}), LEAF_TAKEN);
	assert_int_equal(choice_of((struct leaf_facts){.alone = true, .movable = true}),
			 LEAF_TAKEN);
	assert_int_equal(choice_of((struct leaf_facts){.made = true}), LEAF_TAKEN);
	assert_int_equal(choice_of((struct leaf_facts){.alone = false}), LEAF_NONE);
	assert_int_equal(choice_of((struct leaf_facts){.alone = true, .root = true}), LEAF_NONE);
	assert_int_equal(choice_of((struct leaf_facts){.alone = true, .others = true}), LEAF_NONE);
}

static void a_command_that_has_not_begun_gets_one(void **state)
{
	assert_int_equal(choice_of((struct leaf_facts){.movable = true}), LEAF_MADE);
	assert_int_equal(choice_of((struct leaf_facts){.movable = true, .root = true}), LEAF_MADE);
	assert_int_equal(
		choice_of((struct leaf_facts){.movable = true, .alone = true, .others = true}),
		LEAF_MADE);
}

static void a_limit_is_recorded_before_it_is_held_and_cleared_after(void **state)
{
	enum limit_state at = LIMIT_NONE;
	static const enum limit_event life[] = {LIMIT_EVENT_RECORD, LIMIT_EVENT_SET,
						LIMIT_EVENT_LEAVE, LIMIT_EVENT_CLEAR};

	assert_false(limit_next(LIMIT_NONE, LIMIT_EVENT_SET, &at));
	assert_false(limit_next(LIMIT_HELD, LIMIT_EVENT_CLEAR, &at));
	assert_int_equal(at, LIMIT_NONE);
	for (size_t i = 0; i < ARRAY_SIZE(life); i++)
		assert_true(limit_next(at, life[i], &at));
	assert_int_equal(at, LIMIT_NONE);
}

static int check(enum limits_op op, const char *path)
{
	struct limits_request r = {.magic = LIMITS_MAGIC,
				   .version = LIMITS_VERSION,
				   .op = (uint16_t)op,
				   .pid = 100,
				   .birth = 1};

	strcpy(r.path, path);
	return limits_request_check(&r, sizeof(r));
}

static void requests_name_cgroups_by_plain_paths(void **state)
{
	assert_int_equal(check(LIMITS_PUT, "/sys/fs/cgroup/a"), 0);
	assert_int_equal(check(LIMITS_PUT, "sys"), -EINVAL);
	assert_int_equal(check(LIMITS_PUT, "/sys/fs/cgroup/../a"), -EINVAL);
	assert_int_equal(check(LIMITS_PUT, "/sys/fs/cgroup/a/.."), -EINVAL);
	assert_int_equal(check(LIMITS_ENTER, "/sys/fs/cgroup/carve-s-1"), 0);
	assert_int_equal(check(LIMITS_ENTER, "/sys/fs/cgroup/a"), -EINVAL);
	assert_int_equal(check(LIMITS_LEAVE, "/sys/fs/cgroup/user.slice"), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_a_cgroup_of_its_own_carries_the_limit),
		cmocka_unit_test(a_command_that_has_not_begun_gets_one),
		cmocka_unit_test(a_limit_is_recorded_before_it_is_held_and_cleared_after),
		cmocka_unit_test(requests_name_cgroups_by_plain_paths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
