#include "core/queue.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/units.h"

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

/* The room that a decision is about. */
struct room {
	enum place_policy policy;
	const struct place_gpu *gpus;
	size_t gpu_count;
	struct mig_pool *instances; /* NULL: none */
};

struct placement {
	struct place_result place;
	struct mig_decision instances; /* count 0: `place` says where */
};

/* A fraction is one of the GPU's memory units. Its compute is the hardware's, unless more or less
 * than the fraction was asked for. */
static struct mig_request instances_of(const struct place_request *from)
{
	struct mig_request ret = {.kind = MIG_ASK_BYTES,
				  .bytes = from->bytes,
				  .compute = from->compute,
				  .count = from->count,
				  .allowed = from->allowed,
				  .strict = from->strict};

	if (from->kind == PLACE_BYTES)
		return ret;
	ret.kind = MIG_ASK_SHARE;
	ret.share = from->kind == PLACE_WHOLE ? SHARE_ONE : from->share;
	ret.apart = from->kind == PLACE_WHOLE;
	if (from->kind == PLACE_WHOLE || from->compute == from->share)
		ret.compute = 0;
	return ret;
}

/* Parts of GPUs or instances: whichever wastes less (see mig_preferred). Whole GPUs are instances
 * only where there are no others. */
static bool fits_exactly(const struct room *room, const struct place_request *request,
			 struct placement *ret)
{
	struct mig_request instances = instances_of(request);
	bool cut =
		place_decide(room->policy, room->gpus, room->gpu_count, request, &ret->place) == 0;
	bool whole = request->kind == PLACE_WHOLE;

	ret->instances.count = 0;
	if (!room->instances || request->kind == PLACE_PROFILE || (cut && whole))
		return cut;
	if (mig_decide(room->instances, &instances, &ret->instances) < 0 ||
	    (cut && !mig_preferred(&ret->instances, ret->place.grant[0].bytes,
				   ret->place.tolerance_applied))) {
		ret->instances.count = 0;
		return cut;
	}
	return true;
}

/* As many GPUs of the range as there are. */
static bool fits(const struct room *room, const struct queue_job *job, const uint8_t *allowed,
		 struct placement *ret)
{
	struct place_request request = job->request;
	uint32_t least =
		job->count_min && job->count_min < request.count ? job->count_min : request.count;

	if (allowed)
		request.allowed = allowed;
	for (uint32_t count = request.count; count >= least && count; count--) {
		request.count = count;
		if (fits_exactly(room, &request, ret))
			return true;
	}
	return false;
}

/* ---- instances, to try things on ---------------------------------------------------------- */

struct instances {
	const struct queue_mig *from;
	struct mig_pool pool;
	struct mig_gpu gpu[PLACE_GPUS_MAX];
	struct mig_instance instance[PLACE_GPUS_MAX][MIG_INSTANCES_MAX];
};

static void instances_update(struct instances *in, uint32_t gpu)
{
	if (mig_gpu_update(&in->gpu[gpu], &in->pool.dies[in->gpu[gpu].die]) < 0)
		in->gpu[gpu].offered = false;
}

/* Returns its pool; NULL: there is none. */
static struct mig_pool *instances_copy(struct instances *to, const struct queue_mig *from)
{
	to->from = from;
	if (!from)
		return NULL;
	to->pool = *from->pool;
	to->pool.gpus = to->gpu;
	for (uint32_t i = 0; i < to->pool.gpu_count; i++) {
		const struct mig_gpu *gpu = &from->pool->gpus[i];

		to->gpu[i] = *gpu;
		to->gpu[i].instances = to->instance[i];
		to->gpu[i].offered |= from->changing[i];
		if (!to->gpu[i].offered)
			continue;
		memcpy(to->instance[i], gpu->instances,
		       gpu->instance_count * sizeof(*gpu->instances));
		instances_update(to, i);
	}
	return &to->pool;
}

static bool is_used(enum mig_state state)
{
	return state == MIG_BUSY || state == MIG_CREATING || state == MIG_REMOVING;
}

