/* Jobs on GPUs that give out MIG instances: core/queue.h, on the simulator's models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"
#include "base/units.h"
#include "core/queue.h"
#include "test_core_mig.h"

#define SECOND 1000000000ull
#define JOBS_MAX 8

/* An agent's GPUs: those with the MIG role come first, as NVML numbers them here. */
static struct test_pool t;
static struct queue_mig mig;
static struct place_gpu gpus[TEST_GPUS_MAX];
static size_t gpu_count;
static struct queue_running running[JOBS_MAX];
static struct place_grant grants[JOBS_MAX];
static size_t running_count;
static struct queue_decision decision;
static enum queue_wait why[JOBS_MAX];

static void agent_of(const char *model, uint32_t with_mig, uint32_t without)
{
	memset(&t, 0, sizeof(t));
	memset(&mig, 0, sizeof(mig));
	memset(gpus, 0, sizeof(gpus));
	test_pool_add(&t, model, with_mig + without);
	mig.pool = &t.pool;
	gpu_count = with_mig + without;
	running_count = 0;
	for (size_t i = 0; i < gpu_count; i++) {
		gpus[i] = (struct place_gpu){.total = GIB(80), .offered = i >= with_mig};
		t.gpus[i].offered = i < with_mig;
	}
}

static struct queue_job part(uint64_t id, double share)
{
	return (struct queue_job){.id = id,
				  .order = id,
				  .request = {.kind = PLACE_FRACTION,
					      .share = (uint32_t)(share * SHARE_ONE),
					      .compute = (uint32_t)(share * SHARE_ONE),
					      .count = 1,
					      .strict = true}};
}

static struct queue_job whole(uint64_t id)
{
	return (struct queue_job){
		.id = id,
		.order = id,
		.request = {.kind = PLACE_WHOLE, .share = SHARE_ONE, .count = 1, .strict = true}};
}

static struct queue_state state_now(void)
{
	return (struct queue_state){.mig = &mig,
				    .gpus = gpus,
				    .gpu_count = gpu_count,
				    .running = running,
				    .running_count = running_count};
}

static void decide(const struct queue_job *jobs, size_t count)
{
	struct queue_state state = state_now();

	queue_decide(&state, jobs, count, &decision, why);
}

static const char *profile_name(uint32_t gpu, uint32_t instance)
{
	return test_name(&t, t.gpus[gpu].die, t.instances[gpu][instance].profile);
}

/* Decides on the job alone, which must start in one instance, and has it run. Returns that. */
static const char *run(const struct queue_job *job, uint64_t ends_ns)
{
	decide(job, 1);
	assert_int_equal(decision.start, 0);
	assert_int_equal(decision.instances.count, 1);
	uint32_t gpu = decision.instances.choice[0].gpu;
	uint32_t at = decision.instances.choice[0].step == MIG_REUSE
			      ? decision.instances.choice[0].instance
			      : t.gpus[gpu].instance_count;
	struct mig_decision taken = decision.instances;
	test_take(&t, &taken);
	mig.holder[gpu][at] = job->id;
	grants[running_count] = (struct place_grant){.gpu = gpu};
	running[running_count++] = (struct queue_running){
		.id = job->id, .ends_ns = ends_ns, .started_ns = job->id, .preemptible = true};
	return profile_name(gpu, at);
}

