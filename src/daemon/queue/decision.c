/* Which jobs start next. When something changed, decision_make() goes through the agents. It
 * collects the room on an agent's GPUs, the jobs that run there, and the kinds of jobs that are
 * ready. Then it asks core/queue.h, which is pure, for one decision. That is the job that starts,
 * or the job that goes first and has a placement reserved. The starter starts the job, and the next
 * decision sees it run. A decision that finds no room may end jobs that are preemptible.
 *
 * Users have equal parts in a decision: the oldest kinds of each, so that nobody's many kinds keep
 * out another's. A decision is for all users, so it is in nobody's turn. It takes FAIR_STEP_NS of
 * the loop, and the rest follows in the next round. Figures of the driver that are too old are
 * asked for first. decision_explain() tries out the same decision to say what a job waits for. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "core/queue.h"
#include "core/queue_pods.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/fair.h"
#include "daemon/mig/mig.h"
#include "daemon/queue/agents.h"
#include "daemon/queue/decision.h"
#include "daemon/queue/job_ender.h"
#include "daemon/queue/job_starter.h"
#include "daemon/queue/job_table.h"
#include "daemon/queue/job_why.h"
#include "daemon/queue/queue_context.h"
#include "daemon/queue/queue_pods.h"
#include "daemon/session/sessions.h"
#include "daemon/waiting/waiting.h"

/* As for sessions (waiting.c): older figures of the driver are not decided on, nor older claims. */
#define SAMPLE_FRESH_NS 200000000ull
/* Kinds of ready jobs that are looked at in one round. */
#define CANDIDATES_MAX 1024u
/* And this many kinds of one user's, whether they are ready or not. */
#define KINDS_LOOKED_AT 4096u
/* Looks at jobs to explain one: some 1 ms of the loop. Looks at instances take longer. */
#define EXPLAIN_LOOKS 4096u
#define EXPLAIN_LOOKS_MIG 512u
/* Jobs that wait beside it, at most. To size each takes some microseconds. */
#define EXPLAINED_JOBS 256u
/* Jobs of an owner whose shims are asked for at a time. They have their slices already, and the
 * owner's other requests of the launcher come behind them. */
#define STARTS_MOST 16u

/* ---- one agent ---------------------------------------------------------------------------- */

struct round {
	struct queues *q;
	struct agent *agent;
	struct place_gpu gpus[GPUS_MAX];
	uint8_t allowed[PLACE_GPUS_MAX];
	struct queue_job jobs[CANDIDATES_MAX];
	enum queue_wait why[CANDIDATES_MAX];
	size_t job_count;
	struct queue_limit limits[QUEUE_LIST_MAX];
	struct queue_mig mig; /* pool NULL: none of the agent's GPUs gives out instances */
	struct queue_running *running;
	size_t running_count;
};

/* The one that there is: it is large, and there is one thread. Its `running` is to be freed. NULL:
 * no memory. */
static struct round *round_begin(struct queues *q, struct agent *agent)
{
	static struct round round;

	round.q = q;
	round.agent = agent;
	round.running = calloc((size_t)q->jobs->running.count + 1, sizeof(*round.running));
	return round.running ? &round : NULL;
}

static bool kind_waits(struct queue_bucket *bucket, enum job_wait why)
{
	bucket->wait = why;
	return false;
}

/* True: *ret is the job, as core/queue.h wants it. */
static bool job_look(const struct round *round, struct queue_bucket *bucket, const struct job *job,
		     int position, struct queue_job *ret)
{
	*ret = (struct queue_job){.id = (uint64_t)job->record.id,
				  .order = (uint64_t)job_id_rank(job->record.id),
				  .queue = (uint32_t)position,
				  .priority = bucket->priority,
				  .limit_ns = job->spec->limit_ns};
	if (agent_request(round->q, round->agent, (uint32_t)position, job->spec, &ret->request,
			  &ret->count_min) < 0)
		return kind_waits(bucket, JOB_WAITS_SIZE);
	ret->request.allowed = round->allowed;
	return true;
}

/* Ready jobs of one kind. True: *ret is the first of them that can start, for all that is known
 * without a look at the GPUs. False: the bucket's `wait` says why none can. */