/* Those of a running job, or (0) of everybody for whom carve made them. */
static void instances_set(struct instances *in, uint64_t holder, enum mig_state state)
{
	for (uint32_t i = 0; in->from && i < in->pool.gpu_count; i++) {
		if (!in->gpu[i].offered)
			continue;
		for (uint32_t at = 0; at < in->gpu[i].instance_count; at++)
			if (holder ? in->from->holder[i][at] == holder
				   : is_used(in->instance[i][at].state))
				in->instance[i][at].state = state;
		instances_update(in, i);
	}
}

/* Its number on the GPU; -1: there is no room to note it. */
static int instances_add(struct instances *in, const struct mig_choice *choice)
{
	struct mig_gpu *gpu = &in->gpu[choice->gpu];
	struct mig_instance *of = in->instance[choice->gpu];
	uint32_t at = choice->instance;

	for (uint32_t i = 0; choice->step == MIG_REPLACE && i < gpu->instance_count; i++)
		if (choice->destroy >> i & 1)
			of[i].state = MIG_GONE;
	if (choice->step == MIG_CREATE || choice->step == MIG_REPLACE) {
		for (at = 0; at < gpu->instance_count && of[at].state != MIG_GONE; at++)
			;
		if (at == MIG_INSTANCES_MAX)
			return -1;
		if (at == gpu->instance_count)
			gpu->instance_count++;
		of[at] = (struct mig_instance){
			.profile = choice->profile,
			.start = choice->start,
			.size = in->pool.dies[gpu->die].profile[choice->profile].size};
	}
	of[at].state = MIG_BUSY;
	instances_update(in, choice->gpu);
	return (int)at;
}

/* ---- the reservation --------------------------------------------------------------------- */

struct reservation {
	const struct queue_job *job;           /* NULL: none */
	struct place_gpu gpus[PLACE_GPUS_MAX]; /* when it begins, without it */
	struct instances instances;            /* likewise */
	struct place_request request;          /* on as many GPUs as it gets there */
	struct placement place;
	uint64_t begins_ns, blocker;
};

