/* Simulates days of jobs on one node under the policy of carve's queues and two others, with the
 * code that the daemon decides by (core/queue.h). One line a policy and seed on stdout:
 * "POLICY<tab>SEED<tab>JOBS<tab>MEAN<tab>P99<tab>LONGEST<tab>USED": waits in mean run times, and
 * the part of the GPUs that was in use while jobs came.
 *
 *   queue_sim GPUS LOAD DAYS SEEDS queues|memory
 *
 * Jobs come at random (Poisson) and run 20 minutes on average (exponential). `queues`: a tenth of
 * them has two GPUs, a quarter one, the others half or a quarter of one. `memory`: each has a part
 * of one GPU, anything from 5 to 95 per cent; ClearML, whose queues have sizes, is left out.
 *
 * first_come: jobs in the order in which they come; one that does not fit blocks those behind it.
 * clearml: each round goes through the queues as listed, takes the first job of each, and ends at
 * one that does not fit. Rounds follow each other at once: the poll of 5 s is not counted.
 * carve: one queue; jobs have no time limits. carve_limits: they have, half as long again as they
 * run. */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/units.h"
#include "core/compute.h"
#include "core/queue.h"

#define GPUS_MAX 64u
#define JOBS_MAX 100000u
#define RUNS_MAX 1024u
#define MEAN_NS (20 * 60 * 1000000000ull)
#define DAY_NS (24 * 3600 * 1000000000ull)

/* As ClearML's example lists them: dual_gpus, quarter_gpu, half_gpu, single_gpu. */
static const struct {
	double gpus, part;
} kinds[] = {{2, 0.10}, {0.25, 0.35}, {0.5, 0.30}, {1, 0.25}};
#define KINDS ARRAY_SIZE(kinds)
#define PART_LEAST 0.05
#define PART_MOST 0.95

enum policy { FIRST_COME, CLEARML, CARVE, CARVE_LIMITS, POLICIES };
static const char *const policy_texts[] = {"first_come", "clearml", "carve", "carve_limits"};

struct arrival {
	uint64_t at_ns, run_ns;
	uint32_t kind;
	double gpus;
};

struct run {
	uint64_t end_ns;
	struct place_grant grants[PLACE_GPUS_MAX];
};

struct node {
	enum policy policy;
	uint32_t gpu_count;
	struct place_gpu gpus[GPUS_MAX];
	struct queue_job waiting[JOBS_MAX]; /* in the order in which they came */
	size_t waiting_count;
	struct queue_running running[RUNS_MAX];
	struct run runs[RUNS_MAX]; /* by the ID of what runs, less one */
	size_t running_count;
	uint64_t now_ns;
	double busy; /* GPUs in use, now */
	double used; /* GPU nanoseconds so far */
};

static struct arrival arrivals[JOBS_MAX];
static uint64_t waits[JOBS_MAX];
static size_t waits_count;
static struct node node;

/* ---- chance ------------------------------------------------------------------------------ */

static uint64_t die;

/* xorshift64*: in ]0, 1]. */
static double chance(void)
{
	die ^= die >> 12;
	die ^= die << 25;
	die ^= die >> 27;
	return ((double)((die * 0x2545f4914f6cdd1dull) >> 11) + 1) / 9007199254740992.0;
}

static uint32_t kind_draw(void)
{
	double at = chance();
	uint32_t kind = 0;

	while (kind + 1 < KINDS && at > kinds[kind].part)
		at -= kinds[kind++].part;
	return kind;
}

