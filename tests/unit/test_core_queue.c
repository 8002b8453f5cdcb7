/* Which job starts where: core/queue.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"
#include "base/units.h"
#include "core/compute.h"
#include "core/queue.h"

#define SECOND 1000000000ull
#define HOUR (3600 * SECOND)
#define JOBS_MAX 256

/* A node with an agent: jobs that wait, and jobs that run. */
struct agent {
	enum place_policy policy;
	struct place_gpu gpus[8];
	size_t gpu_count;
	struct queue_limit queues[8];
	struct queue_job jobs[JOBS_MAX];
	size_t job_count;
	struct queue_running running[JOBS_MAX];
	struct place_grant grants[JOBS_MAX][8];
	struct place_request requests[JOBS_MAX]; /* by job's ID */
	uint64_t limits[JOBS_MAX];
	size_t running_count;
	uint64_t now, next_id;
	struct queue_decision last;
	enum queue_wait why[JOBS_MAX];
};

static void agent_make(struct agent *a, size_t gpus)
{
	memset(a, 0, sizeof(*a));
	a->gpu_count = gpus;
	a->next_id = 1;
	for (size_t i = 0; i < gpus; i++)
		a->gpus[i] = (struct place_gpu){.total = GIB(80), .offered = true};
}

static struct place_request fraction(double share)
{
	return (struct place_request){.kind = PLACE_FRACTION,
				      .share = (uint32_t)(share * SHARE_ONE),
				      .count = 1,
				      .strict = true};
}

static struct place_request whole(uint32_t count)
{
	return (struct place_request){.kind = PLACE_WHOLE, .count = count, .strict = true};
}

static struct queue_job *job_add(struct agent *a, uint32_t queue, struct place_request request)
{
	struct queue_job *job = &a->jobs[a->job_count++];

	*job = (struct queue_job){
		.id = a->next_id, .order = a->next_id, .queue = queue, .request = request};
	a->next_id++;
	return job;
}

static struct queue_state state_of(struct agent *a)
{
	return (struct queue_state){.now_ns = a->now,
				    .policy = a->policy,
				    .gpus = a->gpus,
				    .gpu_count = a->gpu_count,
				    .running = a->running,
				    .running_count = a->running_count,
				    .queues = a->queues,
				    .queue_count = ARRAY_SIZE(a->queues)};
}

static void job_run(struct agent *a, const struct queue_job *job, const struct place_result *place)
{
	struct queue_running *running = &a->running[a->running_count++];
	struct place_grant *grant = a->grants[job->id];

	memcpy(grant, place->grant, place->count * sizeof(*grant));
	*running = (struct queue_running){
		.id = job->id,
		.started_ns = a->now,
		.ends_ns = job->limit_ns ? a->now + job->limit_ns : QUEUE_NEVER,
		.grant = grant,
		.grant_count = place->count,
		.compute = place_compute(&job->request),
		.priority = job->priority,
	};
	queue_take(a->gpus, grant, place->count, running->compute);
	a->queues[job->queue].running++;
}

/* Starts one job if one may start. Returns its ID, or 0. */
static uint64_t start_one(struct agent *a)
{
	struct queue_state state = state_of(a);

	queue_decide(&state, a->jobs, a->job_count, &a->last, a->why);
	if (a->last.start == QUEUE_NONE)
		return 0;
	struct queue_job *job = &a->jobs[a->last.start];
	uint64_t id = job->id;

	job_run(a, job, &a->last.place);
	memmove(job, job + 1, (size_t)(&a->jobs[a->job_count] - (job + 1)) * sizeof(*job));
	a->job_count--;
	return id;
}

static size_t start_all(struct agent *a)
{
	size_t count = 0;

	while (start_one(a))
		count++;
	return count;
}