static bool reservation_try(struct reservation *r, const struct queue_state *state,
			    const struct queue_job *job)
{
	const struct room room = {state->policy, r->gpus, state->gpu_count,
				  r->instances.from ? &r->instances.pool : NULL};
	struct queue_job least = *job;

	/* A range waits for the fewest GPUs that it can use. */
	if (job->count_min && job->count_min < job->request.count)
		least.request.count = job->count_min;
	if (!fits(&room, &least, NULL, &r->place))
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
	(void)instances_copy(&r->instances, state->mig);
	qsort(state->running, state->running_count, sizeof(*state->running), by_end);
	for (size_t i = 0; i < state->running_count; i++) {
		const struct queue_running *running = &state->running[i];

		queue_give(r->gpus, running->grant, running->grant_count, running->compute);
		instances_set(&r->instances, running->id, MIG_IDLE);
		if (!reservation_try(r, state, job))
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
	instances_set(&r->instances, 0, MIG_IDLE);
	r->begins_ns = QUEUE_NEVER;
	r->blocker = 0;
	(void)reservation_try(r, state, job);
}

/* Whether there is an instance for the reservation beside these. */
static bool instances_harmless(const struct reservation *r, const struct mig_decision *chosen)
{
	struct mig_request request = instances_of(&r->request);
	struct mig_decision ignored;
	struct instances with = r->instances;

	with.pool.gpus = with.gpu;
	for (uint32_t i = 0; i < with.pool.gpu_count; i++)
		with.gpu[i].instances = with.instance[i];
	for (uint32_t i = 0; i < chosen->count; i++)
		if (instances_add(&with, &chosen->choice[i]) < 0)
			return false;
	return mig_decide(&with.pool, &request, &ignored) == 0;
}

/* Whether a job may start there beside the reservation. */
static bool harmless(const struct queue_state *state, const struct reservation *r,
		     const struct queue_job *job, const struct placement *chosen)
{
	const struct place_result *place = &chosen->place;
	struct place_gpu gpus[PLACE_GPUS_MAX];
	uint8_t allowed[PLACE_GPUS_MAX] = {0};
	struct place_request request = r->request;
	struct place_result ignored;

	if (r->begins_ns != QUEUE_NEVER && job->limit_ns &&
	    job->limit_ns <= r->begins_ns - state->now_ns)
		return true;
	if (chosen->instances.count || r->place.instances.count)
		return !chosen->instances.count || !r->place.instances.count ||
		       instances_harmless(r, &chosen->instances);
	memcpy(gpus, r->gpus, state->gpu_count * sizeof(*gpus));
	queue_take(gpus, place->grant, place->count, place_compute(&job->request));
	for (uint32_t i = 0; i < r->place.place.count; i++)
		allowed[r->place.place.grant[i].gpu] = 1;
	request.allowed = allowed;
	return place_decide(state->policy, gpus, state->gpu_count, &request, &ignored) == 0;
}

/* ---- deciding ---------------------------------------------------------------------------- */

static void reserved_gpus_close(const struct placement *place, uint8_t *flags)
{
	for (uint32_t i = 0; i < place->instances.count; i++)
		flags[place->instances.choice[i].gpu] = 0;
	for (uint32_t i = 0; !place->instances.count && i < place->place.count; i++)
		flags[place->place.grant[i].gpu] = 0;
}

/* Beside a reservation: where it fits best, else on the other GPUs. */
static enum queue_wait place_beside(const struct queue_state *state, const struct reservation *r,
				    const struct queue_job *job, struct placement *ret)
{
	const struct room room = {state->policy, state->gpus, state->gpu_count,
				  state->mig ? state->mig->pool : NULL};
	uint8_t others[PLACE_GPUS_MAX];

	if (!fits(&room, job, NULL, ret))
		return QUEUE_WAITS_ROOM;
	if (!r->job || harmless(state, r, job, ret))
		return QUEUE_STARTS;
	for (size_t i = 0; i < state->gpu_count; i++)
		others[i] = !job->request.allowed || job->request.allowed[i];
	reserved_gpus_close(&r->place, others);
	return fits(&room, job, others, ret) ? QUEUE_STARTS : QUEUE_WAITS_RESERVED;
}

static enum queue_wait decide_one(const struct queue_state *state, const struct reservation *r,
				  const struct queue_job *job, struct placement *ret)
{
	const struct queue_limit *limit = state->queues ? &state->queues[job->queue] : NULL;

	if (limit && limit->most && limit->running >= limit->most)
		return QUEUE_WAITS_MOST;
	return place_beside(state, r, job, ret);
}

/* The first of the jobs that may start, and where; QUEUE_NONE. `skip` (or NULL) has a flag for each
 * job that is none any more. The rest of *r is set only where it has a job: it is large. */
static int start_find(struct queue_state *state, const struct queue_job *jobs, size_t count,
		      const uint8_t *skip, struct reservation *r, struct placement *place,
		      int *ret_head, enum queue_wait *why)
{
	r->job = NULL;
	*ret_head = QUEUE_NONE;
	for (size_t i = 0; i < count; i++) {
		if (skip && skip[i])
			continue;
		enum queue_wait wait = decide_one(state, r, &jobs[i], place);

		if (why)
			why[i] = wait;
		if (wait == QUEUE_STARTS)
			return (int)i;
		if (wait == QUEUE_WAITS_ROOM && !r->job) {
			reservation_make(state, &jobs[i], r);
			*ret_head = r->job ? (int)i : QUEUE_NONE;
		}
	}
	return QUEUE_NONE;
}

void queue_decide(struct queue_state *state, const struct queue_job *jobs, size_t count,
		  struct queue_decision *ret, enum queue_wait *why)
{
	struct reservation r;
	struct placement place;

	ret->instances.count = 0;
	ret->reserved_ns = QUEUE_NEVER;
	ret->blocker = 0;
	ret->start = start_find(state, jobs, count, NULL, &r, &place, &ret->head, why);
	if (ret->start != QUEUE_NONE) {
		ret->place = place.place;
		ret->instances = place.instances;
	}
	if (!r.job)
		return;
	ret->reserved = r.place.place;
	if (r.place.instances.count)
		ret->reserved.count = 0;
	ret->reserved_ns = r.begins_ns;
	ret->blocker = r.blocker;
}

/* ---- explaining -------------------------------------------------------------------------- */

/* Jobs that start in one trial, at most. */
#define TRIAL_STARTS_MAX 32u

/* The GPUs and the jobs that run, after the ends that are tried and the starts that follow. */
struct trial {
	struct place_gpu gpus[PLACE_GPUS_MAX];
	struct queue_limit queues[QUEUE_LIST_MAX];
	struct queue_mig mig;
	struct instances instances;
	struct queue_running running[QUEUE_ENDS_MAX + TRIAL_STARTS_MAX];
	struct place_result started[TRIAL_STARTS_MAX];
	size_t starts;
};

/* The job that is explained, and the running jobs that have ended in the next trial. */
struct explaining {
	const struct queue_state *state;
	const struct queue_job *jobs;
	size_t of;
	uint8_t *started;
	struct queue_running running[QUEUE_ENDS_MAX]; /* by_end() */
	bool gone[QUEUE_ENDS_MAX];
	bool overflow; /* more jobs started than a trial has room for */
};

static void trial_end(struct trial *t, const struct queue_running *running)
{
	queue_give(t->gpus, running->grant, running->grant_count, running->compute);
	if (running->queue < QUEUE_LIST_MAX && t->queues[running->queue].running)
		t->queues[running->queue].running--;
	if (!t->instances.from)
		return;
	instances_set(&t->instances, running->id, MIG_IDLE);
	for (uint32_t i = 0; i < t->instances.pool.gpu_count; i++)
		for (uint32_t at = 0; at < MIG_INSTANCES_MAX; at++)
			if (t->mig.holder[i][at] == running->id)
				t->mig.holder[i][at] = 0;
}

static struct queue_state trial_begin(struct trial *t, const struct explaining *e)
{
	const struct queue_state *from = e->state;
	struct queue_state ret = *from;

	t->starts = 0;
	memcpy(t->gpus, from->gpus, from->gpu_count * sizeof(*t->gpus));
	memset(t->queues, 0, sizeof(t->queues));
	if (from->queues)
		memcpy(t->queues, from->queues,
		       MIN(from->queue_count, QUEUE_LIST_MAX) * sizeof(*t->queues));
	if (from->mig)
		t->mig = *from->mig;
	t->mig.pool = instances_copy(&t->instances, from->mig);
	if (from->mig)
		t->instances.from = &t->mig;
	ret.gpus = t->gpus;
	ret.queues = t->queues;
	ret.mig = from->mig ? &t->mig : NULL;
	ret.running = t->running;
	ret.running_count = 0;
	for (size_t i = 0; i < from->running_count; i++)
		if (e->gone[i])
			trial_end(t, &e->running[i]);
		else
			t->running[ret.running_count++] = e->running[i];
	return ret;
}

static void trial_start(struct trial *t, struct queue_state *state, const struct queue_job *job,
			const struct placement *place)
{
	struct place_result *started = &t->started[t->starts++];

	*started = place->place;
	if (place->instances.count)
		started->count = 0;
	t->queues[job->queue].running++;
	queue_take(t->gpus, started->grant, started->count, place_compute(&job->request));
	for (uint32_t i = 0; i < place->instances.count; i++) {
		const struct mig_choice *choice = &place->instances.choice[i];
		int at = instances_add(&t->instances, choice);

		if (at >= 0)
			t->mig.holder[choice->gpu][at] = job->id;
	}
	state->running[state->running_count++] = (struct queue_running){
		.id = job->id,
		.started_ns = state->now_ns,
		.ends_ns = job->limit_ns ? state->now_ns + job->limit_ns : QUEUE_NEVER,
		.grant = started->grant,
		.grant_count = started->count,
		.compute = place_compute(&job->request),
		.queue = job->queue,
	};
}

/* Whether the job starts when the running jobs that are gone have ended, and no others. */
static bool starts_then(struct explaining *e)
{
	struct trial t;
	struct queue_state state = trial_begin(&t, e);
	struct reservation r;
	struct placement place;
	int head;

	memset(e->started, 0, e->of + 1);
	for (;;) {
		int next =
			start_find(&state, e->jobs, e->of + 1, e->started, &r, &place, &head, NULL);

		if (next == QUEUE_NONE)
			return false;
		if (next == (int)e->of)
			return true;
		if (t.starts == TRIAL_STARTS_MAX) {
			e->overflow = true;
			return false;
		}
		e->started[next] = 1;
		trial_start(&t, &state, &e->jobs[next], &place);
	}
}

static void ends_note(struct queue_ends *ends, const struct explaining *e, size_t running)
{
	ends->id[ends->count++] = e->running[running].id;
}

/* Notes the running jobs whose end alone is enough. */
static void ends_any(struct explaining *e, struct queue_ends *ret)
{
	for (size_t i = 0; i < e->state->running_count; i++) {
		e->gone[i] = true;
		if (starts_then(e))
			ends_note(ret, e, i);
		e->gone[i] = false;
	}
}

/* Notes running jobs that have to end together: in the order of their ends as many as it takes,
 * without those that it does not take. Notes none if all of them are not enough. */
static void ends_all(struct explaining *e, struct queue_ends *ret)
{
	size_t count = e->state->running_count, last = 0;

	for (; last < count; last++) {
		e->gone[last] = true;
		if (starts_then(e))
			break;
	}
	if (last == count)
		return;
	for (size_t i = last; i-- > 0;) {
		e->gone[i] = false;
		e->gone[i] = !starts_then(e);
	}
	ret->all = true;
	for (size_t i = 0; i <= last; i++)
		if (e->gone[i])
			ends_note(ret, e, i);
}

static bool ends_have(const struct queue_ends *ends, uint64_t id)
{
	for (size_t i = 0; i < ends->count; i++)
		if (ends->id[i] == id)
			return true;
	return false;
}

/* Whether the job starts in no other way: not when all but these have ended, or, where all of them
 * have to end, all but one of them. */
static bool ends_are_exact(struct explaining *e, const struct queue_ends *ends)
{
	size_t count = e->state->running_count;
	bool others = false;

	for (size_t i = 0; i < count; i++)
		e->gone[i] = ends->all || !ends_have(ends, e->running[i].id);
	if (!ends->all)
		return !starts_then(e);
	for (size_t i = 0; i < count && !others; i++) {
		if (!ends_have(ends, e->running[i].id))
			continue;
		e->gone[i] = false;
		others = starts_then(e);
		e->gone[i] = true;
	}
	return !others;
}

bool queue_explain(const struct queue_state *state, const struct queue_job *jobs, size_t of,
		   uint8_t *started, size_t looks, struct queue_ends *ret)
{
	struct explaining e = {.state = state, .jobs = jobs, .of = of, .started = started};

	*ret = (struct queue_ends){0};
	/* A trial looks at all jobs, and there are some four trials for each running one. */
	if (state->running_count > QUEUE_ENDS_MAX || (of + 1) * state->running_count * 4 > looks)
		return false;
	memcpy(e.running, state->running, state->running_count * sizeof(*e.running));
	qsort(e.running, state->running_count, sizeof(*e.running), by_end);
	ends_any(&e, ret);
	if (!ret->count)
		ends_all(&e, ret);
	ret->exact = ret->count && ends_are_exact(&e, ret);
	return ret->count && !e.overflow;
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

static void give_running(struct place_gpu *gpus, struct instances *instances,
			 const struct queue_running *running)
{
	queue_give(gpus, running->grant, running->grant_count, running->compute);
	instances_set(instances, running->id, MIG_IDLE);
}

size_t queue_preempt(struct queue_state *state, const struct queue_job *job, size_t *victims)
{
	struct place_gpu gpus[PLACE_GPUS_MAX];
	struct instances instances;
	struct placement place;
	const struct room room = {state->policy, gpus, state->gpu_count,
				  instances_copy(&instances, state->mig)};
	size_t all = victims_sort(state, job, victims), count = 0, kept = 0;

	memcpy(gpus, state->gpus, state->gpu_count * sizeof(*gpus));
	while (count < all && !fits(&room, job, NULL, &place))
		give_running(gpus, &instances, &state->running[victims[count++]]);
	if (!count || !fits(&room, job, NULL, &place))
		return 0;
	/* Those that turned out not to matter go on. */
	for (size_t i = 0; i < count; i++) {
		const struct queue_running *running = &state->running[victims[i]];

		queue_take(gpus, running->grant, running->grant_count, running->compute);
		instances_set(&instances, running->id, MIG_BUSY);
		if (fits(&room, job, NULL, &place))
			continue;
		give_running(gpus, &instances, running);
		victims[kept++] = victims[i];
	}
	return kept;
}

uint64_t queue_again_ns(unsigned failures)
{
	return 1000000000ull << MIN(failures, 5u);
}

double queue_decay(double use, uint64_t elapsed_ns)
{
	return use * exp2(-(double)elapsed_ns / (double)QUEUE_HALF_LIFE_NS);
}
