/* Queues at work: asks core/queue.h who starts, when something changed. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "core/queue_pods.h"
#include "daemon/host/child.h"
#include "daemon/host/log.h"
#include "daemon/mig/mig.h"
#include "daemon/queue/queue_pods.h"
#include "daemon/queue/queue_private.h"
#include "daemon/session/session.h"
#include "daemon/waiting/waiting.h"
#include "proto/shim.h"

/* As for sessions (waiting.c): older figures of the driver are not decided on. */
#define SAMPLE_FRESH_NS 200000000ull
/* Kinds of ready jobs that are looked at in one round. */
#define CANDIDATES_MAX 1024u
/* And so many kinds of one user's, whether they are ready or not. */
#define KINDS_LOOKED_AT 4096u
/* Records of ended jobs that are removed in a round, in a look a second, and at the end: a job that
 * ends makes one, and removing it takes some 0.1 ms. */
#define TIDIED_AT_ONCE 2u
#define TIDIED_AT_TICK 20u
#define TIDIED_AT_END 1000u
#define BOOT_ID "/proc/sys/kernel/random/boot_id"

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

static int position_of(const struct agent *agent, const char *queue)
{
	for (uint32_t i = 0; i < agent->queue_count; i++)
		if (!strcmp(agent->queue[i].spec.name, queue))
			return (int)i;
	return -1;
}

/* Ready jobs of one kind: why none of them can start whatever the GPUs have, or JOB_WAITS_TURN. */
static enum job_wait kind_look(const struct round *round, const struct queue_bucket *bucket,
			       int position, struct queue_job *ret)
{
	struct job *job = bucket->list.first;

	if (round->agent->queue[position].draining)
		return JOB_WAITS_DRAIN;
	if (bucket->array && bucket->array->running >= bucket->array->most)
		return JOB_WAITS_ARRAY;
	if (bucket->again_ns > now_monotonic_ns() || (job->array && job->array->halted))
		return bucket->wait;
	while (job && job_is_making(job))
		job = job->next;
	if (!job)
		return JOB_WAITS_INSTANCE;
	*ret = (struct queue_job){.id = (uint64_t)job->record.id,
				  .order = (uint64_t)job->record.id,
				  .queue = (uint32_t)position,
				  .priority = bucket->priority,
				  .limit_ns = job->spec->limit_ns};
	if (agent_request(round->q, round->agent, (uint32_t)position, job->spec, &ret->request,
			  &ret->count_min) < 0)
		return JOB_WAITS_SIZE;
	ret->request.allowed = round->allowed;
	return JOB_WAITS_TURN;
}

static bool has_part(const struct round *round, const struct queue_use *user)
{
	return user->buckets && agent_runs_for(round->agent, user->uid);
}

static uint32_t users_count(const struct round *round)
{
	uint32_t count = 0;

	for (const struct queue_use *user = round->q->uses; user; user = user->next)
		count += has_part(round, user);
	return count;
}

/* Up to `most` kinds of a user's jobs, the oldest first: nobody's many kinds keep out another's. */
static void user_collect(struct round *round, const struct queue_use *user, uint32_t most,
			 int64_t now)
{
	double use = queue_use_of(round->q, user->uid, now);
	uint32_t looks = 0;

	for (struct queue_bucket *b = user->buckets; b && looks < KINDS_LOOKED_AT; b = b->next) {
		int position = position_of(round->agent, b->queue);

		if (!most || round->job_count == CANDIDATES_MAX)
			return;
		looks++;
		if (position < 0)
			continue;
		struct queue_job *job = &round->jobs[round->job_count];
		b->wait = kind_look(round, b, position, job);
		if (b->wait != JOB_WAITS_TURN)
			continue;
		job->use = use;
		round->job_count++;
		most--;
	}
}