static void jobs_go_round_a_drained_gpu(void **state)
{
	struct agent a;

	agent_make(&a, 2);
	a.gpus[0].drained = true;
	for (int i = 0; i < 3; i++)
		job_add(&a, 0, fraction(0.5));
	/* A job that needs both GPUs keeps none of them from the jobs behind it. */
	job_add(&a, 0, whole(2))->order = 0;
	assert_int_equal(start_all(&a), 2);
	assert_int_equal(a.gpus[0].sessions, 0);
	assert_int_equal(a.gpus[1].sessions, 2);
	a.gpus[0].drained = false;
	assert_int_equal(start_all(&a), 1);
	assert_int_equal(a.gpus[0].sessions, 1);
}

static void jobs_are_spread_where_the_policy_says_so(void **state)
{
	struct agent a;

	agent_make(&a, 2);
	a.policy = PLACE_SPREAD;
	for (int i = 0; i < 4; i++)
		job_add(&a, 0, fraction(0.25));
	assert_int_equal(start_all(&a), 4);
	assert_int_equal(a.gpus[0].sessions, 2);
	assert_int_equal(a.gpus[1].sessions, 2);
}

static struct queue_running *running_find(struct agent *a, uint64_t id)
{
	for (size_t i = 0; i < a->running_count; i++)
		if (a->running[i].id == id)
			return &a->running[i];
	return NULL;
}

static void job_end(struct agent *a, uint64_t id)
{
	struct queue_running *running = running_find(a, id);

	assert_non_null(running);
	queue_give(a->gpus, running->grant, running->grant_count, running->compute);
	*running = a->running[--a->running_count];
}

/* ---- the documents' examples ------------------------------------------------------------- */

static void example_of_three_gpus(void **state)
{
	static struct agent a;

	agent_make(&a, 3);
	uint64_t dual = job_add(&a, 0, whole(2))->id;
	uint64_t quarter = job_add(&a, 1, fraction(0.25))->id;
	uint64_t half = job_add(&a, 2, fraction(0.5))->id;
	uint64_t single = job_add(&a, 3, whole(1))->id;

	assert_int_equal(start_one(&a), dual);
	assert_int_equal(start_one(&a), quarter);
	assert_int_equal(start_one(&a), half);
	assert_int_equal(start_one(&a), 0);
	assert_int_equal(running_find(&a, dual)->grant_count, 2);
	assert_int_equal(running_find(&a, quarter)->grant[0].gpu,
			 running_find(&a, half)->grant[0].gpu);
	/* 2.75 of 3 GPUs. */
	assert_int_equal(a.gpus[0].promised + a.gpus[1].promised + a.gpus[2].promised,
			 GIB(80) * 11 / 4);
	assert_int_equal(a.why[0], QUEUE_WAITS_ROOM);
	/* The dual job began first, so one of its GPUs is kept for the single job. */
	assert_int_equal(a.last.blocker, dual);
	job_end(&a, dual);
	assert_int_equal(start_one(&a), single);
}

static void four_halves_on_two_gpus(void **state)
{
	static struct agent a;

	agent_make(&a, 2);
	for (int i = 0; i < 5; i++)
		job_add(&a, 0, fraction(0.5));
	assert_int_equal(start_all(&a), 4);
	assert_int_equal(a.job_count, 1);
}

/* ---- order ------------------------------------------------------------------------------- */

static void listed_order_then_priority_then_use_then_arrival(void **state)
{
	struct queue_job jobs[] = {
		{.id = 1, .order = 1, .queue = 1, .priority = 9},
		{.id = 2, .order = 2, .queue = 0, .use = 5},
		{.id = 3, .order = 3, .queue = 0, .use = 1},
		{.id = 4, .order = 4, .queue = 0, .use = 1},
		{.id = 5, .order = 5, .queue = 0, .use = 9, .priority = 1},
	};
	const uint64_t expected[] = {5, 3, 4, 2, 1};

	queue_sort(jobs, ARRAY_SIZE(jobs), false, 0, 2);
	for (size_t i = 0; i < ARRAY_SIZE(jobs); i++)
		assert_int_equal(jobs[i].id, expected[i]);
}

