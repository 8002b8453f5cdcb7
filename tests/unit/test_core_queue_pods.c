/* Which job of a queue becomes a pod, and which pod makes room for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/macros.h"
#include "core/queue_pods.h"

static void test_jobs_start_in_order_past_a_queue_that_has_its_most(void **state)
{
	const struct queue_limit queues[] = {{.running = 1, .most = 1}, {.running = 1}};
	const struct queue_job jobs[] = {{.id = 1, .queue = 0}, {.id = 2, .queue = 1}};
	enum queue_wait why[2];
	struct queue_decision decision;

	queue_pods_decide(queues, 2, 3, jobs, 2, &decision, why);
	assert_int_equal(decision.start, 1);
	assert_int_equal(decision.head, QUEUE_NONE);
	assert_int_equal(why[0], QUEUE_WAITS_MOST);
	assert_int_equal(why[1], QUEUE_STARTS);
}

static void test_the_agents_most_holds_for_all_queues_and_names_a_head(void **state)
{
	const struct queue_limit queues[] = {{.running = 1, .most = 1}, {.running = 2}};
	const struct queue_job jobs[] = {
		{.id = 1, .queue = 0}, {.id = 2, .queue = 1}, {.id = 3, .queue = 1}};
	enum queue_wait why[3];
	struct queue_decision decision;

	queue_pods_decide(queues, 3, 3, jobs, 3, &decision, why);
	assert_int_equal(decision.start, QUEUE_NONE);
	assert_int_equal(decision.head, 1);
	assert_int_equal(why[2], QUEUE_WAITS_ROOM);
	queue_pods_decide(queues, 3, 3, jobs, 0, &decision, NULL);
	assert_int_equal(decision.head, QUEUE_NONE);
}

static void test_the_youngest_pod_of_lowest_priority_that_may_run_again_makes_room(void **state)
{
	struct queue_running running[] = {
		{.priority = -9},
		{.priority = -1, .preemptible = true, .started_ns = 5},
		{.priority = -2, .preemptible = true, .started_ns = 1},
		{.priority = -2, .preemptible = true, .started_ns = 2},
		{.priority = 0, .preemptible = true, .started_ns = 9},
	};
	const struct queue_job head = {.priority = 0};

	assert_int_equal(queue_pods_preempt(running, ARRAY_SIZE(running), &head), 3);
	running[3].spared = running[2].spared = running[1].spared = true;
	assert_int_equal(queue_pods_preempt(running, ARRAY_SIZE(running), &head), QUEUE_NONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_jobs_start_in_order_past_a_queue_that_has_its_most),
		cmocka_unit_test(test_the_agents_most_holds_for_all_queues_and_names_a_head),
		cmocka_unit_test(
			test_the_youngest_pod_of_lowest_priority_that_may_run_again_makes_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
