#include "core/queue.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- order ------------------------------------------------------------------------------- */

static int job_order(const struct queue_job *a, const struct queue_job *b)
{
	if (a->priority != b->priority)
		return a->priority > b->priority ? -1 : 1;
	if (a->use != b->use)
		return a->use < b->use ? -1 : 1;
	return (a->order > b->order) - (a->order < b->order);
}

struct turn {
	bool fair;
	uint32_t last, queues;
};

static uint32_t turn_of(const struct turn *turn, uint32_t queue)
{
	if (!turn->fair || !turn->queues)
		return queue;
	return (queue + turn->queues - 1 - turn->last % turn->queues) % turn->queues;
}

static int compare(const void *a, const void *b, void *arg)
{
	const struct queue_job *x = a, *y = b;
	uint32_t first = turn_of(arg, x->queue), second = turn_of(arg, y->queue);

	return first != second ? (first > second) - (first < second) : job_order(x, y);
}

void queue_sort(struct queue_job *jobs, size_t count, bool fair, uint32_t last, uint32_t queues)
{
	struct turn turn = {fair, last, queues};

	qsort_r(jobs, count, sizeof(*jobs), compare, &turn);
}

/* Known ends first; of unknown ones, the job that began first is taken to end first. */
static int by_end(const void *a, const void *b)
{
	const struct queue_running *x = a, *y = b;

	if (x->ends_ns != y->ends_ns)
		return x->ends_ns < y->ends_ns ? -1 : 1;
	if (x->started_ns != y->started_ns)
		return x->started_ns < y->started_ns ? -1 : 1;
	return (x->id > y->id) - (x->id < y->id);
}

/* ---- room -------------------------------------------------------------------------------- */

void queue_take(struct place_gpu *gpus, const struct place_grant *grant, uint32_t count,
		uint32_t compute)
{
	for (uint32_t i = 0; i < count; i++) {
		gpus[grant[i].gpu].promised += grant[i].bytes;
		gpus[grant[i].gpu].sessions++;
		gpus[grant[i].gpu].share += compute;
	}
}

void queue_give(struct place_gpu *gpus, const struct place_grant *grant, uint32_t count,
		uint32_t compute)
{
	for (uint32_t i = 0; i < count; i++) {
		struct place_gpu *gpu = &gpus[grant[i].gpu];

		gpu->promised -= grant[i].bytes < gpu->promised ? grant[i].bytes : gpu->promised;
		gpu->sessions -= gpu->sessions > 0;
		gpu->share -= compute < gpu->share ? compute : gpu->share;
	}
}

/* As many GPUs of the range as there are. */
static bool fits(const struct place_gpu *gpus, size_t gpu_count, const struct queue_job *job,
		 const uint8_t *allowed, struct place_result *ret)
{
	struct place_request request = job->request;
	uint32_t least =
		job->count_min && job->count_min < request.count ? job->count_min : request.count;

	if (allowed)
		request.allowed = allowed;
	for (uint32_t count = request.count; count >= least && count; count--) {
		request.count = count;
		if (place_decide(gpus, gpu_count, &request, ret) == 0)
			return true;
	}
	return false;
}

/* ---- the reservation --------------------------------------------------------------------- */

struct reservation {
	const struct queue_job *job;           /* NULL: none */
	struct place_gpu gpus[PLACE_GPUS_MAX]; /* when it begins, without it */
	struct place_request request;          /* on as many GPUs as it gets there */
	struct place_result place;
	uint64_t begins_ns, blocker;
};

static bool reservation_try(struct reservation *r, size_t gpu_count, const struct queue_job *job)
{
	struct queue_job least = *job;

	/* A range waits for the fewest GPUs that it can use. */
	if (job->count_min && job->count_min < job->request.count)
		least.request.count = job->count_min;
	if (!fits(r->gpus, gpu_count, &least, NULL, &r->place))
		return false;
	r->request = least.request;
	r->job = job;
	return true;
}

/* Finds where the job can begin first: running jobs end one after the other. Where that does not
 * do, others hold the room, and it is kept where the job would fit without them. */
static void reservation_make(struct queue_state *state, const struct queue_job *job,
			     struct reservation *r)
{
	memcpy(r->gpus, state->gpus, state->gpu_count * sizeof(*state->gpus));
	qsort(state->running, state->running_count, sizeof(*state->running), by_end);
	for (size_t i = 0; i < state->running_count; i++) {
		const struct queue_running *running = &state->running[i];

		queue_give(r->gpus, running->grant, running->grant_count, running->compute);
		if (!reservation_try(r, state->gpu_count, job))
			continue;
		r->begins_ns = running->ends_ns;
		if (r->begins_ns < state->now_ns)
			r->begins_ns = state->now_ns;
		r->blocker = running->id;
		return;
	}
	for (size_t i = 0; i < state->gpu_count; i++) {
		r->gpus[i].outside = r->gpus[i].promised = r->gpus[i].share = 0;
		r->gpus[i].sessions = 0;
	}
	r->begins_ns = QUEUE_NEVER;
	r->blocker = 0;
	(void)reservation_try(r, state->gpu_count, job);
}