static void order_fairness_takes_queues_in_turn(void **state)
{
	struct queue_job jobs[] = {
		{.id = 1, .queue = 0}, {.id = 2, .queue = 1}, {.id = 3, .queue = 2}};

	queue_sort(jobs, ARRAY_SIZE(jobs), true, 0, 3);
	assert_int_equal(jobs[0].id, 2);
	queue_sort(jobs, ARRAY_SIZE(jobs), true, 1, 3);
	assert_int_equal(jobs[0].id, 3);
	queue_sort(jobs, ARRAY_SIZE(jobs), true, 2, 3);
	assert_int_equal(jobs[0].id, 1);
}

static void a_queue_runs_no_more_than_its_most(void **state)
{
	static struct agent a;

	agent_make(&a, 2);
	a.queues[0].most = 1;
	job_add(&a, 0, fraction(0.25));
	job_add(&a, 0, fraction(0.25));
	uint64_t other = job_add(&a, 1, fraction(0.25))->id;
	assert_int_equal(start_all(&a), 2);
	assert_non_null(running_find(&a, other));
	assert_int_equal(a.why[0], QUEUE_WAITS_MOST);
}

static void a_range_takes_as_many_gpus_as_are_free(void **state)
{
	static struct agent a;

	agent_make(&a, 4);
	job_add(&a, 0, fraction(0.5));
	struct queue_job *range = job_add(&a, 1, whole(4));
	uint64_t id = range->id;

	range->count_min = 1;
	assert_int_equal(start_all(&a), 2);
	assert_int_equal(running_find(&a, id)->grant_count, 3);
}

/* ---- who may pass whom ------------------------------------------------------------------- */

static void a_job_without_room_does_not_hold_up_others(void **state)
{
	static struct agent a;

	agent_make(&a, 2);
	uint64_t first = job_add(&a, 0, fraction(0.5))->id;
	start_all(&a);
	job_add(&a, 0, whole(2));
	uint64_t small = job_add(&a, 1, fraction(0.5))->id;
	running_find(&a, first)->ends_ns = 100 * SECOND;
	a.jobs[1].limit_ns = 50 * SECOND;
	assert_int_equal(start_one(&a), small);
}

static void backfill_does_not_delay_the_reserved_placement(void **state)
{
	static struct agent a;

	agent_make(&a, 2);
	uint64_t first = job_add(&a, 0, fraction(0.5))->id;
	start_all(&a);
	running_find(&a, first)->ends_ns = 100 * SECOND;
	job_add(&a, 0, whole(2));
	struct queue_job *late = job_add(&a, 1, fraction(0.25));
	late->limit_ns = 101 * SECOND;
	struct queue_job *unlimited = job_add(&a, 1, fraction(0.25));
	uint64_t just = job_add(&a, 1, fraction(0.25))->id;
	a.jobs[3].limit_ns = 100 * SECOND;
	(void)unlimited;
	assert_int_equal(start_one(&a), just);
	assert_int_equal(a.why[1], QUEUE_WAITS_RESERVED);
	assert_int_equal(a.why[2], QUEUE_WAITS_RESERVED);
	assert_int_equal(a.last.reserved_ns, 100 * SECOND);
	assert_int_equal(a.last.blocker, first);
}

/* Small jobs keep coming, each as one ends; the large one begins all the same. */
static void a_large_job_does_not_starve(void **state)
{
	static struct agent a;

	agent_make(&a, 2);
	for (int i = 0; i < 8; i++)
		job_add(&a, 0, fraction(0.25));
	assert_int_equal(start_all(&a), 8);
	uint64_t large = job_add(&a, 0, whole(1))->id;
	bool began = false;
	srand(1);
	for (int round = 0; round < 40 && !began; round++) {
		job_add(&a, 0, fraction(0.25));
		job_end(&a, a.running[(size_t)rand() % a.running_count].id);
		a.now += SECOND;
		start_all(&a);
		began = running_find(&a, large) != NULL;
	}
	assert_true(began);
}

/* Memory that others hold has no end: the placement is kept where they are not in the way for ever.
 */
