#include "daemon/api/api_agent.h"

#include <http_parser.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/macros.h"
#include "daemon/api/answer.h"
#include "daemon/api/api_vouch.h"
#include "daemon/api/http.h"
#include "daemon/api/view.h"
#include "daemon/host/owner.h"
#include "daemon/node.h"
#include "daemon/queue/agents.h"
#include "daemon/queue/job_events.h"
#include "daemon/queue/job_rights.h"
#include "daemon/queue/job_table.h"
#include "daemon/queue/job_why.h"
#include "daemon/queue/launcher.h"
#include "daemon/queue/queue_context.h"
#include "daemon/queue/queue_pods.h"

/* Queues in a list that no agent serves. */
#define UNSERVED_MAX 64u

/* ---- showing ------------------------------------------------------------------------------ */

static json_t *queue_json(const struct node *node, const struct agent *agent, const char *name,
			  const struct agent_queue *queue)
{
	const struct queue_name *its = queue_name_find(node->queues, name);
	const struct job *first =
		its && its->waiting ? queue_first_waiting(node->queues, its) : NULL;
	char size[QUEUE_SIZE_TEXT] = "", why[JOB_WHY_SIZE] = "";

	if (queue)
		queue_size_text(&queue->spec, size);
	if (first)
		job_why(first, why);
	if (queue && queue->draining)
		snprintf(why, sizeof(why), "it is drained");
	const char *image = !queue ? "" : *queue->spec.image ? queue->spec.image : agent->image;
	return json_pack("{s:s, s:o, s:i, s:i, s:s, s:o, s:b, s:o, s:o}", "name", name, "size",
			 *size ? json_string(size) : json_null(), "waiting",
			 its ? (int)its->waiting : 0, "running", its ? (int)its->running : 0,
			 "reason", why, "agent", agent ? json_string(agent->id) : json_null(),
			 "draining", queue && queue->draining, "max",
			 queue && queue->spec.most ? json_integer(queue->spec.most) : json_null(),
			 "image", *image ? json_string(image) : json_null());
}

static json_t *agent_json(const struct node *node, const struct agent *agent)
{
	char gpus[QUEUE_GPUS_TEXT];
	json_t *queues = json_array();

	for (uint32_t i = 0; i < agent->queue_count; i++) {
		json_t *queue =
			queue_json(node, agent, agent->queue[i].spec.name, &agent->queue[i]);

		/* Another agent may serve the queue, too. */
		json_object_set_new(queue, "running", json_integer(agent->queue[i].running));
		json_array_append_new(queues, queue);
	}
	json_t *object =
		json_pack("{s:s, s:s, s:s, s:b, s:b, s:o, s:o}", "id", agent->id, "user",
			  view_user(agent->uid), "gpus", queue_gpus_text(agent->gpus, gpus),
			  "order_fairness", agent->fair, "detached", agent->owner.pid == 0,
			  "started", view_time(agent->started), "queues", queues);
	if (object && agent->pods)
		json_object_set_new(object, "pods",
				    json_pack("{s:s, s:i, s:i}", "namespace",
					      agent->pods->namespace, "max", (int)agent->pods->most,
					      "running", (int)agent_pods_running(agent)));
	return object;
}

void api_get_agents(struct call *call, const char *id)
{
	json_t *list = json_array();

	for (const struct agent *a = call->node->queues->agents; a; a = a->next)
		json_array_append_new(list, agent_json(call->node, a));
	call_reply(call, HTTP_STATUS_OK, list);
}

/* A user who enqueues may think of any name. */
static void unserved_add(const struct node *node, json_t *list)
{
	size_t most = json_array_size(list) + UNSERVED_MAX;
	uint32_t position;

	for (size_t i = 0; i < JOBS_TABLE_BUCKETS && json_array_size(list) < most; i++)
		for (const struct queue_name *name = node->queues->jobs->names[i];
		     name && json_array_size(list) < most; name = name->next)
			if (!agent_serving(node->queues, name->text, (uid_t)-1, &position))
				json_array_append_new(list,
						      queue_json(node, NULL, name->text, NULL));
}

void api_get_queues(struct call *call, const char *id)
{
	json_t *list = json_array();

	for (const struct agent *a = call->node->queues->agents; a; a = a->next)
		for (uint32_t i = 0; i < a->queue_count; i++)
			json_array_append_new(list, queue_json(call->node, a, a->queue[i].spec.name,
							       &a->queue[i]));
	unserved_add(call->node, list);
	call_reply(call, HTTP_STATUS_OK, list);
}

/* ---- while the log is merged -------------------------------------------------------------- */

static void act_again(struct call *call, void *arg)
{
	const char *id = strrchr(call->path, '/') + 1;

	if (!strcmp(call->method, "POST"))
		api_post_agent(call, NULL);
	else if (!strcmp(call->method, "PATCH"))
		api_patch_agent(call, id);
	else
		api_delete_agent(call, id);
}

static void on_change(void *call)
{
	call_fairly(call, act_again, NULL);
}

static void on_caller_gone(struct call *call)
{
	queue_unlisten(call->node->queues, call);
}