static size_t arrivals_draw(uint32_t gpus, double load, uint64_t days, bool memory)
{
	double mean = memory ? (PART_LEAST + PART_MOST) / 2 : 0, at = 0;
	size_t count = 0;

	for (size_t i = 0; !memory && i < KINDS; i++)
		mean += kinds[i].gpus * kinds[i].part;
	double between = (double)MEAN_NS * mean / (load * gpus);
	while (count < JOBS_MAX) {
		at += -log(chance()) * between;
		if (at > (double)(days * DAY_NS))
			break;
		struct arrival *arrival = &arrivals[count++];
		arrival->at_ns = (uint64_t)at;
		arrival->run_ns = (uint64_t)(-log(chance()) * MEAN_NS) + 1;
		arrival->kind = memory ? 0 : kind_draw();
		arrival->gpus = memory ? PART_LEAST + chance() * (PART_MOST - PART_LEAST)
				       : kinds[arrival->kind].gpus;
	}
	return count;
}

/* ---- the node ---------------------------------------------------------------------------- */

static struct place_request request_of(double gpus)
{
	if (gpus >= 1)
		return (struct place_request){
			.kind = PLACE_WHOLE, .count = (uint32_t)gpus, .strict = true};
	return (struct place_request){.kind = PLACE_FRACTION,
				      .share = (uint32_t)(gpus * SHARE_ONE),
				      .count = 1,
				      .strict = true};
}

/* A job's ID is its position among the arrivals, from 1 on; its kind is that of its arrival. */
static const struct arrival *arrival_of(const struct queue_job *job)
{
	return &arrivals[job->id - 1];
}

static void job_come(size_t number)
{
	const struct arrival *arrival = &arrivals[number];
	bool limits = node.policy == CARVE_LIMITS;

	node.waiting[node.waiting_count++] =
		(struct queue_job){.id = number + 1,
				   .order = number + 1,
				   .request = request_of(arrival->gpus),
				   .limit_ns = limits ? arrival->run_ns + arrival->run_ns / 2 : 0};
}

static void job_start(size_t at, const struct place_result *place)
{
	struct queue_job job = node.waiting[at];
	const struct arrival *arrival = arrival_of(&job);
	size_t slot = 0;

	while (node.runs[slot].end_ns)
		slot++;
	struct run *run = &node.runs[slot];
	run->end_ns = node.now_ns + arrival->run_ns;
	memcpy(run->grants, place->grant, place->count * sizeof(*run->grants));
	node.running[node.running_count++] = (struct queue_running){
		.id = slot + 1,
		.started_ns = node.now_ns,
		.ends_ns = job.limit_ns ? node.now_ns + job.limit_ns : QUEUE_NEVER,
		.grant = run->grants,
		.grant_count = place->count,
		.compute = place_compute(&job.request)};
	queue_take(node.gpus, run->grants, place->count, place_compute(&job.request));
	waits[waits_count++] = node.now_ns - arrival->at_ns;
	node.busy += arrival->gpus;
	memmove(&node.waiting[at], &node.waiting[at + 1],
		(--node.waiting_count - at) * sizeof(*node.waiting));
}

/* Starts one of the `count` jobs from `first` on. False: none can. */
static bool start_from(size_t first, size_t count)
{
	static enum queue_wait why[JOBS_MAX];
	static const struct queue_limit no_limit[1];
	struct queue_state state = {.now_ns = node.now_ns,
				    .gpus = node.gpus,
				    .gpu_count = node.gpu_count,
				    .running = node.running,
				    .running_count = node.running_count,
				    .queues = no_limit};
	struct queue_decision decision;

	if (!count)
		return false;
	queue_decide(&state, &node.waiting[first], count, &decision, why);
	if (decision.start == QUEUE_NONE)
		return false;
	job_start(first + (size_t)decision.start, &decision.place);
	return true;
}

/* True: one started, and all that come later in the round could be looked at. */
static bool clearml_round(void)
{
	bool any = false;

	for (uint32_t kind = 0; kind < KINDS; kind++) {
		size_t at = 0;

		while (at < node.waiting_count && arrival_of(&node.waiting[at])->kind != kind)
			at++;
		if (at == node.waiting_count)
			continue;
		if (!start_from(at, 1))
			return any;
		any = true;
	}
	return any;
}