static bool kind_look(const struct round *round, struct queue_bucket *bucket, int position,
		      struct queue_job *ret)
{
	uint64_t now = now_monotonic_ns();
	struct job *job = bucket->list.first;
	bool fails = false;

	if (round->agent->queue[position].draining)
		return kind_waits(bucket, JOB_WAITS_DRAIN);
	if (bucket->user->owner->starting >= STARTS_MOST)
		return kind_waits(bucket, JOB_WAITS_TURN);
	if (bucket->array && bucket->array->running >= bucket->array->most)
		return kind_waits(bucket, JOB_WAITS_ARRAY);
	/* Why is known since it was looked at last. */
	if (bucket->again_ns > now || (job->array && job->array->halts))
		return false;
	for (; job && (job_is_making(job) || job->again_ns > now); job = job->next)
		fails |= job->again_ns > now;
	if (!job)
		return kind_waits(bucket, fails ? JOB_WAITS_FAILURE : JOB_WAITS_INSTANCE);
	if (!job_look(round, bucket, job, position, ret))
		return false;
	bucket->wait = JOB_WAITS_TURN;
	return true;
}

static bool has_part(const struct round *round, const struct queue_use *user)
{
	return user->buckets && agent_runs_for(round->agent, user->uid);
}

/* Users have equal parts, those who count to one owner one together. The number of users. */
static uint32_t parts_share(const struct round *round)
{
	uint32_t users = 0, owners = 0;

	for (struct queue_use *user = round->q->jobs->uses; user; user = user->next)
		user->part = 0;
	for (struct queue_use *user = round->q->jobs->uses; user; user = user->next) {
		if (!has_part(round, user))
			continue;
		users++;
		owners += !user->owner->part;
		user->owner->part = 1;
	}
	uint32_t part = owners ? MAX(CANDIDATES_MAX / owners, 1) : 0;
	for (struct queue_use *user = round->q->jobs->uses; user; user = user->next)
		if (user->part)
			user->part = part;
	return users;
}

/* Kinds of a user's jobs, the oldest first: nobody's many kinds keep out another's. */
static void user_collect(struct round *round, const struct queue_use *user, int64_t now)
{
	uint32_t *part = &user->owner->part;
	double use = *part ? queue_use_of(user, now) : 0;
	uint32_t looks = 0;

	for (struct queue_bucket *b = user->buckets; b && looks < KINDS_LOOKED_AT; b = b->next) {
		int position = agent_queue_position(round->agent, b->queue);

		if (!*part || round->job_count == CANDIDATES_MAX)
			return;
		looks++;
		if (position < 0)
			continue;
		struct queue_job *job = &round->jobs[round->job_count];
		if (!kind_look(round, b, position, job))
			continue;
		job->use = use;
		round->job_count++;
		(*part)--;
	}
}

static void candidates_collect(struct round *round)
{
	int64_t now = now_realtime_ns();

	round->job_count = 0;
	uint32_t users = parts_share(round), at = 0, first = 0;

	if (users > CANDIDATES_MAX)
		first = round->q->first_user = (round->q->first_user + CANDIDATES_MAX) % users;
	for (int turn = 0; turn < 2 && users; turn++, at = 0)
		for (const struct queue_use *user = round->q->jobs->uses; user; user = user->next)
			if (has_part(round, user) && (at++ < first) == (turn == 1))
				user_collect(round, user, now);
	queue_sort(round->jobs, round->job_count, round->agent->fair, round->agent->last,
		   round->agent->queue_count);
}

static uint32_t position_in(const struct agent *agent, const struct job *job)
{
	int position = strcmp(job->record.agent, agent->id) != 0
			       ? -1
			       : agent_queue_position(agent, job->record.queue);

	return position < 0 ? QUEUE_NO_POSITION : (uint32_t)position;
}