/* True: the call waits until agents can be written, as else the loop would. */
static bool waits_for_store(struct call *call)
{
	struct queues *q = call->node->queues;

	if (!job_store_holds(q->store) || queue_listen(q, on_change, call) < 0)
		return false;
	call_defer(call, on_caller_gone);
	return true;
}

/* ---- starting ----------------------------------------------------------------------------- */

static int queues_read(const json_t *list, struct agent *agent, struct error *err)
{
	size_t i;
	json_t *item;

	if (!json_array_size(list)) {
		error_set(err, EXIT_CODE_USAGE, "no queue is named");
		error_hint(err, "for example: --queue half_gpu=0.5 single_gpu=1");
		return -EXIT_CODE_USAGE;
	}
	if (json_array_size(list) > QUEUE_LIST_MAX)
		return error_set(err, EXIT_CODE_USAGE, "there are more than %u queues",
				 QUEUE_LIST_MAX);
	json_array_foreach(list, i, item)
	{
		const char *text = json_string_value(item);
		int rc = text ? queue_spec_parse(text, &agent->queue[i].spec, err)
			      : error_set(err, EXIT_CODE_USAGE, "'queues' takes a list of texts");

		if (rc < 0)
			return rc;
		agent->queue_count++;
	}
	return 0;
}

static int text_read(const json_t *body, const char *key, char *to, size_t size, struct error *err)
{
	const json_t *value = json_object_get(body, key);
	const char *text = json_string_value(value);

	if (!value || json_is_null(value))
		return 0;
	if (!text || strlen(text) >= size || *text == '-')
		return error_set(err, EXIT_CODE_USAGE, "'%s' takes a text of up to %zu characters",
				 key, size - 1);
	snprintf(to, size, "%s", text);
	return 0;
}

static int agent_read(const struct call *call, const json_t *body, struct agent *agent,
		      struct error *err)
{
	const char *gpus = json_string_value(json_object_get(body, "gpus"));
	static const char *const known[] = {"gpus",           "queues", "order_fairness",
					    "detached",       "image",  "container_allow",
					    "container_deny", "pods"};
	const json_t *pods = json_object_get(body, "pods");
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)body, key, value)
	{
		bool found = false;

		for (size_t i = 0; i < ARRAY_SIZE(known); i++)
			found |= !strcmp(known[i], key);
		if (!found)
			return error_set(err, EXIT_CODE_USAGE, "unknown field '%.64s'", key);
	}
	agent->uid = call->peer.uid;
	agent->gid = call->peer.gid;
	agent->fair = json_is_true(json_object_get(body, "order_fairness"));
	if (!json_is_true(json_object_get(body, "detached")))
		agent->owner = call->peer.process;
	int rc = text_read(body, "image", agent->image, sizeof(agent->image), err);
	if (rc == 0)
		rc = text_read(body, "container_allow", agent->container_allow,
			       sizeof(agent->container_allow), err);
	if (rc == 0)
		rc = text_read(body, "container_deny", agent->container_deny,
			       sizeof(agent->container_deny), err);
	if (rc == 0)
		rc = queue_gpus_parse(gpus ? gpus : "all", &agent->gpus, err);
	if (rc == 0)
		rc = queues_read(json_object_get(body, "queues"), agent, err);
	if (rc == 0 && pods && gpus)
		rc = error_set(err, EXIT_CODE_USAGE, "an agent has GPUs of this host, or pods");
	if (rc == 0 && pods)
		rc = agent_pods_read(pods, &agent->pods, err);
	return rc;
}

static bool may_lead(const struct call *call)
{
	return call->peer.admin || call->peer.uid == geteuid();
}

/* Agents whose jobs are pods use nothing of this host, and run their owner's jobs alone: this many
 * may each user have, subordinate users together with their owner. */
#define USER_PODS_AGENTS_MAX 4u

static int may_have_pods(const struct call *call, struct error *err)
{
	uid_t owner = owner_of(call->peer.uid);
	unsigned count = 0;

	for (const struct agent *a = call->node->queues->agents; a; a = a->next)
		count += owner_of(a->uid) == owner;
	if (count < USER_PODS_AGENTS_MAX)
		return 0;
	return error_set(err, EXIT_CODE_NOT_PERMITTED,
			 "only root and members of group carve may have more than 4 agents here");
}

static bool refuse_leading(struct call *call, const struct agent *agent)
{
	if (may_lead(call) || (agent && agent->pods && agent->uid == call->peer.uid))
		return false;
	answer_failed(call, HTTP_STATUS_FORBIDDEN, EXIT_CODE_NOT_PERMITTED,
		      "only root and members of group carve may start and stop agents here");
	return true;
}

/* A request whose text is being vouched for: how pods are made. */
struct leading {
	struct call *call;
	struct agent *agent; /* agent_start() copies it */
};

static void leading_free(void *arg)
{
	struct leading *l = arg;

	if (l->agent)
		agent_pods_free(l->agent->pods);
	free(l->agent);
	free(l);
}