static void jobs_start(void)
{
	bool more = true;

	while (more)
		more = node.policy == CLEARML ? clearml_round()
					      : start_from(0, node.policy == FIRST_COME
								      ? MIN(node.waiting_count, 1)
								      : node.waiting_count);
}

static void jobs_end(void)
{
	for (size_t i = 0; i < node.running_count;) {
		struct queue_running *running = &node.running[i];
		struct run *run = &node.runs[running->id - 1];

		if (run->end_ns > node.now_ns) {
			i++;
			continue;
		}
		for (uint32_t g = 0; g < running->grant_count; g++)
			node.busy -= (double)running->grant[g].bytes /
				     (double)node.gpus[running->grant[g].gpu].total;
		queue_give(node.gpus, running->grant, running->grant_count, running->compute);
		run->end_ns = 0;
		*running = node.running[--node.running_count];
	}
}

static uint64_t next_end(void)
{
	uint64_t next = UINT64_MAX;

	for (size_t i = 0; i < node.running_count; i++)
		next = MIN(next, node.runs[node.running[i].id - 1].end_ns);
	return next;
}

static void play(enum policy policy, uint32_t gpus, size_t count)
{
	memset(&node, 0, sizeof(node));
	waits_count = 0;
	node.policy = policy;
	node.gpu_count = gpus;
	for (uint32_t i = 0; i < gpus; i++)
		node.gpus[i] = (struct place_gpu){.total = GIB(80), .offered = true};
	for (size_t come = 0; come < count || node.running_count;) {
		uint64_t next = MIN(next_end(), come < count ? arrivals[come].at_ns : UINT64_MAX);

		if (come < count)
			node.used += node.busy * (double)(next - node.now_ns);
		node.now_ns = next;
		jobs_end();
		if (come < count && arrivals[come].at_ns == next)
			job_come(come++);
		jobs_start();
	}
}

/* ---- figures ----------------------------------------------------------------------------- */

static int by_wait(const void *a, const void *b)
{
	const uint64_t *one = a, *other = b;

	return (*one > *other) - (*one < *other);
}

static void tell(enum policy policy, unsigned long seed, size_t count)
{
	double sum = 0;

	qsort(waits, waits_count, sizeof(*waits), by_wait);
	for (size_t i = 0; i < waits_count; i++)
		sum += (double)waits[i];
	printf("%s\t%lu\t%zu\t%.4f\t%.4f\t%.4f\t%.4f\n", policy_texts[policy], seed, waits_count,
	       sum / (double)waits_count / MEAN_NS, (double)waits[waits_count * 99 / 100] / MEAN_NS,
	       (double)waits[waits_count - 1] / MEAN_NS,
	       node.used / ((double)arrivals[count - 1].at_ns * node.gpu_count));
}

int main(int argc, char **argv)
{
	bool memory = argc == 6 && !strcmp(argv[5], "memory");

	if (argc != 6 || (!memory && strcmp(argv[5], "queues") != 0)) {
		fputs("usage: queue_sim GPUS LOAD DAYS SEEDS queues|memory\n", stderr);
		return 2;
	}
	uint32_t gpus = (uint32_t)strtoul(argv[1], NULL, 10);
	double load = strtod(argv[2], NULL);
	uint64_t days = strtoull(argv[3], NULL, 10);
	unsigned long seeds = strtoul(argv[4], NULL, 10);

	if (gpus < 2 || gpus > GPUS_MAX || !(load > 0) || !days || !seeds)
		return 2;
	for (unsigned long seed = 1; seed <= seeds; seed++) {
		die = seed * 0x9e3779b97f4a7c15ull;
		size_t count = arrivals_draw(gpus, load, days, memory);

		if (!count)
			return 1;
		for (int policy = 0; policy < POLICIES; policy++) {
			if (memory && policy == CLEARML)
				continue;
			play((enum policy)policy, gpus, count);
			tell((enum policy)policy, seed, count);
		}
	}
	return 0;
}