static void running_collect(struct round *round, int64_t claim)
{
	const struct queues *q = round->q;

	const struct agent *agent = round->agent;

	round->running_count = 0;
	for (const struct job *job = q->jobs->running.first; job; job = job->next) {
		/* Pods have no part in who gets a GPU here, and of pods those of one agent count.
		 */
		if (agent->pods ? strcmp(job->record.agent, agent->id) != 0
				: job_is_pod(&job->record))
			continue;
		round->running[round->running_count++] = (struct queue_running){
			.id = (uint64_t)job->record.id,
			.started_ns = job->started_ns,
			.ends_ns = job->spec->limit_ns ? job->started_ns + job->spec->limit_ns
						       : QUEUE_NEVER,
			.grant = job->grants,
			.grant_count = job->grant_count,
			.compute = job->compute,
			.priority = job->record.priority,
			.preemptible = job->spec->requeue && !*job->record.ending,
			.spared = claim && job->claim == claim,
			.queue = position_in(agent, job),
		};
	}
}

static void limits_collect(struct round *round)
{
	for (uint32_t i = 0; i < round->agent->queue_count; i++)
		round->limits[i] = (struct queue_limit){round->agent->queue[i].running,
							round->agent->queue[i].spec.most};
}

static uint64_t job_id_of_session(const struct queues *q, const char *session)
{
	const struct job *job = *session ? job_of_session(q, session) : NULL;

	return job ? (uint64_t)job->record.id : 0;
}

/* GPUs with the MIG role: what their instances are, and whose. */
static void instances_collect(struct round *round)
{
	const struct queues *q = round->q;
	struct mig_pool *pool = mig_pool_of(q->host.sessions->mig);

	round->mig.pool = NULL;
	for (uint32_t i = 0; pool && i < q->host.pool->count; i++) {
		round->allowed[i] &= !mig_has_role(q->host.sessions->mig, i) ||
				     waiting_lets_grow(q->host.waiting, i);
		round->mig.changing[i] = false;
		if (!round->allowed[i] || !mig_has_role(q->host.sessions->mig, i))
			continue;
		round->mig.pool = pool;
		round->mig.changing[i] = mig_gpu_changing(q->host.sessions->mig, i);
		for (uint32_t at = 0; at < pool->gpus[i].instance_count; at++)
			round->mig.holder[i][at] = job_id_of_session(
				round->q, mig_holder(q->host.sessions->mig, i, at));
	}
}

/* Whether room is being made: until it is there nobody knows what is missing. */
static bool instances_change(const struct round *round)
{
	bool any = false;

	for (uint32_t i = 0; round->mig.pool && i < round->q->host.pool->count; i++)
		any |= round->mig.changing[i];
	return any;
}

static void gpus_collect(struct round *round)
{
	const struct queues *q = round->q;

	pool_place_gpus(q->host.pool, round->gpus);
	agent_allowed(q, round->agent, round->allowed);
	instances_collect(round);
	/* Requests for sessions that were passed too often go first there. */
	for (uint32_t i = 0; i < q->host.pool->count; i++)
		round->gpus[i].offered &= waiting_lets_grow(q->host.waiting, i);
}

static void waits_note(struct round *round, size_t count)
{
	static const enum job_wait of[] = {
		[QUEUE_STARTS] = JOB_WAITS_TURN,
		[QUEUE_WAITS_ROOM] = JOB_WAITS_ROOM,
		[QUEUE_WAITS_RESERVED] = JOB_WAITS_RESERVED,
		[QUEUE_WAITS_MOST] = JOB_WAITS_MOST,
	};

	for (size_t i = 0; i < count; i++) {
		struct job *job = job_find(round->q, (int64_t)round->jobs[i].id);

		if (job && job->list->bucket)
			job->list->bucket->wait = of[round->why[i]];
	}
}

static bool claims_already(const struct queues *q, int64_t claim)
{
	for (const struct job *job = q->jobs->running.first; job; job = job->next)
		if (job->claim == claim && *job->record.ending)
			return true;
	return false;
}

static size_t victims_choose(struct round *round, struct queue_state *state,
			     const struct queue_job *head, size_t *victims)
{
	if (!round->agent->pods)
		return queue_preempt(state, head, victims);
	int position = queue_pods_preempt(round->running, round->running_count, head);
	if (position == QUEUE_NONE)
		return 0;
	victims[0] = (size_t)position;
	return 1;
}