static void a_fraction_is_an_instance_of_so_many_memory_units(void **state)
{
	static const struct {
		const char *model;
		double share;
		const char *profile;
	} cases[] = {
		{"h100-80gb", 0.125, "1g.10gb"}, {"h100-80gb", 0.25, "1g.20gb"},
		{"h100-80gb", 0.5, "3g.40gb"},   {"h100-80gb", 1, "7g.80gb"},
		{"a100-40gb", 0.5, "3g.20gb"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct queue_job job = part(1, cases[i].share);

		agent_of(cases[i].model, 1, 0);
		assert_string_equal(run(&job, QUEUE_NEVER), cases[i].profile);
	}
}

static void an_idle_instance_is_taken_again(void **state)
{
	struct queue_job job = part(1, 0.5);

	agent_of("h100-80gb", 2, 0);
	uint32_t idle = test_instance(&t, 1, test_profile(&t, 0, "3g.40gb"), 0, MIG_IDLE, 0);
	decide(&job, 1);
	assert_int_equal(decision.instances.choice[0].step, MIG_REUSE);
	assert_int_equal(decision.instances.choice[0].gpu, 1);
	assert_int_equal(decision.instances.choice[0].instance, idle);
}

static void two_halves_fill_a_gpu_and_the_third_waits_for_the_first_to_end(void **state)
{
	struct queue_job jobs[] = {part(1, 0.5), part(2, 0.5), part(3, 0.5)};

	agent_of("h100-80gb", 1, 0);
	(void)run(&jobs[0], 200 * SECOND);
	(void)run(&jobs[1], 100 * SECOND);
	decide(&jobs[2], 1);
	assert_int_equal(decision.start, QUEUE_NONE);
	assert_int_equal(why[0], QUEUE_WAITS_ROOM);
	assert_int_equal(decision.head, 0);
	assert_int_equal(decision.blocker, 2);
	assert_int_equal(decision.reserved_ns, 100 * SECOND);
}

static void a_whole_gpu_waits_for_all_instances_of_one(void **state)
{
	struct queue_job jobs[] = {part(1, 0.5), part(2, 0.125), part(3, 0.5), whole(4),
				   part(5, 0.5)};
	struct queue_state now;
	struct queue_ends ends;
	uint8_t started[ARRAY_SIZE(jobs)];

	agent_of("h100-80gb", 2, 0);
	for (size_t i = 0; i < 3; i++)
		(void)run(&jobs[i], QUEUE_NEVER);
	now = state_now();
	assert_true(queue_explain(&now, &jobs[3], 0, started, 1000, &ends));
	assert_false(ends.all || ends.exact);
	assert_int_equal(ends.count, 1);
	assert_int_equal(ends.id[0], 3);
	/* The half behind it starts then, too, beside the small one. */
	(void)run(&jobs[4], QUEUE_NEVER);
	now = state_now();
	assert_true(queue_explain(&now, &jobs[3], 0, started, 1000, &ends));
	assert_true(ends.all && !ends.exact);
	assert_int_equal(ends.count, 2);
}

static void jobs_pass_a_reserved_gpu_only_within_its_time(void **state)
{
	struct queue_job first = part(1, 0.5);
	struct queue_job jobs[] = {whole(2), part(3, 0.125), part(4, 0.125), part(5, 0.125)};

	agent_of("h100-80gb", 1, 0);
	(void)run(&first, 100 * SECOND);
	jobs[1].limit_ns = 101 * SECOND;
	jobs[3].limit_ns = 100 * SECOND;
	decide(jobs, ARRAY_SIZE(jobs));
	assert_int_equal(decision.start, 3);
	assert_int_equal(why[0], QUEUE_WAITS_ROOM);
	assert_int_equal(why[1], QUEUE_WAITS_RESERVED);
	assert_int_equal(why[2], QUEUE_WAITS_RESERVED);
	assert_int_equal(decision.blocker, 1);
}

/* Two quarters and a half fit a GPU together, whichever comes first. */
static void a_job_that_leaves_room_for_the_reserved_instance_starts(void **state)
{
	struct queue_job first = part(1, 0.5), second = part(2, 0.5);
	struct queue_job jobs[] = {part(3, 0.5), part(4, 0.25)};

	agent_of("h100-80gb", 2, 0);
	(void)run(&first, 100 * SECOND);
	(void)run(&second, 200 * SECOND);
	struct queue_job third = part(5, 0.5), fourth = part(6, 0.25);
	(void)run(&third, 300 * SECOND);
	(void)run(&fourth, 400 * SECOND);
	/* A quarter is left; the half waits for job 1, beside which the next quarter may run. */
	decide(jobs, ARRAY_SIZE(jobs));
	assert_int_equal(why[0], QUEUE_WAITS_ROOM);
	assert_int_equal(decision.blocker, 1);
	assert_int_equal(decision.start, 1);
}

static void one_that_is_being_changed_is_waited_for(void **state)
{
	struct queue_job job = part(1, 0.5);

	agent_of("h100-80gb", 1, 0);
	t.gpus[0].offered = false;
	mig.changing[0] = true;
	decide(&job, 1);
	assert_int_equal(decision.start, QUEUE_NONE);
	assert_int_equal(decision.head, 0);
	assert_int_equal(decision.reserved_ns, QUEUE_NEVER);
}

static void only_a_lower_priority_gives_its_instance_up(void **state)
{
	struct queue_job jobs[] = {part(1, 0.5), part(2, 0.5)}, urgent = part(9, 0.5);
	size_t victims[JOBS_MAX];

	agent_of("h100-80gb", 1, 0);
	(void)run(&jobs[0], QUEUE_NEVER);
	(void)run(&jobs[1], QUEUE_NEVER);
	struct queue_state state_of = state_now();
	assert_int_equal(queue_preempt(&state_of, &urgent, victims), 0);
	urgent.priority = 1;
	assert_int_equal(queue_preempt(&state_of, &urgent, victims), 1);
	assert_int_equal(running[victims[0]].id, 2);
	/* Not the one that made room for it before. */
	running[victims[0]].spared = true;
	assert_int_equal(queue_preempt(&state_of, &urgent, victims), 1);
	assert_int_equal(running[victims[0]].id, 1);
}

static void a_job_goes_to_the_kind_of_gpu_where_it_wastes_less(void **state)
{
	struct queue_job exact = part(1, 0.5), odd = part(2, 0.3), large = whole(3);

	agent_of("h100-80gb", 1, 1);
	decide(&odd, 1);
	assert_int_equal(decision.start, 0);
	assert_int_equal(decision.instances.count, 0);
	assert_int_equal(decision.place.grant[0].gpu, 1);
	/* A whole GPU is no instance while there is one that is whole. */
	decide(&large, 1);
	assert_int_equal(decision.instances.count, 0);
	gpus[1].outside = GIB(79);
	decide(&large, 1);
	assert_int_equal(decision.instances.count, 1);
	decide(&exact, 1);
	assert_int_equal(decision.instances.count, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_fraction_is_an_instance_of_so_many_memory_units),
		cmocka_unit_test(an_idle_instance_is_taken_again),
		cmocka_unit_test(two_halves_fill_a_gpu_and_the_third_waits_for_the_first_to_end),
		cmocka_unit_test(a_whole_gpu_waits_for_all_instances_of_one),
		cmocka_unit_test(jobs_pass_a_reserved_gpu_only_within_its_time),
		cmocka_unit_test(a_job_that_leaves_room_for_the_reserved_instance_starts),
		cmocka_unit_test(one_that_is_being_changed_is_waited_for),
		cmocka_unit_test(only_a_lower_priority_gives_its_instance_up),
		cmocka_unit_test(a_job_goes_to_the_kind_of_gpu_where_it_wastes_less),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