static void memory_outside_is_waited_for_beside_other_jobs(void **state)
{
	static struct agent a;

	agent_make(&a, 2);
	a.gpus[0].outside = GIB(1);
	a.gpus[1].outside = GIB(1);
	job_add(&a, 0, whole(1));
	uint64_t small = job_add(&a, 0, fraction(0.25))->id;
	uint64_t other = job_add(&a, 0, fraction(0.5))->id;
	assert_int_equal(start_one(&a), small);
	assert_int_equal(start_one(&a), other);
	assert_int_equal(running_find(&a, small)->grant[0].gpu,
			 running_find(&a, other)->grant[0].gpu);
	assert_int_equal(a.last.head, 0);
}

/* ---- preempting -------------------------------------------------------------------------- */

static void preemption_takes_the_fewest_and_youngest(void **state)
{
	static struct agent a;
	size_t victims[JOBS_MAX];

	agent_make(&a, 1);
	for (int i = 0; i < 4; i++) {
		job_add(&a, 0, fraction(0.25));
		a.now += SECOND;
		start_all(&a);
	}
	struct queue_job urgent = {.id = 9, .priority = 1, .request = fraction(0.5)};
	struct queue_state s = state_of(&a);
	assert_int_equal(queue_preempt(&s, &urgent, victims), 0);
	for (size_t i = 0; i < a.running_count; i++)
		a.running[i].preemptible = true;
	assert_int_equal(queue_preempt(&s, &urgent, victims), 2);
	assert_int_equal(a.running[victims[0]].started_ns, 4 * SECOND);
	assert_int_equal(a.running[victims[1]].started_ns, 3 * SECOND);
	/* Equal priority preempts nobody, and neither does one that would still find no room. */
	urgent.priority = 0;
	assert_int_equal(queue_preempt(&s, &urgent, victims), 0);
	urgent.priority = 1;
	urgent.request = whole(2);
	assert_int_equal(queue_preempt(&s, &urgent, victims), 0);
}

static void nothing_is_preempted_twice_for_one_claim(void **state)
{
	static struct agent a;
	size_t victims[JOBS_MAX];

	agent_make(&a, 1);
	job_add(&a, 0, whole(1));
	start_all(&a);
	a.running[0].preemptible = a.running[0].spared = true;
	struct queue_job urgent = {.id = 9, .priority = 1, .request = fraction(0.5)};
	struct queue_state s = state_of(&a);
	assert_int_equal(queue_preempt(&s, &urgent, victims), 0);
}

/* ---- fair share -------------------------------------------------------------------------- */

/* Four users, one of them with ten times the jobs of the others, for a day. */
static void four_users_share_a_day(void **state)
{
	static struct agent a;
	double use[4] = {0}, got[4] = {0}, sum = 0, squares = 0;
	uint32_t owner[JOBS_MAX];
	uint64_t ends[JOBS_MAX];
	uint32_t id = 0;

	agent_make(&a, 2);
	srand(7);
	for (uint64_t minute = 0; minute < 24 * 60; minute++) {
		a.now = minute * 60 * SECOND;
		for (size_t i = 0; i < a.running_count;) {
			uint64_t ended = a.running[i].id;

			if (ends[ended] > minute) {
				i++;
				continue;
			}
			job_end(&a, ended);
		}
		a.job_count = 0;
		/* Each always has jobs that wait: the greedy one ten. */
		for (uint32_t user = 0; user < 4; user++)
			for (int n = 0; n < (user ? 2 : 10); n++) {
				a.next_id = 1 + id++ % (JOBS_MAX - 1);
				while (running_find(&a, a.next_id))
					a.next_id = 1 + id++ % (JOBS_MAX - 1);
				struct queue_job *job = job_add(&a, 0, fraction(0.5));
				owner[job->id] = user;
			}
		for (bool more = true; more;) {
			for (size_t i = 0; i < a.job_count; i++)
				a.jobs[i].use = use[owner[a.jobs[i].id]];
			queue_sort(a.jobs, a.job_count, false, 0, 1);
			uint64_t started = start_one(&a);
			more = started != 0;
			if (!more)
				break;
			uint64_t minutes = 5 + (uint64_t)rand() % 55;
			ends[started] = minute + minutes;
			use[owner[started]] += (double)minutes;
			got[owner[started]] += (double)minutes;
		}
		for (int user = 0; user < 4; user++)
			use[user] = queue_decay(use[user], 60 * SECOND);
	}
	for (int user = 0; user < 4; user++) {
		sum += got[user];
		squares += got[user] * got[user];
	}
	assert_true(sum * sum / (4 * squares) >= 0.95);
}

