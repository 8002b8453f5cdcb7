/* Agents. An agent has GPUs of this host, or makes pods in a cluster, and serves queues, each with
 * a size of its jobs. A GPU belongs to one agent at most. Agents are in the database as JSON, and
 * the next daemon takes them up. An agent lives as long as its command, whose process is watched,
 * or until it is stopped, where it is detached. Its end is written to the database before it is
 * forgotten; while the store would make the loop wait, the end waits, too.
 *
 * A job of its own size must fit into its queue's size: agent_request() says what a job gets. A
 * queue whose size no GPU of the agent could ever grant is refused when the agent starts, so that
 * its jobs do not wait forever. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/log.h"
#include "daemon/host/names.h"
#include "daemon/mig/mig.h"
#include "daemon/queue/agents.h"
#include "daemon/queue/job_ender.h"
#include "daemon/queue/job_rights.h"
#include "daemon/queue/job_table.h"
#include "daemon/queue/launcher.h"
#include "daemon/queue/queue_context.h"
#include "daemon/queue/queue_pods.h"
#include "daemon/request/request.h"
#include "daemon/session/sessions.h"

struct agent *agent_find(const struct queues *q, const char *id)
{
	struct agent *agent = q->agents;

	while (agent && strcmp(agent->id, id) != 0)
		agent = agent->next;
	return agent;
}

bool agent_runs_for(const struct agent *agent, uid_t uid)
{
	/* Pods are made with the rights that the agent's owner has in the cluster. */
	return agent->uid == uid || (agent->uid == 0 && !agent->pods);
}

int agent_queue_position(const struct agent *agent, const char *queue)
{
	for (uint32_t i = 0; i < agent->queue_count; i++)
		if (!strcmp(agent->queue[i].spec.name, queue))
			return (int)i;
	return -1;
}

struct agent *agent_serving(const struct queues *q, const char *queue, uid_t uid,
			    uint32_t *ret_position)
{
	for (struct agent *agent = q->agents; agent; agent = agent->next)
		for (uint32_t i = 0; i < agent->queue_count; i++)
			if ((uid == (uid_t)-1 || agent_runs_for(agent, uid)) &&
			    !strcmp(agent->queue[i].spec.name, queue)) {
				*ret_position = i;
				return agent;
			}
	return NULL;
}

const char *job_unserved(const struct job *job, char buf[static JOB_WHY_SIZE])
{
	const struct agent *agent = job->queues->agents;

	while (agent && agent_queue_position(agent, job->record.queue) < 0)
		agent = agent->next;
	if (agent)
		snprintf(buf, JOB_WHY_SIZE,
			 "agent %s runs only %s's own jobs; ask an administrator for an agent",
			 agent->id, names_of(NAMES_OF_USERS, agent->uid));
	else
		snprintf(buf, JOB_WHY_SIZE, "no agent serves queue %s", job->record.queue);
	return buf;
}

const char *job_halt(const struct job *job, char buf[static JOB_WHY_SIZE])
{
	const char *why = NULL;

	for (const struct agent *agent = job->queues->agents; agent; agent = agent->next) {
		int position = agent_queue_position(agent, job->record.queue);

		if (position < 0 || !agent_runs_for(agent, job->record.uid))
			continue;
		if (!agent->queue[position].draining)
			return "";
		why = "its queue is drained";
	}
	return why ? why : job_unserved(job, buf);
}

/* The job's queue at its agent; NULL: the agent is gone, or has no such queue. */
static struct agent_queue *queue_of(const struct job *job)
{
	struct agent *agent = agent_find(job->queues, job->record.agent);
	int position = agent ? agent_queue_position(agent, job->record.queue) : -1;

	return position < 0 ? NULL : &agent->queue[position];
}

void job_agent_enter(const struct job *job)
{
	struct agent_queue *queue = queue_of(job);

	if (queue)
		queue->running++;
	if (job->array)
		job->array->running++;
}

void job_agent_leave(const struct job *job)
{
	struct agent_queue *queue = queue_of(job);

	if (queue && queue->running)
		queue->running--;
	if (job->array && job->array->running)
		job->array->running--;
}

const char *agent_refuses(const struct agent *agent, const struct job_spec *spec)
{
	return queue_container_refuse(spec->container_args, agent->container_allow,
				      agent->container_deny);
}

void agent_allowed(const struct queues *q, const struct agent *agent,
		   uint8_t ret[static PLACE_GPUS_MAX])
{
	memset(ret, 0, PLACE_GPUS_MAX);
	for (uint32_t i = 0; i < q->host.pool->count; i++)
		ret[i] = q->host.pool->gpu[i].info.index < 64 &&
			 (agent->gpus >> q->host.pool->gpu[i].info.index & 1);
}