static struct queue_state state_of(struct round *round)
{
	return (struct queue_state){.now_ns = now_monotonic_ns(),
				    .mig = round->mig.pool ? &round->mig : NULL,
				    .policy = round->q->host.pool->policy,
				    .gpus = round->gpus,
				    .gpu_count = round->q->host.pool->count,
				    .running = round->running,
				    .running_count = round->running_count,
				    .queues = round->limits,
				    .queue_count = round->agent->queue_count};
}

static void preempt(struct round *round, const struct queue_job *head)
{
	char why[JOB_REASON_SIZE], id[JOB_ID_TEXT];

	if (claims_already(round->q, (int64_t)head->id) || instances_change(round))
		return;
	running_collect(round, (int64_t)head->id);
	struct queue_state state = state_of(round);
	size_t *victims = calloc(round->running_count + 1, sizeof(*victims));
	size_t count = victims ? victims_choose(round, &state, head, victims) : 0;
	snprintf(why, sizeof(why), QUEUE_PREEMPTED_BY "%s",
		 queue_job_id_text(round->q, (int64_t)head->id, id));
	for (size_t i = 0; i < count; i++) {
		struct job *job = job_find(round->q, (int64_t)round->running[victims[i]].id);

		if (!job)
			continue;
		job->claim = (int64_t)head->id;
		job_end_begin(job, JOB_QUEUED, why);
	}
	free(victims);
}

static void head_note(struct round *round, const struct queue_decision *decision)
{
	struct agent *agent = round->agent;
	const struct queue_job *head =
		decision->head == QUEUE_NONE ? NULL : &round->jobs[decision->head];

	agent->head = head ? (int64_t)head->id : 0;
	agent->reserved_ns = decision->reserved_ns;
	agent->blocker = (int64_t)decision->blocker;
}

/* One decision. True: something changed, and there may be more. */
static bool round_run(struct round *round)
{
	struct queue_decision decision;

	limits_collect(round);
	round->mig.pool = NULL;
	if (!round->agent->pods)
		gpus_collect(round);
	candidates_collect(round);
	if (!round->job_count)
		return false;
	running_collect(round, 0);
	struct queue_state state = state_of(round);
	if (round->agent->pods)
		queue_pods_decide(round->limits, agent_pods_running(round->agent),
				  round->agent->pods->most, round->jobs, round->job_count,
				  &decision, round->why);
	else
		queue_decide(&state, round->jobs, round->job_count, &decision, round->why);
	head_note(round, &decision);
	bool starts = decision.start != QUEUE_NONE;
	waits_note(round, starts ? (size_t)decision.start : round->job_count);
	if (!starts) {
		if (decision.head != QUEUE_NONE)
			preempt(round, &round->jobs[decision.head]);
		return false;
	}
	const struct queue_job *chosen = &round->jobs[decision.start];
	struct job *job = job_find(round->q, (int64_t)chosen->id);
	int rc = job ? job_start(job, round->agent, chosen->queue, &chosen->request, &decision)
		     : -ENOENT;
	if (job)
		job_start_judge(job, round->agent, rc);
	return job != NULL;
}

/* ---- explaining a job ---------------------------------------------------------------------- */

/* All jobs of these kinds, and not the first ones alone: they go one after the other. False: there
 * are too many. */
static bool user_collect_all(struct round *round, const struct queue_use *user, int64_t now)
{
	double use = queue_use_of(user, now);
	uint64_t monotonic = now_monotonic_ns();

	for (struct queue_bucket *b = user->buckets; b; b = b->next) {
		int position = agent_queue_position(round->agent, b->queue);

		if (position < 0 || round->agent->queue[position].draining ||
		    b->again_ns > monotonic)
			continue;
		for (struct job *job = b->list.first; job; job = job->next) {
			if (round->job_count == EXPLAINED_JOBS)
				return false;
			if (job->again_ns > monotonic ||
			    !job_look(round, b, job, position, &round->jobs[round->job_count]))
				continue;
			round->jobs[round->job_count++].use = use;
		}
	}
	return true;
}