/* Whether a job may start there beside the reservation. */
static bool harmless(const struct queue_state *state, const struct reservation *r,
		     const struct queue_job *job, const struct place_result *place)
{
	struct place_gpu gpus[PLACE_GPUS_MAX];
	uint8_t allowed[PLACE_GPUS_MAX] = {0};
	struct place_request request = r->request;
	struct place_result ignored;

	if (r->begins_ns != QUEUE_NEVER && job->limit_ns &&
	    job->limit_ns <= r->begins_ns - state->now_ns)
		return true;
	memcpy(gpus, r->gpus, state->gpu_count * sizeof(*gpus));
	queue_take(gpus, place->grant, place->count, place_compute(&job->request));
	for (uint32_t i = 0; i < r->place.count; i++)
		allowed[r->place.grant[i].gpu] = 1;
	request.allowed = allowed;
	return place_decide(gpus, state->gpu_count, &request, &ignored) == 0;
}

/* ---- deciding ---------------------------------------------------------------------------- */

/* Beside a reservation: where it fits best, else on the other GPUs. */
static enum queue_wait place_beside(const struct queue_state *state, const struct reservation *r,
				    const struct queue_job *job, struct place_result *ret)
{
	uint8_t others[PLACE_GPUS_MAX];

	if (!fits(state->gpus, state->gpu_count, job, NULL, ret))
		return QUEUE_WAITS_ROOM;
	if (!r->job || harmless(state, r, job, ret))
		return QUEUE_STARTS;
	for (size_t i = 0; i < state->gpu_count; i++)
		others[i] = !job->request.allowed || job->request.allowed[i];
	for (uint32_t i = 0; i < r->place.count; i++)
		others[r->place.grant[i].gpu] = 0;
	return fits(state->gpus, state->gpu_count, job, others, ret) ? QUEUE_STARTS
								     : QUEUE_WAITS_RESERVED;
}

static enum queue_wait decide_one(const struct queue_state *state, const struct reservation *r,
				  const struct queue_job *job, struct place_result *ret)
{
	const struct queue_limit *limit = state->queues ? &state->queues[job->queue] : NULL;

	if (limit && limit->most && limit->running >= limit->most)
		return QUEUE_WAITS_MOST;
	return place_beside(state, r, job, ret);
}

void queue_decide(struct queue_state *state, const struct queue_job *jobs, size_t count,
		  struct queue_decision *ret, enum queue_wait *why)
{
	struct reservation r = {0};

	ret->start = ret->head = QUEUE_NONE;
	ret->reserved_ns = QUEUE_NEVER;
	ret->blocker = 0;
	for (size_t i = 0; i < count; i++) {
		enum queue_wait wait = decide_one(state, &r, &jobs[i], &ret->place);

		if (why)
			why[i] = wait;
		if (wait == QUEUE_STARTS) {
			ret->start = (int)i;
			break;
		}
		if (wait == QUEUE_WAITS_ROOM && !r.job) {
			reservation_make(state, &jobs[i], &r);
			ret->head = r.job ? (int)i : QUEUE_NONE;
		}
	}
	if (!r.job)
		return;
	ret->reserved = r.place;
	ret->reserved_ns = r.begins_ns;
	ret->blocker = r.blocker;
}

/* ---- preempting -------------------------------------------------------------------------- */

static bool may_preempt(const struct queue_running *running, const struct queue_job *job)
{
	return running->preemptible && !running->spared && running->priority < job->priority;
}

/* The lowest priority first, of those the one that has run for the shortest time. */
static bool ends_sooner(const struct queue_running *a, const struct queue_running *b)
{
	if (a->priority != b->priority)
		return a->priority < b->priority;
	return a->started_ns > b->started_ns;
}

static size_t victims_sort(const struct queue_state *state, const struct queue_job *job,
			   size_t *victims)
{
	size_t count = 0;

	for (size_t i = 0; i < state->running_count; i++) {
		if (!may_preempt(&state->running[i], job))
			continue;
		size_t at = count++;
		for (; at && ends_sooner(&state->running[i], &state->running[victims[at - 1]]);
		     at--)
			victims[at] = victims[at - 1];
		victims[at] = i;
	}
	return count;
}

static void give_running(struct place_gpu *gpus, const struct queue_running *running)
{
	queue_give(gpus, running->grant, running->grant_count, running->compute);
}

size_t queue_preempt(struct queue_state *state, const struct queue_job *job, size_t *victims)
{
	struct place_gpu gpus[PLACE_GPUS_MAX];
	struct place_result place;
	size_t all = victims_sort(state, job, victims), count = 0, kept = 0;

	memcpy(gpus, state->gpus, state->gpu_count * sizeof(*gpus));
	while (count < all && !fits(gpus, state->gpu_count, job, NULL, &place))
		give_running(gpus, &state->running[victims[count++]]);
	if (!count || !fits(gpus, state->gpu_count, job, NULL, &place))
		return 0;
	/* Those that turned out not to matter go on. */
	for (size_t i = 0; i < count; i++) {
		const struct queue_running *running = &state->running[victims[i]];

		queue_take(gpus, running->grant, running->grant_count, running->compute);
		if (fits(gpus, state->gpu_count, job, NULL, &place))
			continue;
		give_running(gpus, running);
		victims[kept++] = victims[i];
	}
	return kept;
}

double queue_decay(double use, uint64_t elapsed_ns)
{
	return use * exp2(-(double)elapsed_ns / (double)QUEUE_HALF_LIFE_NS);
}