/* ---- sizes -------------------------------------------------------------------------------- */

static void request_of_queue(const struct queue_spec *spec, struct place_request *ret,
			     uint32_t *ret_count_min)
{
	*ret = (struct place_request){
		.kind = PLACE_FRACTION, .count = 1, .strict = true, .lacks_resident = true};
	*ret_count_min = 1;
	if (spec->size == QUEUE_SIZE_FRACTION) {
		ret->share = ret->compute = spec->share;
		return;
	}
	ret->kind = PLACE_WHOLE;
	ret->share = ret->compute = SHARE_ONE;
	ret->count = spec->gpus_max;
	*ret_count_min = spec->gpus_min;
}

static bool instance_within(const struct queues *q, const struct place_request *own,
			    const struct place_request *queue, uint32_t gpu)
{
	uint64_t bytes = mig_bytes_for(q->host.sessions->mig, own, gpu);

	return bytes && bytes <= mig_bytes_for(q->host.sessions->mig, queue, gpu);
}

/* Whether a job's own size is within its queue's, on a GPU where both are known. */
static bool within(const struct queues *q, const uint8_t *allowed, const struct place_request *own,
		   const struct place_request *queue)
{
	struct place_gpu gpus[GPUS_MAX];
	bool any = false;

	if (own->count > queue->count || place_compute(own) > place_compute(queue))
		return false;
	pool_place_gpus(q->host.pool, gpus);
	for (uint32_t i = 0; i < q->host.pool->count && !any; i++)
		any = allowed[i] && (mig_has_role(q->host.sessions->mig, i)
					     ? instance_within(q, own, queue, i)
					     : place_requested(&gpus[i], own) <=
						       place_requested(&gpus[i], queue));
	return any;
}

int agent_request(const struct queues *q, const struct agent *agent, uint32_t position,
		  const struct job_spec *spec, struct place_request *ret, uint32_t *ret_count_min)
{
	const struct queue_spec *queue = &agent->queue[position].spec;
	uint8_t allowed[PLACE_GPUS_MAX];
	struct place_request whole;

	*ret_count_min = 0;
	if (agent->pods)
		return agent_pods_request(agent, position, spec, ret);
	if (queue->size == QUEUE_SIZE_OF_JOB) {
		*ret = spec->request;
		return spec->sized ? 0 : -EINVAL;
	}
	request_of_queue(queue, &whole, ret_count_min);
	if (!spec->sized) {
		*ret = whole;
		return 0;
	}
	agent_allowed(q, agent, allowed);
	*ret = spec->request;
	*ret_count_min = 0;
	return within(q, allowed, &spec->request, &whole) ? 0 : -ERANGE;
}

/* ---- on disk ------------------------------------------------------------------------------ */

static json_t *agent_object(const struct agent *agent)
{
	json_t *queues = json_array();

	for (uint32_t i = 0; i < agent->queue_count; i++) {
		const struct queue_spec *s = &agent->queue[i].spec;

		json_array_append_new(queues,
				      json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:b, s:s}", "name",
						s->name, "size", (int)s->size, "share",
						(int)s->share, "min", (int)s->gpus_min, "max",
						(int)s->gpus_max, "most", (int)s->most, "draining",
						agent->queue[i].draining, "image", s->image));
	}
	json_t *object = json_pack(
		"{s:i, s:i, s:I, s:b, s:s, s:s, s:s, s:I, s:i, s:I, s:o}", "uid", (int)agent->uid,
		"gid", (int)agent->gid, "gpus", (json_int_t)agent->gpus, "fair", agent->fair,
		"image", agent->image, "allow", agent->container_allow, "deny",
		agent->container_deny, "started", (json_int_t)agent->started, "pid",
		(int)agent->owner.pid, "birth", (json_int_t)agent->owner.birth, "queues", queues);
	if (object && agent->pods)
		agent_pods_save(agent->pods, object);
	return object;
}

static void agents_save(struct agent *agent)
{
	json_t *object = agent_object(agent);
	char *text = json_dumps(object, JSON_COMPACT);
	int rc = text ? job_store_agent_put(agent->queues->store, agent->id, text) : -ENOMEM;

	if (rc < 0)
		log_event(LOG_WARNING, "agent.unrecorded id=%s error=\"%s\"", agent->id,
			  strerrordesc_np(-rc));
	free(text);
	json_decref(object);
}