/* ---- explaining -------------------------------------------------------------------------- */

#define LOOKS 100000u

static struct queue_ends ends_of(struct agent *a, size_t job)
{
	struct queue_state state = state_of(a);
	struct queue_ends ret;
	uint8_t started[JOBS_MAX];

	if (!queue_explain(&state, a->jobs, job, started, LOOKS, &ret))
		assert_int_equal(ret.count, 0);
	return ret;
}

static void assert_ends(const struct queue_ends *ends, bool all, bool exact, size_t count, ...)
{
	va_list ids;

	assert_int_equal(ends->count, count);
	assert_int_equal(ends->all, all);
	assert_int_equal(ends->exact, exact);
	va_start(ids, count);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(ends->id[i], va_arg(ids, int));
	va_end(ids);
}

static void a_job_starts_when_one_of_those_ends_that_leave_room_for_it(void **state)
{
	static struct agent a;

	agent_make(&a, 1);
	job_add(&a, 0, fraction(0.5));
	job_add(&a, 0, fraction(0.25));
	job_add(&a, 0, fraction(0.25));
	job_add(&a, 0, fraction(0.25));
	job_add(&a, 0, fraction(0.25));
	assert_int_equal(start_all(&a), 3);
	struct queue_ends ends = ends_of(&a, 0);
	assert_ends(&ends, false, true, 3, 1, 2, 3);
	/* The job before it takes a quarter. Two quarters that end are enough, too. */
	ends = ends_of(&a, 1);
	assert_ends(&ends, false, false, 1, 1);
	/* The one that ends first, as is known, comes first. */
	running_find(&a, 3)->ends_ns = HOUR;
	ends = ends_of(&a, 0);
	assert_ends(&ends, false, true, 3, 3, 1, 2);
}

static void a_job_starts_when_all_have_ended_that_are_in_its_way(void **state)
{
	static struct agent a;

	agent_make(&a, 2);
	for (int i = 0; i < 3; i++)
		job_add(&a, 0, fraction(0.5));
	job_add(&a, 0, whole(1));
	assert_int_equal(start_all(&a), 3);
	/* The third one is alone on its GPU. */
	struct queue_ends ends = ends_of(&a, 0);
	assert_ends(&ends, false, false, 1, 3);
	a.jobs[0].request = whole(2);
	ends = ends_of(&a, 0);
	assert_ends(&ends, true, true, 3, 1, 2, 3);
	a.jobs[0].request = whole(1);
	running_find(&a, 3)->ends_ns = QUEUE_NEVER;
	a.gpus[1].outside = GIB(1);
	ends = ends_of(&a, 0);
	assert_ends(&ends, true, true, 2, 1, 2);
	a.gpus[0].outside = GIB(1);
	ends = ends_of(&a, 0);
	assert_int_equal(ends.count, 0);
}

/* The next job of a queue that runs one at a time takes the room that the last one leaves. */
static void a_job_that_goes_before_takes_the_room_that_is_left(void **state)
{
	static struct agent a;

	agent_make(&a, 1);
	a.queues[0].most = 1;
	job_add(&a, 0, fraction(0.5));
	job_add(&a, 1, fraction(0.5));
	job_add(&a, 0, fraction(0.5));
	job_add(&a, 1, fraction(0.5));
	assert_int_equal(start_all(&a), 2);
	running_find(&a, 2)->queue = 1;
	struct queue_ends ends = ends_of(&a, 1);
	assert_ends(&ends, false, true, 1, 2);
}

