#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "core/leaf.h"

static enum leaf_choice choice_of(struct leaf_facts facts)
{
	const char *why;
	enum leaf_choice choice = leaf_choose(&facts, &why);

	assert_int_equal(choice == LEAF_FRONT || choice == LEAF_REFUSED, why != NULL);
	return choice;
}

/* By who asks. */
struct choices {
	enum leaf_choice command, container, attaching;
};

static void assert_choices(struct leaf_facts facts, struct choices wanted)
{
	facts.asker = LEAF_COMMAND;
	assert_int_equal(choice_of(facts), wanted.command);
	facts.asker = LEAF_CONTAINER;
	assert_int_equal(choice_of(facts), wanted.container);
	facts.asker = LEAF_ATTACHING;
	assert_int_equal(choice_of(facts), wanted.attaching);
}

static void a_cgroup_of_its_own_carries_the_limit(void **state)
{
	const struct choices taken = {LEAF_TAKEN, LEAF_TAKEN, LEAF_TAKEN};

	assert_choices((struct leaf_facts){.company = LEAF_ALONE}, taken);
	assert_choices((struct leaf_facts){.company = LEAF_SHARED, .made = true}, taken);
	assert_choices((struct leaf_facts){.company = LEAF_ALONE, .fixed = true}, taken);
}

static void a_command_gets_a_cgroup_and_a_container_is_refused_where_others_are(void **state)
{
	const struct choices shared = {LEAF_MADE, LEAF_REFUSED, LEAF_FRONT};

	assert_choices((struct leaf_facts){.company = LEAF_SHARED}, shared);
	assert_choices((struct leaf_facts){.company = LEAF_ALONE, .root = true}, shared);
	assert_choices((struct leaf_facts){.company = LEAF_ALONE, .others = true}, shared);
	assert_choices((struct leaf_facts){.company = LEAF_UNKNOWN, .others = true}, shared);
}

static void nobody_goes_on_where_the_cgroup_cannot_be_looked_at(void **state)
{
	assert_choices((struct leaf_facts){.company = LEAF_UNKNOWN},
		       (struct choices){LEAF_MADE, LEAF_REFUSED, LEAF_REFUSED});
}

static void a_command_is_left_to_the_front_only_where_no_cgroup_can_be_made(void **state)
{
	assert_choices((struct leaf_facts){.company = LEAF_SHARED, .fixed = true},
		       (struct choices){LEAF_FRONT, LEAF_REFUSED, LEAF_FRONT});
	assert_choices((struct leaf_facts){.company = LEAF_UNKNOWN, .fixed = true},
		       (struct choices){LEAF_FRONT, LEAF_REFUSED, LEAF_REFUSED});
}

/* ---- the processes in a cgroup --------------------------------------------------------- */

#define PIDS 4096
#define ENDED (-1)

/* parent[PID], 0: it has none that is known. */
struct family {
	pid_t parent[PIDS];
	unsigned asked;
};

static int family_identify(void *context, pid_t pid, struct process_id *ret)
{
	struct family *family = context;

	family->asked++;
	if (family->parent[pid] == ENDED)
		return -ESRCH;
	*ret = (struct process_id){.pid = pid, .birth = (uint64_t)pid};
	return 0;
}

static bool family_parent(void *context, struct process_id process, struct process_id *ret)
{
	struct family *family = context;
	pid_t parent = family->parent[process.pid];

	family->asked++;
	if (parent > 0)
		*ret = (struct process_id){.pid = parent, .birth = (uint64_t)parent};
	return parent > 0;
}

/* Process 10 is the session's. */
static enum leaf_company company_of(struct family *family, const pid_t *list, size_t count)
{
	const struct process_id root = {.pid = 10, .birth = 10};
	const struct leaf_reader reader = {family_identify, family_parent, family};

	return leaf_company(list, count, &root, 1, &reader);
}