static int64_t number(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static void text_read(const json_t *object, const char *key, char *to, size_t size)
{
	const char *text = json_string_value(json_object_get(object, key));

	snprintf(to, size, "%s", text ? text : "");
}

static void queue_read(const json_t *object, struct agent_queue *ret)
{
	const char *name = json_string_value(json_object_get(object, "name"));

	ret->spec = (struct queue_spec){
		.size = (enum queue_size)number(object, "size"),
		.share = (uint32_t)number(object, "share"),
		.gpus_min = (uint32_t)number(object, "min"),
		.gpus_max = (uint32_t)number(object, "max"),
		.most = (uint32_t)number(object, "most"),
	};
	snprintf(ret->spec.name, sizeof(ret->spec.name), "%s", name ? name : "");
	text_read(object, "image", ret->spec.image, sizeof(ret->spec.image));
	ret->draining = json_is_true(json_object_get(object, "draining"));
}

static void on_owner_ended(void *arg)
{
	struct agent *agent = arg;

	agent->ended = true;
	if (!job_store_holds(agent->queues->store))
		agents_end(agent->queues);
}

void agents_end(struct queues *q)
{
	for (struct agent *agent = q->agents, *next; agent; agent = next) {
		next = agent->next;
		if (agent->ended)
			agent_stop(agent, false, "its command ended");
	}
}

/* In the order in which they were started. */
static void agent_insert(struct queues *q, struct agent *agent)
{
	struct agent **end = &q->agents;

	while (*end)
		end = &(*end)->next;
	agent->next = NULL;
	*end = agent;
	agent->queues = q;
	q->dirty = true;
}

static int owner_watch(struct agent *agent)
{
	if (agent->owner.pid <= 0)
		return 0;
	return process_watch_start(agent->queues->host.sessions->loop, agent->owner, on_owner_ended,
				   agent, &agent->watch);
}

static int load_one(void *arg, const char *id, const char *text)
{
	struct queues *q = arg;
	json_t *object = json_loads(text, 0, NULL), *item;
	struct agent *agent = object ? calloc(1, sizeof(*agent)) : NULL;
	size_t i;

	if (!agent) {
		json_decref(object);
		return 0;
	}
	snprintf(agent->id, sizeof(agent->id), "%s", id);
	agent->uid = (uid_t)number(object, "uid");
	agent->gid = (gid_t)number(object, "gid");
	agent->gpus = (uint64_t)number(object, "gpus");
	agent->fair = json_is_true(json_object_get(object, "fair"));
	agent->started = number(object, "started");
	agent->owner = (struct process_id){.pid = (pid_t)number(object, "pid"),
					   .birth = (uint64_t)number(object, "birth")};
	text_read(object, "image", agent->image, sizeof(agent->image));
	text_read(object, "allow", agent->container_allow, sizeof(agent->container_allow));
	text_read(object, "deny", agent->container_deny, sizeof(agent->container_deny));
	json_array_foreach(json_object_get(object, "queues"), i, item)
	{
		if (agent->queue_count < QUEUE_LIST_MAX)
			queue_read(item, &agent->queue[agent->queue_count++]);
	}
	const json_t *pods = json_object_get(object, "pods");
	struct error err = {0};
	if (pods && agent_pods_read(pods, &agent->pods, &err) < 0) {
		log_event(LOG_WARNING, "agent.unreadable id=%s error=\"%s\"", id, err.message);
		json_decref(object);
		free(agent);
		return 0;
	}
	if (agent->pods)
		agent_pods_vouched_read(agent->pods, object);
	json_decref(object);
	agent_insert(q, agent);
	return 0;
}

int agents_load(struct queues *q)
{
	int rc = job_store_each_agent(q->store, load_one, q);

	for (struct agent *agent = q->agents, *next; rc == 0 && agent; agent = next) {
		next = agent->next;
		if (owner_watch(agent) < 0)
			agent_stop(agent, false, "its command ended");
	}
	return rc;
}

void agents_free(struct queues *q)
{
	while (q->agents) {
		struct agent *agent = q->agents;

		q->agents = agent->next;
		process_watch_stop(agent->watch);
		agent_pods_free(agent->pods);
		free(agent);
	}
}

/* ---- starting ----------------------------------------------------------------------------- */

static int check_gpus(const struct queues *q, struct agent *agent, struct error *err)
{
	uint64_t there = 0;
	char text[QUEUE_GPUS_TEXT];

	for (uint32_t i = 0; i < q->host.pool->count; i++)
		if (q->host.pool->gpu[i].info.index < 64)
			there |= 1ull << q->host.pool->gpu[i].info.index;
	if (agent->gpus == UINT64_MAX)
		agent->gpus = there;
	if (agent->gpus & ~there || !agent->gpus) {
		error_set(err, EXIT_CODE_USAGE, "--gpus: there is no GPU %s",
			  queue_gpus_text(agent->gpus & ~there, text));
		error_hint(err, "`carve gpu list` shows the GPUs");
		return -EXIT_CODE_USAGE;
	}
	for (const struct agent *other = q->agents; other; other = other->next) {
		if (!(other->gpus & agent->gpus))
			continue;
		error_set(err, EXIT_CODE_FAILED, "GPU %s is used by agent %s of %s already",
			  queue_gpus_text(other->gpus & agent->gpus, text), other->id,
			  names_of(NAMES_OF_USERS, other->uid));
		error_hint(err, "choose other GPUs, or end that one: carve agent --stop %s",
			   other->id);
		return -EXIT_CODE_FAILED;
	}
	return 0;
}

/* Whether GPUs with the MIG role can have such instances, whoever leaves. */
static bool instances_possible(const struct queues *q, const struct place_request *place)
{
	const struct slice_request request = {.place = *place};
	struct mig_decision ignored;
	struct error err = {0};

	if (!mig_offers(q->host.sessions->mig, &request))
		return false;
	return mig_changing(q->host.sessions->mig, &request) ||
	       mig_would(q->host.sessions->mig, &request, NULL, NULL, &ignored, &err) != -EDOM;
}

/* The bytes that the request comes to on one empty GPU; 0: that cannot have it. */
static uint64_t bytes_on(const struct queues *q, const struct place_gpu *gpu, uint32_t number,
			 const struct place_request *request)
{
	struct place_request one = *request;
	struct place_gpu empty = *gpu;

	if (mig_has_role(q->host.sessions->mig, number))
		return mig_bytes_for(q->host.sessions->mig, request, number);
	one.count = 1;
	one.allowed = NULL;
	if (!place_possible(gpu, 1, &one))
		return 0;
	empty.outside = empty.promised = empty.sessions = 0;
	return MIN(place_requested(&empty, &one), place_available(&empty));
}

/* By bytes, the fewest first. */
static void least_insert(struct place_result *list, uint32_t gpu, uint64_t bytes)
{
	uint32_t at = list->count++;

	for (; at && list->grant[at - 1].bytes > bytes; at--)
		list->grant[at] = list->grant[at - 1];
	list->grant[at] = (struct place_grant){.gpu = gpu, .bytes = bytes, .requested = bytes};
}

uint64_t agent_queue_most(const struct queues *q, const struct agent *agent, uint32_t position)
{
	const struct queue_spec *spec = &agent->queue[position].spec;
	struct place_gpu gpus[GPUS_MAX];
	uint8_t allowed[PLACE_GPUS_MAX];
	struct place_request whole;
	uint32_t ignored;
	uint64_t most = 0;

	agent_allowed(q, agent, allowed);
	pool_place_gpus(q->host.pool, gpus);
	request_of_queue(spec, &whole, &ignored);
	for (uint32_t i = 0; i < q->host.pool->count; i++) {
		uint64_t bytes = spec->size == QUEUE_SIZE_OF_JOB ? place_capacity(&gpus[i])
				 : mig_has_role(q->host.sessions->mig, i)
					 ? mig_bytes_for(q->host.sessions->mig, &whole, i)
					 : place_requested(&gpus[i], &whole);

		most = allowed[i] ? MAX(most, bytes) : most;
	}
	return most;
}

int agent_least(const struct queues *q, const struct agent *agent,
		const struct place_request *request, struct place_result *ret)
{
	struct place_gpu gpus[GPUS_MAX];
	uint8_t allowed[PLACE_GPUS_MAX];
	struct place_request here = *request;

	agent_allowed(q, agent, allowed);
	pool_place_gpus(q->host.pool, gpus);
	here.allowed = allowed;
	*ret = (struct place_result){0};
	if (!place_possible(gpus, q->host.pool->count, &here) && !instances_possible(q, &here))
		return -ENOSPC;
	for (uint32_t i = 0; i < q->host.pool->count; i++) {
		uint64_t bytes = allowed[i] ? bytes_on(q, &gpus[i], i, request) : 0;

		if (bytes)
			least_insert(ret, i, bytes);
	}
	ret->count = MIN(ret->count, request->count);
	return 0;
}

static int check_queue(const struct queues *q, const struct agent *agent, uint32_t position,
		       struct error *err)
{
	const struct queue_spec *spec = &agent->queue[position].spec;
	struct place_request request;
	struct place_result ignored;
	uint32_t least;
	char size[QUEUE_SIZE_TEXT];

	for (uint32_t i = 0; i < position; i++)
		if (!strcmp(agent->queue[i].spec.name, spec->name)) {
			error_set(err, EXIT_CODE_USAGE, "queue %s is named twice", spec->name);
			error_hint(err, "each queue has one size");
			return -EXIT_CODE_USAGE;
		}
	if (agent->pods || spec->size == QUEUE_SIZE_OF_JOB)
		return 0;
	request_of_queue(spec, &request, &least);
	if (least > (uint32_t)__builtin_popcountll(agent->gpus)) {
		error_set(err, EXIT_CODE_NO_ROOM,
			  "queue %s: a job needs %u GPUs, and the agent has %d", spec->name, least,
			  __builtin_popcountll(agent->gpus));
		error_hint(err, "give the agent more GPUs, or the queue fewer");
		return -EXIT_CODE_NO_ROOM;
	}
	request.count = least;
	if (agent_least(q, agent, &request, &ignored) == 0)
		return 0;
	error_set(err, EXIT_CODE_NO_ROOM,
		  "queue %s: no GPU of the agent can ever grant %s, even when empty", spec->name,
		  queue_size_text(spec, size));
	error_hint(err, "`carve explain --gpu %s` says what each GPU lacks", size);
	return -EXIT_CODE_NO_ROOM;
}

/* Its users are one: the cluster knows the jobs by the agent's token, which its owner reads. */
static int check_pods(const struct queues *q, struct agent *agent, struct error *err)
{
	agent->gpus = 0;
	if (launcher_is_there(q->host.launcher) ? agent->pods->warrant != NULL
						: agent->uid == geteuid())
		return 0;
	return error_set(err, EXIT_CODE_NOT_PERMITTED, "this daemon cannot make pods as user %s",
			 names_of(NAMES_OF_USERS, agent->uid));
}

static void id_make(const struct queues *q, char ret[static 16])
{
	unsigned number = 1;

	do
		snprintf(ret, 16, "a-%u", number++);
	while (agent_find(q, ret));
}

int agent_start(struct queues *q, const struct agent *wanted, struct agent **ret, struct error *err)
{
	struct agent *agent = malloc(sizeof(*agent));

	if (!agent)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	*agent = *wanted;
	agent->queues = q;
	agent->started = now_realtime_ns();
	id_make(q, agent->id);
	int rc = agent->pods ? check_pods(q, agent, err) : check_gpus(q, agent, err);
	for (uint32_t i = 0; rc == 0 && i < agent->queue_count; i++)
		rc = check_queue(q, agent, i, err);
	if (rc == 0 && owner_watch(agent) < 0)
		rc = error_set(err, EXIT_CODE_FAILED, "the agent's command has ended");
	if (rc < 0) {
		free(agent);
		return rc;
	}
	agent_insert(q, agent);
	agents_save(agent);
	log_event(LOG_INFO, "agent.started id=%s uid=%u queues=%u", agent->id, agent->uid,
		  agent->queue_count);
	*ret = agent;
	return 0;
}

static void jobs_end(const struct agent *agent)
{
	for (struct job *job = agent->queues->jobs->running.first; job; job = job->next)
		if (!strcmp(job->record.agent, agent->id))
			job_end_begin(job, JOB_CANCELLED, "its agent was stopped");
}

void agent_stop(struct agent *agent, bool now, const char *why)
{
	struct queues *q = agent->queues;
	struct agent **at = &q->agents;

	log_event(LOG_INFO, "agent.stopped id=%s reason=\"%s\"", agent->id, why);
	if (now)
		jobs_end(agent);
	(void)job_store_agent_remove(q->store, agent->id);
	if (agent->pods)
		(void)queue_rights_over(q, agent->pods->warrant, 0, 1);
	while (*at != agent)
		at = &(*at)->next;
	*at = agent->next;
	process_watch_stop(agent->watch);
	agent_pods_free(agent->pods);
	free(agent);
	q->dirty = true;
}

int agent_drain(struct agent *agent, const char *queue, bool drain)
{
	bool found = !queue;

	for (uint32_t i = 0; i < agent->queue_count; i++) {
		if (queue && strcmp(agent->queue[i].spec.name, queue) != 0)
			continue;
		agent->queue[i].draining = drain;
		found = true;
	}
	if (!found)
		return -ENOENT;
	agents_save(agent);
	agent->queues->dirty = true;
	return 0;
}