/* Each end that is named lets the job start, and no other end alone does: as it then comes. */
static void ends_are_those_that_let_the_job_start(void **state)
{
	static struct agent a, b;
	static const double shares[] = {0.125, 0.25, 0.3, 0.5, 0.7, 1};
	unsigned any = 0, all = 0;

	srandom(44);
	for (int round = 0; round < 400; round++) {
		agent_make(&a, 1 + (size_t)random() % 3);
		for (int i = 0; i < 14; i++) {
			struct queue_job *job = job_add(
				&a, 0, random() % 8 ? fraction(shares[random() % 6]) : whole(1));

			job->limit_ns = random() % 3 ? 0 : (uint64_t)(1 + random() % 5) * HOUR;
		}
		start_all(&a);
		if (!a.job_count)
			continue;
		size_t of = (size_t)random() % a.job_count;
		uint64_t id = a.jobs[of].id;
		struct queue_ends ends = ends_of(&a, of);

		any += ends.count && !ends.all;
		all += ends.all;
		for (size_t r = 0; r < a.running_count; r++) {
			bool named = false;

			for (size_t i = 0; i < ends.count && !ends.all; i++)
				named |= ends.id[i] == a.running[r].id;
			b = a;
			/* The jobs behind it would start, too. */
			b.job_count = of + 1;
			job_end(&b, a.running[r].id);
			start_all(&b);
			assert_int_equal(running_find(&b, id) != NULL, named);
		}
		b = a;
		b.job_count = of + 1;
		for (size_t i = 0; i < ends.count && ends.all; i++)
			job_end(&b, ends.id[i]);
		start_all(&b);
		assert_int_equal(running_find(&b, id) != NULL, ends.all);
	}
	assert_true(any > 50 && all > 50);
}

static void use_halves_in_a_half_life(void **state)
{
	assert_true(queue_decay(8, QUEUE_HALF_LIFE_NS) == 4);
	assert_true(queue_decay(8, 0) == 8);
}

static void a_job_that_fails_to_start_is_tried_less_and_less(void **state)
{
	assert_int_equal(queue_again_ns(0), SECOND);
	assert_int_equal(queue_again_ns(1), 2 * SECOND);
	assert_int_equal(queue_again_ns(5), 32 * SECOND);
	assert_int_equal(queue_again_ns(6), 32 * SECOND);
	assert_int_equal(queue_again_ns(UINT32_MAX), 32 * SECOND);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(jobs_go_round_a_drained_gpu),
		cmocka_unit_test(jobs_are_spread_where_the_policy_says_so),
		cmocka_unit_test(example_of_three_gpus),
		cmocka_unit_test(four_halves_on_two_gpus),
		cmocka_unit_test(listed_order_then_priority_then_use_then_arrival),
		cmocka_unit_test(order_fairness_takes_queues_in_turn),
		cmocka_unit_test(a_queue_runs_no_more_than_its_most),
		cmocka_unit_test(a_range_takes_as_many_gpus_as_are_free),
		cmocka_unit_test(a_job_without_room_does_not_hold_up_others),
		cmocka_unit_test(backfill_does_not_delay_the_reserved_placement),
		cmocka_unit_test(a_large_job_does_not_starve),
		cmocka_unit_test(memory_outside_is_waited_for_beside_other_jobs),
		cmocka_unit_test(preemption_takes_the_fewest_and_youngest),
		cmocka_unit_test(nothing_is_preempted_twice_for_one_claim),
		cmocka_unit_test(four_users_share_a_day),
		cmocka_unit_test(a_job_starts_when_one_of_those_ends_that_leave_room_for_it),
		cmocka_unit_test(a_job_starts_when_all_have_ended_that_are_in_its_way),
		cmocka_unit_test(a_job_that_goes_before_takes_the_room_that_is_left),
		cmocka_unit_test(ends_are_those_that_let_the_job_start),
		cmocka_unit_test(use_halves_in_a_half_life),
		cmocka_unit_test(a_job_that_fails_to_start_is_tried_less_and_less),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