static void descendants_of_the_session_are_no_strangers(void **state)
{
	struct family family = {.parent = {[11] = 10, [12] = 11, [13] = ENDED, [20] = 2}};

	assert_int_equal(company_of(&family, (pid_t[]){10, 12, 11, 13}, 4), LEAF_ALONE);
	assert_int_equal(company_of(&family, (pid_t[]){10, 12, 20}, 3), LEAF_SHARED);
	assert_int_equal(company_of(&family, (pid_t[]){10, 0}, 2), LEAF_SHARED);
	assert_int_equal(company_of(&family, NULL, 0), LEAF_ALONE);
}

static void a_users_tree_costs_a_bounded_number_of_questions(void **state)
{
	static struct family chain, wide;
	pid_t list[LEAF_PROCESSES_MAX];

	/* Each process of a chain is asked for once, however many of its descendants are there. */
	for (pid_t pid = 11; pid < 11 + (pid_t)LEAF_PROCESSES_MAX; pid++) {
		chain.parent[pid] = pid - 1;
		list[pid - 11] = pid;
	}
	assert_int_equal(company_of(&chain, list, LEAF_PROCESSES_MAX), LEAF_ALONE);
	assert_in_range(chain.asked, LEAF_PROCESSES_MAX, 2 * LEAF_PROCESSES_MAX);

	/* Each has ancestors of its own: nobody looks at all of them. */
	for (pid_t i = 0; i < (pid_t)LEAF_PROCESSES_MAX; i++) {
		for (pid_t k = 0; k < 20; k++)
			wide.parent[100 + i * 20 + k] = k ? 100 + i * 20 + k - 1 : 10;
		list[i] = 100 + i * 20 + 19;
	}
	assert_int_equal(company_of(&wide, list, LEAF_PROCESSES_MAX), LEAF_UNKNOWN);
	assert_in_range(wide.asked, 1, LEAF_STEPS_MAX);
}

static void too_many_ancestors_are_not_climbed(void **state)
{
	static struct family family;

	for (pid_t pid = 11; pid < 100; pid++)
		family.parent[pid] = pid - 1;
	assert_int_equal(company_of(&family, (pid_t[]){10 + LEAF_ANCESTORS_MAX}, 1), LEAF_ALONE);
	assert_int_equal(company_of(&family, (pid_t[]){11 + LEAF_ANCESTORS_MAX}, 1), LEAF_UNKNOWN);
}

/* ---- the life of a limit --------------------------------------------------------------- */

static void a_limit_is_recorded_before_it_is_held_and_cleared_after(void **state)
{
	enum limit_state at = LIMIT_NONE;
	static const enum limit_event life[] = {LIMIT_EVENT_RECORD, LIMIT_EVENT_SET,
						LIMIT_EVENT_LAPSE, LIMIT_EVENT_SET,
						LIMIT_EVENT_CLEAR};

	assert_false(limit_next(LIMIT_NONE, LIMIT_EVENT_SET, &at));
	assert_false(limit_next(LIMIT_NONE, LIMIT_EVENT_CLEAR, &at));
	assert_int_equal(at, LIMIT_NONE);
	for (size_t i = 0; i < ARRAY_SIZE(life); i++)
		assert_true(limit_next(at, life[i], &at));
	assert_int_equal(at, LIMIT_NONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_cgroup_of_its_own_carries_the_limit),
		cmocka_unit_test(
			a_command_gets_a_cgroup_and_a_container_is_refused_where_others_are),
		cmocka_unit_test(nobody_goes_on_where_the_cgroup_cannot_be_looked_at),
		cmocka_unit_test(a_command_is_left_to_the_front_only_where_no_cgroup_can_be_made),
		cmocka_unit_test(descendants_of_the_session_are_no_strangers),
		cmocka_unit_test(a_users_tree_costs_a_bounded_number_of_questions),
		cmocka_unit_test(too_many_ancestors_are_not_climbed),
		cmocka_unit_test(a_limit_is_recorded_before_it_is_held_and_cleared_after),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