/* The position of the job among those that wait; -1: there are too many. */
static int round_explain(struct round *round, const struct job *job)
{
	int64_t now = now_realtime_ns();

	limits_collect(round);
	round->mig.pool = NULL;
	gpus_collect(round);
	running_collect(round, 0);
	round->job_count = 0;
	for (const struct queue_use *user = round->q->jobs->uses; user; user = user->next)
		if (has_part(round, user) && !user_collect_all(round, user, now))
			return -1;
	queue_sort(round->jobs, round->job_count, round->agent->fair, round->agent->last,
		   round->agent->queue_count);
	for (size_t i = 0; i < round->job_count; i++)
		if (round->jobs[i].id == (uint64_t)job->record.id)
			return (int)i;
	return -1;
}

bool decision_explain(const struct job *job, struct queue_ends *ret)
{
	uint8_t started[EXPLAINED_JOBS];
	uint32_t position;
	const struct queue_bucket *bucket = job->list ? job->list->bucket : NULL;
	struct agent *agent =
		agent_serving(job->queues, job->record.queue, job->record.uid, &position);
	bool known = false;

	if (!bucket || !agent || agent->pods ||
	    (bucket->wait != JOB_WAITS_ROOM && bucket->wait != JOB_WAITS_RESERVED))
		return false;
	struct round *round = round_begin(job->queues, agent);
	if (!round)
		return false;
	int of = round_explain(round, job);
	struct queue_state state = state_of(round);
	if (of >= 0)
		known = queue_explain(&state, round->jobs, (size_t)of, started,
				      state.mig ? EXPLAIN_LOOKS_MIG : EXPLAIN_LOOKS, ret);
	free(round->running);
	return known;
}

/* ---- the agents ----------------------------------------------------------------------------- */

/* Many jobs that start, or end here, as those of a long array, do so in parts: one, and more until
 * `end`. True: there is more to do. */
static bool agent_run(struct queues *q, struct agent *agent, uint64_t end)
{
	agent->head = agent->blocker = 0;
	do {
		struct round *round = round_begin(q, agent);

		if (!round)
			return false;
		bool more = round_run(round);
		free(round->running);
		if (!more)
			return false;
	} while (now_monotonic_ns() < end);
	return true;
}

/* Whether figures are new enough; else they are asked for. */
static bool figures_fresh(struct queues *q)
{
	struct pool *pool = q->host.pool;

	if (q->sample > pool->done)
		return false;
	if (q->sample || (pool->done && now_monotonic_ns() - pool->done_ns <= SAMPLE_FRESH_NS)) {
		q->sample = 0;
		return true;
	}
	q->sample = pool_refresh(pool, POOL_ALL);
	return false;
}

void decision_make(struct queues *q)
{
	bool gpus = q->host.pool->state == POOL_READY, any = false, more = false;
	uint64_t end = now_monotonic_ns() + FAIR_STEP_NS;

	q->starts_more = false;
	if (!q->dirty || job_store_holds(q->store) || !*q->host.ready || q->host.sessions->drains ||
	    q->host.pool->state == POOL_STARTING)
		return;
	for (struct agent *agent = q->agents; agent && q->jobs->buckets; agent = agent->next) {
		/* Pods need no GPU of this host, nor any figures. */
		if (agent->pods)
			more |= agent_run(q, agent, end);
		any |= !agent->pods;
	}
	if (any && gpus && q->jobs->buckets && !figures_fresh(q))
		return;
	q->dirty = false;
	if (any && gpus && q->jobs->buckets) {
		/* A look costs a dozen system calls for each GPU. */
		pool_claim_since(q->host.pool, SAMPLE_FRESH_NS);
		for (struct agent *agent = q->agents; agent; agent = agent->next)
			if (!agent->pods)
				more |= agent_run(q, agent, end);
	}
	q->starts_more = more;
	q->dirty |= more;
}

bool decision_waits(const struct queues *q)
{
	uint32_t looks = 0;

	for (const struct agent *agent = q->agents; agent && q->jobs->buckets; agent = agent->next)
		for (const struct queue_use *user = q->jobs->uses; user; user = user->next) {
			if (!agent_runs_for(agent, user->uid))
				continue;
			for (const struct queue_bucket *b = user->buckets; b; b = b->next)
				if (agent_queue_position(agent, b->queue) >= 0 ||
				    ++looks == KINDS_LOOKED_AT)
					return true;
		}
	return false;
}