static void candidates_collect(struct round *round)
{
	int64_t now = now_realtime_ns();

	round->job_count = 0;
	uint32_t users = users_count(round), at = 0, first = 0;

	if (users > CANDIDATES_MAX)
		first = round->q->first_user = (round->q->first_user + CANDIDATES_MAX) % users;
	for (int turn = 0; turn < 2 && users; turn++, at = 0)
		for (const struct queue_use *user = round->q->uses; user; user = user->next)
			if (has_part(round, user) && (at++ < first) == (turn == 1))
				user_collect(round, user, MAX(CANDIDATES_MAX / users, 1), now);
	queue_sort(round->jobs, round->job_count, round->agent->fair, round->agent->last,
		   round->agent->queue_count);
}

static void running_collect(struct round *round, int64_t claim)
{
	const struct queues *q = round->q;

	const struct agent *agent = round->agent;

	round->running_count = 0;
	for (const struct job *job = q->running.first; job; job = job->next) {
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

/* A start that failed is not tried again and again. */
static void start_failed(struct job *job, int rc)
{
	struct queue_bucket *bucket = job->list->bucket;

	bucket->wait = rc == -EAGAIN   ? JOB_WAITS_QUOTA
		       : rc == -EDQUOT ? JOB_WAITS_QUOTA_NEVER
		       : rc == -ESTALE ? JOB_WAITS_INSTANCE
				       : JOB_WAITS_FAILURE;
	bucket->again_ns = now_monotonic_ns() + QUEUE_AGAIN_NS;
	if (bucket->wait == JOB_WAITS_FAILURE)
		log_event(LOG_WARNING, "job.not_started id=%" PRId64 " error=\"%s\"",
			  job->record.id, strerrordesc_np(-rc));
}

static void start_refused(struct job *job, const struct agent *agent)
{
	const char *option = agent_refuses(agent, job->spec);
	char reason[JOB_REASON_SIZE];

	snprintf(reason, sizeof(reason), "agent %s does not allow %.*s for containers", agent->id,
		 option ? (int)strcspn(option, "\n") : 0, option ? option : "");
	job_finish(job, JOB_CANCELLED, reason);
}

static bool claims_already(const struct queues *q, int64_t claim)
{
	for (const struct job *job = q->running.first; job; job = job->next)
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

/* On disk a claim is in these words: why a job is ended, and later why it waits again. */
#define PREEMPTED_BY "preempted by job "

static int64_t claim_in(const char *text)
{
	size_t length = strlen(PREEMPTED_BY);

	return strncmp(text, PREEMPTED_BY, length) ? 0 : strtoll(text + length, NULL, 10);
}

/* The reason may be in the words of the job's user, who could have done without --requeue as well:
 * nobody else is spared by it. */
static void claim_restore(struct job *job)
{
	job->claim = claim_in(*job->record.ending ? job->record.ending : job->record.reason);
}

static void preempt(struct round *round, const struct queue_job *head)
{
	struct queue_state state = {.gpus = round->gpus,
				    .gpu_count = round->q->host.pool->count,
				    .mig = round->mig.pool ? &round->mig : NULL,
				    .running = round->running};
	char why[JOB_REASON_SIZE];

	if (claims_already(round->q, (int64_t)head->id) || instances_change(round))
		return;
	running_collect(round, (int64_t)head->id);
	state.running_count = round->running_count;
	size_t *victims = calloc(round->running_count + 1, sizeof(*victims));
	size_t count = victims ? victims_choose(round, &state, head, victims) : 0;
	snprintf(why, sizeof(why), PREEMPTED_BY "%llu", (unsigned long long)head->id);
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
	struct queue_state state = {.now_ns = now_monotonic_ns(),
				    .gpus = round->gpus,
				    .gpu_count = round->q->host.pool->count,
				    .running = round->running,
				    .queues = round->limits};

	limits_collect(round);
	round->mig.pool = NULL;
	if (!round->agent->pods)
		gpus_collect(round);
	candidates_collect(round);
	if (!round->job_count)
		return false;
	running_collect(round, 0);
	state.running_count = round->running_count;
	state.mig = round->mig.pool ? &round->mig : NULL;
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
	if (rc == -EACCES)
		start_refused(job, round->agent);
	else if (rc < 0 && rc != -EINPROGRESS && job)
		start_failed(job, rc);
	return job != NULL;
}

static void agent_run(struct queues *q, struct agent *agent)
{
	static struct round round; /* large; one thread */
	round.q = q;
	round.agent = agent;
	agent->head = agent->blocker = 0;
	do {
		round.running = calloc((size_t)q->running.count + 1, sizeof(*round.running));
		if (!round.running)
			return;
		bool more = round_run(&round);

		free(round.running);
		if (!more)
			return;
	} while (true);
}

/* ---- the loop ----------------------------------------------------------------------------- */

void queues_kick(struct queues *q)
{
	if (q)
		q->dirty = true;
}

static void listeners_tell(struct queues *q)
{
	struct queue_listener *list = q->listeners;

	if (!q->told)
		return;
	q->told = false;
	q->listeners = NULL;
	while (list) {
		struct queue_listener *listener = list;

		list = listener->next;
		listener->cb(listener->arg);
		free(listener);
	}
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

static void agents_run(struct queues *q)
{
	bool gpus = q->host.pool->state == POOL_READY, any = false;

	if (!q->dirty || job_store_holds(q->store) || !*q->host.ready || q->host.sessions->drains ||
	    q->host.pool->state == POOL_STARTING)
		return;
	for (struct agent *agent = q->agents; agent && q->buckets; agent = agent->next) {
		/* Pods need no GPU of this host, nor any figures. */
		if (agent->pods)
			agent_run(q, agent);
		any |= !agent->pods;
	}
	if (any && gpus && q->buckets && !figures_fresh(q))
		return;
	q->dirty = false;
	if (!any || !gpus || !q->buckets)
		return;
	(void)pool_claim(q->host.pool, true);
	for (struct agent *agent = q->agents; agent; agent = agent->next)
		if (!agent->pods)
			agent_run(q, agent);
}

void queues_run(struct queues *q)
{
	if (!q)
		return;
	enqueue_commit(q);
	queue_parts_run(q);
	q->dirty |= q->mig_changes != mig_changes(q->host.sessions->mig);
	q->mig_changes = mig_changes(q->host.sessions->mig);
	agents_run(q);
	queue_records_tidy(q, TIDIED_AT_ONCE);
	if (q->told)
		agent_hooks_tell(q);
	listeners_tell(q);
	job_store_run(q->store);
}

static void ends_write(struct queues *q)
{
	for (struct job *job = q->ending.first, *next; job; job = next) {
		next = job->next;
		job_conclude(job);
	}
}

/* What came while the store could not be written to. */
static void on_store_freed(void *arg)
{
	struct queues *q = arg;

	ends_write(q);
	if (q->longs || q->parts)
		queue_parts_wake(q);
	q->dirty = true;
}

void queues_settle(struct queues *q)
{
	if (q)
		job_store_end(q->store);
}

int queues_database_look(struct queues *q, const char **ret_name)
{
	*ret_name = q && q->store ? job_store_missing(q->store) : NULL;
	return *ret_name ? job_store_look(q->store) : 0;
}

/* Whether a job is ready that an agent serves. Where there are many kinds, not all are looked at.
 */
static bool any_waits_for_agent(const struct queues *q)
{
	uint32_t looks = 0;

	for (const struct agent *agent = q->agents; agent && q->buckets; agent = agent->next)
		for (const struct queue_use *user = q->uses; user; user = user->next) {
			if (!agent_runs_for(agent, user->uid))
				continue;
			for (const struct queue_bucket *b = user->buckets; b; b = b->next)
				if (position_of(agent, b->queue) >= 0 || ++looks == KINDS_LOOKED_AT)
					return true;
		}
	return false;
}

void queues_tick(struct queues *q)
{
	uint64_t now = now_monotonic_ns();

	if (!q)
		return;
	q->crowd.most = *q->host.living_jobs; /* it may have been read again */
	if (!job_store_holds(q->store))
		queue_begin_due(q);
	queue_records_sync(q);
	queue_records_tidy(q, TIDIED_AT_TICK);
	queue_history_trim(
		q, &(struct job_history){*q->host.history_jobs, MIB(*q->host.history_text_mib)});
	for (struct job *job = q->running.first, *next; job; job = next) {
		next = job->next;
		job_end_tick(job, now);
	}
	if (!job_store_holds(q->store))
		ends_write(q);
	/* Memory that programs outside carve held may be free. */
	if (any_waits_for_agent(q))
		q->dirty = true;
	agent_hooks_tell(q);
	job_cgroup_remove(q);
}

bool queues_busy(const struct queues *q)
{
	return q && (q->agents || q->running.count || q->ending.count || q->enqueues ||
		     q->syncing || q->longs || q->parts);
}

/* ---- changes of jobs ---------------------------------------------------------------------- */

static int record_save(struct job *job)
{
	struct queues *q = job->queues;
	int rc = job_store_begin(q->store);

	if (rc < 0)
		return rc;
	rc = job_store_put(q->store, &job->record);
	if (rc == 0)
		return job_store_commit(q->store);
	job_store_rollback(q->store);
	return rc;
}

/* A job that waits to take up its pod takes it up to delete it. False: it has none. */
static bool pod_end_begin(struct job *job, const char *why)
{
	struct job_record last = job->record;

	last.attempt++;
	if (!job_pod_is_there(job->queues, &last))
		return false;
	if (*job->record.ending)
		return true;
	job_text_set(&job->record.ending, why);
	job->record.ending_as = JOB_CANCELLED;
	if (job->record.state == JOB_HELD)
		job_state_set(job, JOB_QUEUED);
	if (record_save(job) < 0)
		log_event(LOG_WARNING, "job.unrecorded id=%" PRId64, job->record.id);
	job_settle(job);
	return true;
}

void job_cancel(struct job *job, const char *why)
{
	struct queues *q = job->queues;

	if (job->list == &q->running)
		job_end_begin(job, JOB_CANCELLED, why);
	else if (job->list != &q->ending && !pod_end_begin(job, why))
		job_finish(job, JOB_CANCELLED, why);
}

static bool waits(const struct job *job)
{
	return job->record.state == JOB_QUEUED || job->record.state == JOB_HELD;
}

static int not_waiting(const struct job *job, struct error *err)
{
	char id[JOB_ID_TEXT];

	error_set(err, EXIT_CODE_FAILED, "job %s does not wait: it is %s",
		  job_id_text(&job->record, id), job_state_text(job->record.state));
	return -EXIT_CODE_FAILED;
}

static int not_saved(int rc, struct error *err)
{
	return error_set(err, EXIT_CODE_FAILED, "the change cannot be written down: %s",
			 strerrordesc_np(-rc));
}

int job_hold(struct job *job, bool hold, struct error *err)
{
	enum job_state before = job->record.state;

	if (!waits(job))
		return not_waiting(job, err);
	job->record.state = hold ? JOB_HELD : JOB_QUEUED;
	int rc = record_save(job);
	enum job_state after = job->record.state;
	job->record.state = before;
	if (rc < 0)
		return not_saved(rc, err);
	if (after != before)
		job_state_set(job, after);
	job_settle(job);
	return 0;
}

static int spec_change(struct job *job, const char *text, struct warrant *warrant,
		       struct error *err)
{
	struct job_spec *spec = calloc(1, sizeof(*spec));
	struct queues *q = job->queues;

	if (!spec || job_spec_load(text, spec) < 0) {
		free(warrant);
		free(spec);
		return error_set(err, EXIT_CODE_FAILED, "the job cannot be read");
	}
	spec->warrant = warrant;
	spec->uses = 1;
	spec->units = queue_request_units(text);
	if (!crowd_enter_many(&q->crowd, job->record.uid, spec->units + 1, &spec->owner)) {
		job_spec_unref(spec);
		return error_set(err, EXIT_CODE_FAILED, QUEUE_TOO_MANY);
	}
	spec->crowd = &q->crowd;
	int rc = job_store_spec_add(job->queues->store, text, warrant, true, &spec->id);
	if (rc < 0) {
		crowd_leave(&q->crowd, spec->owner);
		job_spec_unref(spec);
		return not_saved(rc, err);
	}
	if (job->spec->crowd)
		crowd_leave(job->spec->crowd, job->spec->owner);
	job_move(job, NULL); /* its kind has the old one */
	job->queues->afters -= job->spec->after_count > 0;
	job->queues->afters += spec->after_count > 0;
	job_spec_unref(job->spec);
	job->spec = spec;
	job->record.spec = spec->id;
	job->record.text_bytes = (uint32_t)strlen(text);
	job->record.name = spec->name;
	return 0;
}

int job_change(struct job *job, const char *queue, const int *priority, const char *text,
	       struct warrant *warrant, struct error *err)
{
	struct queues *q = job->queues;
	int rc = 0;

	if (!waits(job)) {
		free(warrant);
		return not_waiting(job, err);
	}
	queue = queue ? queue_name_intern(q, queue) : job->record.queue;
	if (!queue) {
		free(warrant);
		return not_saved(-ENOMEM, err);
	}
	job_move(job, NULL);
	if (text)
		rc = spec_change(job, text, warrant, err);
	if (rc == 0)
		job_queue_set(job, queue);
	if (rc == 0 && priority)
		job->record.priority = *priority;
	if (rc == 0 && (rc = record_save(job)) < 0)
		rc = not_saved(rc, err);
	job_settle(job);
	return rc;
}

/* ---- in words ----------------------------------------------------------------------------- */

static const char *why_room(const struct job *job, const struct agent *agent,
			    char buf[static JOB_WHY_SIZE])
{
	int64_t id = job->record.id;
	uint64_t now = now_monotonic_ns();

	if (agent->pods)
		snprintf(buf, JOB_WHY_SIZE, "as many pods of the agent run as may (%u)",
			 agent->pods->most);
	else if (agent->head != id)
		snprintf(buf, JOB_WHY_SIZE, "there is no room for it on the agent's GPUs");
	else if (agent->blocker && agent->reserved_ns != QUEUE_NEVER)
		snprintf(buf, JOB_WHY_SIZE,
			 "it waits for job %" PRId64 "; a placement is reserved, in %" PRIu64
			 " s at the latest",
			 agent->blocker,
			 agent->reserved_ns > now ? (agent->reserved_ns - now) / 1000000000 + 1
						  : 0);
	else if (agent->blocker)
		snprintf(buf, JOB_WHY_SIZE,
			 "it waits for job %" PRId64 ", which has no time limit; a placement is "
			 "reserved",
			 agent->blocker);
	else
		snprintf(buf, JOB_WHY_SIZE,
			 "it waits for memory that others than queues hold; a placement is "
			 "reserved");
	return buf;
}

/* Of jobs that find no room one has a placement reserved, and what it waits for goes before it. */
static struct job_prospect prospect_of_room(const struct job *job, const struct agent *agent)
{
	uint64_t now = now_monotonic_ns();
	bool known = agent->blocker && agent->reserved_ns != QUEUE_NEVER;

	if (agent->head != job->record.id)
		return (struct job_prospect){.blocker = agent->head};
	return (struct job_prospect){
		.blocker = agent->blocker,
		.starts =
			!known ? 0
			       : now_realtime_ns() + (agent->reserved_ns > now
							      ? (int64_t)(agent->reserved_ns - now)
							      : 0),
	};
}

struct job_prospect job_prospect(const struct job *job)
{
	const struct queue_bucket *bucket = job->list ? job->list->bucket : NULL;
	struct job_prospect ret = {0};
	uint32_t position;
	const struct agent *agent =
		agent_serving(job->queues, job->record.queue, job->record.uid, &position);

	if (job->record.state != JOB_QUEUED)
		return ret;
	if (!bucket && job->wait == JOB_WAITS_BEGIN)
		ret.starts = job->spec->begin;
	for (unsigned i = 0; !bucket && job->wait == JOB_WAITS_AFTER && i < job->spec->after_count;
	     i++) {
		const struct job_after *after = &job->spec->after[i];

		if (!ret.blocker && job_meant(job->queues, after->job, after->index))
			ret.blocker = after->job;
	}
	if (bucket && agent && !agent->pods &&
	    (bucket->wait == JOB_WAITS_ROOM || bucket->wait == JOB_WAITS_RESERVED))
		ret = prospect_of_room(job, agent);
	return ret;
}

/* Why its pod does not run yet, or what its end waits for. */
static void why_pod(const struct job *job, char buf[static JOB_WHY_SIZE])
{
	json_t *state = job_pod_state(job->queues, &job->record);
	const char *why = json_string_value(json_object_get(state, "why"));
	const char *ending = job->record.ending;

	snprintf(buf, JOB_WHY_SIZE, "%s%s%s%s", ending, *ending && why && *why ? "; " : "",
		 why && *why ? "its pod waits: " : "", why ? why : "");
	json_decref(state);
}

const char *job_why(const struct job *job, char buf[static JOB_WHY_SIZE])
{
	static const char *const texts[] = {
		[JOB_WAITS_TURN] = "it is its turn next",
		[JOB_WAITS_RESERVED] = "the room that is left is reserved for an earlier job",
		[JOB_WAITS_MOST] = "as many jobs of its queue run as may",
		[JOB_WAITS_DRAIN] = "its queue is drained",
		[JOB_WAITS_BEGIN] = "its time to begin has not come",
		[JOB_WAITS_AFTER] = "a job that it comes after has not ended",
		[JOB_WAITS_ARRAY] = "as many jobs of its array run as may",
		[JOB_WAITS_SIZE] = "it has no size, or a larger one than its queue",
		[JOB_WAITS_QUOTA] = "its user's quota is used up",
		[JOB_WAITS_QUOTA_NEVER] =
			"its user's quota is smaller: it can never start (carve quota)",
		[JOB_WAITS_INSTANCE] = "its MIG instance is being made",
		[JOB_WAITS_FAILURE] = "it could not be started, and is tried again",
	};
	const struct queue_bucket *bucket = job->list ? job->list->bucket : NULL;
	uint32_t position;
	const struct agent *agent =
		agent_serving(job->queues, job->record.queue, job->record.uid, &position);

	buf[0] = '\0';
	if (job->record.state == JOB_HELD)
		snprintf(buf, JOB_WHY_SIZE, "it is held");
	else if (job->record.state == JOB_RUNNING && job_is_pod(&job->record))
		why_pod(job, buf);
	else if (job->record.state == JOB_RUNNING)
		snprintf(buf, JOB_WHY_SIZE, "%s", job->record.ending);
	else if (*job->record.ending && agent)
		snprintf(buf, JOB_WHY_SIZE, "%s; its pod is to be deleted", job->record.ending);
	else if (!bucket)
		snprintf(buf, JOB_WHY_SIZE, "%s", texts[job->wait]);
	else if (!agent)
		snprintf(buf, JOB_WHY_SIZE, "no agent serves queue %s", job->record.queue);
	else if (bucket->wait == JOB_WAITS_ROOM)
		why_room(job, agent, buf);
	else
		snprintf(buf, JOB_WHY_SIZE, "%s", texts[bucket->wait]);
	return buf;
}

/* ---- events ------------------------------------------------------------------------------- */

uint64_t queue_events_last(const struct queues *q)
{
	return q->events;
}

json_t *queue_event_json(const struct queue_event *event)
{
	struct job_record record = {.id = event->id, .array = event->array, .index = event->index};
	char id[JOB_ID_TEXT];

	return json_pack("{s:I, s:s, s:s, s:s, s:I, s:i}", "number", (json_int_t)event->number,
			 "id", job_id_text(&record, id), "queue", event->queue, "state",
			 job_state_text(event->state), "at_ns", (json_int_t)event->at, "attempt",
			 (int)event->attempt);
}

json_t *queue_events(const struct queues *q, uint64_t from, const struct peer *viewer)
{
	json_t *list = json_array();
	uint64_t first = q->events > QUEUE_EVENTS ? q->events - QUEUE_EVENTS : 0;

	for (uint64_t i = MAX(first, from) + 1; i <= q->events; i++) {
		const struct queue_event *e = &q->event[i % QUEUE_EVENTS];

		if (peer_permitted(viewer, e->uid))
			json_array_append_new(list, queue_event_json(e));
	}
	return list;
}

int queue_listen(struct queues *q, job_event_cb cb, void *arg)
{
	struct queue_listener *listener = malloc(sizeof(*listener));

	if (!listener)
		return -ENOMEM;
	*listener = (struct queue_listener){q->listeners, cb, arg};
	q->listeners = listener;
	return 0;
}

void queue_unlisten(struct queues *q, void *arg)
{
	for (struct queue_listener **at = &q->listeners; *at;) {
		struct queue_listener *listener = *at;

		if (listener->arg != arg) {
			at = &listener->next;
			continue;
		}
		*at = listener->next;
		free(listener);
	}
}

/* ---- beginning ---------------------------------------------------------------------------- */

static void grants_restore(struct job *job)
{
	json_t *list = json_loads(job->record.place, 0, NULL), *item;
	const struct session *session =
		session_find(job->queues->host.sessions, job->record.session);
	size_t count = json_array_size(list), i;

	job->grants = calloc(count + 1, sizeof(*job->grants));
	json_array_foreach(list, i, item)
	{
		uint32_t index = (uint32_t)json_integer_value(json_array_get(item, 0));

		for (uint32_t g = 0; job->grants && g < job->queues->host.pool->count; g++)
			if (job->queues->host.pool->gpu[g].info.index == index)
				job->grants[job->grant_count++] = (struct place_grant){
					.gpu = g,
					.bytes = (uint64_t)json_integer_value(
						json_array_get(item, 1)),
				};
	}
	job->compute = session ? session->record.compute : 0;
	json_decref(list);
}

/* How long it has run is known by the wall clock alone. */
static uint64_t started_restore(const struct job *job)
{
	uint64_t now = now_monotonic_ns();
	int64_t ran = now_realtime_ns() - job->record.started;

	return ran > 0 && (uint64_t)ran < now ? now - (uint64_t)ran : now;
}

static void counts_restore(struct job *job)
{
	struct agent *agent = agent_find(job->queues, job->record.agent);
	int position = agent ? position_of(agent, job->record.queue) : -1;

	if (position >= 0)
		agent->queue[position].running++;
	if (job->array)
		job->array->running++;
}

static bool record_is_there(const struct job *job)
{
	json_t *start, *end;

	bool there = job_record_read(job->queues, &job->record, &start, &end) < 0 || start || end;
	json_decref(start);
	json_decref(end);
	return there;
}

/* After a power cut the database may be older than the records are. */
static bool began_after_all(struct job *job)
{
	job->record.attempt++;
	if (record_is_there(job))
		return true;
	job->record.attempt--;
	return false;
}

static void job_take_up(struct job *job)
{
	struct queues *q = job->queues;
	bool begun = job->record.state == JOB_STARTING || job->record.state == JOB_RUNNING ||
		     began_after_all(job);

	claim_restore(job);
	if (!begun) {
		job_settle(job);
		return;
	}
	grants_restore(job);
	job->started_ns = started_restore(job);
	job_state_put(job, JOB_RUNNING);
	job_move(job, &q->running);
	counts_restore(job);
	job_watch(job);
}

static void jobs_take_up(struct queues *q)
{
	size_t count = 0, all = q->pending.count;
	int64_t *ids = calloc(all + 1, sizeof(*ids));

	/* One that ends may end others that come after it. */
	for (const struct job *job = q->pending.first; ids && job; job = job->next)
		ids[count++] = job->record.id;
	for (size_t i = 0; i < count; i++) {
		struct job *job = job_find(q, ids[i]);

		if (job && job->list == &q->pending)
			job_take_up(job);
	}
	free(ids);
	/* Their end was asked for by the last daemon, which may not have told them. */
	for (struct job *job = q->running.first, *next; job; job = next) {
		next = job->next;
		if (*job->record.ending)
			job_end_again(job);
	}
}

static void places_find_all(struct queues *q)
{

	snprintf(q->dir, sizeof(q->dir), "%.*s/jobs", (int)sizeof(q->dir) - 8, q->host.state_dir);
	runtime_path(q->host.runtime, "attach.sock", q->attach, sizeof(q->attach));
	if (file_read(BOOT_ID, q->boot, sizeof(q->boot)) > 0)
		q->boot[strcspn(q->boot, "\n")] = '\0';
	if (child_program(SHIM_PROGRAM, q->shim) < 0)
		log_event(LOG_WARNING, "queue.no_shim program=%s", SHIM_PROGRAM);
}

static int queues_open(struct queues *q, struct error *err)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/queue.db", q->host.state_dir);
	int rc = job_store_open(&q->store, path, q->host.sessions->loop, on_store_freed, q, err);
	if (rc < 0)
		return rc;
	rc = queue_use_load(q);
	if (rc == 0)
		rc = queue_history_load(q);
	if (rc == 0)
		rc = agents_load(q);
	if (rc == 0)
		rc = queue_load(q);
	if (rc < 0)
		error_set(err, EXIT_CODE_FAILED, "the jobs cannot be read back from %.300s: %s",
			  path, rc == -EUCLEAN ? "it is damaged" : strerrordesc_np(-rc));
	return rc;
}

struct queues *queues_start(const struct queues_host *host, struct error *err)
{
	struct queues *q = calloc(1, sizeof(*q));

	if (!q) {
		error_set(err, EXIT_CODE_FAILED, "out of memory");
		return NULL;
	}
	q->host = *host;
	crowd_begin_any(&q->crowd, *q->host.living_jobs);
	q->enqueues_end = &q->enqueues;
	q->syncing_end = &q->syncing;
	q->longs_end = &q->longs;
	places_find_all(q);
	if (queues_open(q, err) == 0) {
		jobs_take_up(q);
		return q;
	}
	log_event(LOG_ERROR, "queue.unusable error=\"%s\"", err->message);
	queues_stop(q);
	return NULL;
}

static void free_one(struct job *job, void *arg)
{
	job_free(job);
}

void queues_stop(struct queues *q)
{
	if (!q)
		return;
	queue_driver_free(q);
	queues_settle(q);
	queue_records_settle(q);
	queue_records_tidy(q, TIDIED_AT_END);
	free(q->left);
	queue_parts_free(q);
	enqueues_free(q);
	jobs_each(q, free_one, NULL);
	agents_free(q);
	job_store_close(q->store);
	while (q->uses) {
		struct queue_use *use = q->uses;

		q->uses = use->next;
		free(use);
	}
	while (q->listeners)
		queue_unlisten(q, q->listeners->arg);
	crowd_free(&q->crowd);
	free(q);
}