static void leading_fail(struct leading *l, const struct error *err)
{
	struct call *call = l->call;

	leading_free(l);
	call_reply_error(call, answer_status(err), err);
}

static void leading_end(struct leading *l)
{
	struct call *call = l->call;
	struct agent *started;
	struct error err = {0};

	/* Then the request is handled anew. */
	if (waits_for_store(call)) {
		leading_free(l);
		return;
	}
	if (agent_start(call->node->queues, l->agent, &started, &err) < 0) {
		leading_fail(l, &err);
		return;
	}
	l->agent->pods = NULL;
	leading_free(l);
	call_reply(call, HTTP_STATUS_CREATED, agent_json(call->node, started));
}

static void on_pods_vouched(void *arg, struct warrant *warrant, struct error *err)
{
	struct leading *l = arg;

	l->agent->pods->warrant = warrant;
	if (err)
		leading_fail(l, err);
	else
		leading_end(l);
}

/* Pods are made by the client: the launcher asks the kernel who that is. */
static void pods_vouch(struct leading *l)
{
	struct agent_pods *pods = l->agent->pods;
	struct error err = {0};

	if (!pods) {
		leading_end(l);
		return;
	}
	pods->text = agent_text(l->agent);
	int rc = pods->text ? api_vouch(l->call,
					&(struct launcher_wish){WARRANT_PODS, 1, 1, pods->text},
					on_pods_vouched, leading_free, l, &err)
			    : error_set(&err, EXIT_CODE_FAILED, "out of memory");
	if (rc < 0)
		leading_fail(l, &err);
}

static int leading_read(struct leading *l, const json_t *body, struct error *err)
{
	struct call *call = l->call;

	if (!may_lead(call) && may_have_pods(call, err) < 0)
		return -1;
	int rc = json_is_object(body)
			 ? agent_read(call, body, l->agent, err)
			 : error_set(err, EXIT_CODE_USAGE, "the body is not a JSON object");
	if (rc == 0 && !l->agent->pods && call->node->pool.state != POOL_READY)
		rc = error_set(err, EXIT_CODE_NO_ROOM, "this host has no GPU for an agent");
	return rc;
}

void api_post_agent(struct call *call, const char *id)
{
	if (waits_for_store(call))
		return;
	struct leading *l = calloc(1, sizeof(*l));
	struct error err = {0};
	json_t *body = l ? answer_body(call, &err) : NULL;
	bool has_pods = json_is_object(json_object_get(body, "pods"));

	if (body && !has_pods && refuse_leading(call, NULL)) {
		json_decref(body);
		free(l);
		return;
	}
	if (l)
		*l = (struct leading){.call = call, .agent = calloc(1, sizeof(*l->agent))};
	int rc = !l || !l->agent ? error_set(&err, EXIT_CODE_FAILED, "out of memory")
		 : !body         ? -1
				 : leading_read(l, body, &err);
	json_decref(body);
	if (rc == 0) {
		pods_vouch(l);
		// NOLINTNEXTLINE(clang-analyzer-unix.Malloc): a callback of api_vouch() frees it
		return;
	}
	if (l)
		leading_free(l);
	call_reply_error(call, answer_status(&err), &err);
}

/* ---- changing ----------------------------------------------------------------------------- */

static struct agent *agent_or_reply(struct call *call, const char *id)
{
	struct agent *agent = agent_find(call->node->queues, id);

	if (refuse_leading(call, agent))
		return NULL;
	if (!agent)
		answer_failed(call, HTTP_STATUS_NOT_FOUND, EXIT_CODE_FAILED,
			      "there is no agent %.32s; `carve agent --status` shows them", id);
	return agent;
}

void api_patch_agent(struct call *call, const char *id)
{
	if (waits_for_store(call))
		return;
	struct agent *agent = agent_or_reply(call, id);
	struct error err = {0};

	if (!agent)
		return;
	json_t *body = answer_body(call, &err);
	const json_t *drain = json_object_get(body, "drain");
	const char *queue = json_string_value(json_object_get(body, "queue"));
	int rc = !body ? -1
		 : json_is_boolean(drain)
			 ? 0
			 : error_set(&err, EXIT_CODE_USAGE, "'drain' takes true or false");

	if (rc == 0 && agent_drain(agent, queue, json_is_true(drain)) < 0)
		rc = error_set(&err, EXIT_CODE_FAILED, "agent %s has no queue %.64s", agent->id,
			       queue);
	json_decref(body);
	if (rc < 0)
		call_reply_error(call, answer_status(&err), &err);
	else
		call_reply(call, HTTP_STATUS_OK, agent_json(call->node, agent));
}

void api_delete_agent(struct call *call, const char *id)
{
	if (waits_for_store(call))
		return;
	struct agent *agent = agent_or_reply(call, id);
	const char *now = call_argument(call, "now");
	char name[16];

	if (!agent)
		return;
	snprintf(name, sizeof(name), "%s", agent->id);
	agent_stop(agent, now && strcmp(now, "0") != 0, "stopped");
	call_reply(call, HTTP_STATUS_OK, json_pack("{s:s, s:s}", "id", name, "state", "stopped"));
}
