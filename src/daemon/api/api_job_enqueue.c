/* Requests to enqueue a job. */
#include <ctype.h>
#include <errno.h>
#include <http_parser.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "core/place.h"
#include "core/queue_spec.h"
#include "daemon/api/answer.h"
#include "daemon/api/api_job.h"
#include "daemon/api/api_job_private.h"
#include "daemon/api/api_vouch.h"
#include "daemon/api/http.h"
#include "daemon/api/view.h"
#include "daemon/node.h"
#include "daemon/queue/agents.h"
#include "daemon/queue/enqueue.h"
#include "daemon/queue/job_asked.h"
#include "daemon/queue/job_store.h"
#include "daemon/queue/job_table.h"
#include "daemon/queue/job_why.h"
#include "daemon/queue/launcher.h"
#include "daemon/queue/queue_context.h"
#include "daemon/request/request.h"
#include "daemon/waiting/quota_check.h"
#include "daemon/waiting/refusal.h"
#include "proto/warden_jobs.h"

static void on_enqueued(void *arg, int64_t id, uint32_t count, const struct error *err)
{
	struct call *call = arg;
	struct job *job = id ? job_find(call->node->queues, id) : NULL;
	char text[JOB_ID_TEXT], why[JOB_WHY_SIZE];

	if (err) {
		call_reply_error(call, HTTP_STATUS_CONFLICT, err);
		return;
	}
	snprintf(text, sizeof(text), "%" PRId64, job_id_number(id));
	call_reply(call, HTTP_STATUS_CREATED,
		   json_pack("{s:s, s:i, s:o}", "id", text, "count", (int)count, "reason",
			     json_string(job ? job_halt(job, why) : "")));
}

static void on_enqueuer_gone(struct call *call)
{
	jobs_enqueue_forget(call->node->queues, call);
}

bool api_job_may_raise(const struct peer *peer)
{
	return peer->admin || peer->uid == geteuid();
}

/* A quota that is used up is waited for; one that is smaller than the job refuses it. */
static int quota_check_ever(const struct node *node, const struct peer *peer,
			    const struct place_result *fewest, struct error *err)
{
	struct error why = {0};

	if (quotas_check(&node->quotas, peer, fewest, &why) != -EPERM)
		return 0;
	*err = why;
	error_hint(err, "such a job can never start; ask for less, or ask an administrator (carve "
			"quota)");
	return -EXIT_CODE_NOT_PERMITTED;
}

/* The job is larger than its queue's size. */
static int beyond_queue(const struct node *node, const struct agent *agent, uint32_t position,
			const struct job_spec *spec, struct error *err)
{
	const struct queue_spec *queue = &agent->queue[position].spec;
	uint64_t most = agent->pods ? 0 : agent_queue_most(node->queues, agent, position);
	char asked[REQUEST_TEXT_SIZE], size[QUEUE_SIZE_TEXT], bytes[UNITS_TEXT_SIZE];

	error_set(err, EXIT_CODE_USAGE, "the job asks for %s, more than queue %s gives: %s%s%s%s%s",
		  request_text(&spec->request, "", asked), queue->name,
		  queue_size_text(queue, size),
		  queue->size == QUEUE_SIZE_WHOLE ? " whole GPUs" : " of a GPU",
		  most ? ", at most " : "", most ? units_format_bytes(most, bytes) : "",
		  most && queue->size == QUEUE_SIZE_WHOLE ? " each" : "");
	error_hint(err, "`carve queue list` shows the sizes of queues");
	refusal_mebibytes_hint(&node->pool, &spec->request, err);
	return -EXIT_CODE_USAGE;
}

/* No GPU of the agent's can ever hold such a job. */
static int beyond_gpus(const struct node *node, const struct agent *agent, uint32_t position,
		       const struct place_request *request, struct error *err)
{
	char asked[REQUEST_TEXT_SIZE], bytes[UNITS_TEXT_SIZE];
	uint8_t allowed[PLACE_GPUS_MAX];
	uint32_t count = 0;

	agent_allowed(node->queues, agent, allowed);
	for (uint32_t i = 0; i < node->pool.count; i++)
		count += allowed[i];
	error_set(err, EXIT_CODE_NO_ROOM,
		  "no GPU of queue %s's agent can ever grant %s: it has %u GPU%s, with %s at most",
		  agent->queue[position].spec.name, request_text(request, "", asked), count,
		  count == 1 ? "" : "s",
		  units_format_bytes(agent_queue_most(node->queues, agent, position), bytes));
	error_hint(err, "`carve gpu list` shows what the GPUs have");
	refusal_mebibytes_hint(&node->pool, request, err);
	return -EXIT_CODE_NO_ROOM;
}

/* A queue's agent knows whether such a job can ever run. */
int api_job_size_check(const struct node *node, const struct peer *peer, const char *queue,
		       const struct job_spec *spec, struct error *err)
{
	struct place_request request;
	struct place_result fewest;
	uint32_t position, least;
	const struct agent *agent = agent_serving(node->queues, queue, peer->uid, &position);

	if (!agent)
		return 0;
	int rc = agent_request(node->queues, agent, position, spec, &request, &least);
	if (rc == -EINVAL) {
		error_set(err, EXIT_CODE_USAGE,
			  "queue %s gives jobs no size, and this one has none", queue);
		error_hint(err, "say it: carve enqueue --queue %s --vram 4 CMD", queue);
		return -EXIT_CODE_USAGE;
	}
	if (rc == -ERANGE)
		return beyond_queue(node, agent, position, spec, err);
	const char *option = agent_refuses(agent, spec);
	if (option) {
		error_set(err, EXIT_CODE_USAGE, "agent %s does not allow %.*s for containers",
			  agent->id, (int)strcspn(option, "\n"), option);
		error_hint(err, "ask %s, who started it", view_user(agent->uid));
		return -EXIT_CODE_USAGE;
	}
	if (agent->pods)
		return 0;
	request.count = least ? least : request.count;
	if (agent_least(node->queues, agent, &request, &fewest) == 0)
		return quota_check_ever(node, peer, &fewest, err);
	return beyond_gpus(node, agent, position, &request, err);
}

static int user_note(void *arg, const struct job_record *record)
{
	*(uid_t *)arg = record->uid;
	return 0;
}

/* A job that comes after another one tells when that ends, and how. */
static int after_check_one(const struct node *node, const struct peer *peer,
			   const struct job_after *after, struct error *err)
{
	struct job_store *store = node->queues->store;
	char id[JOB_ID_TEXT];
	uid_t uid;
	int rc = after->index < 0
			 ? job_store_each_part(store, after->job, -1, 1, user_note, &uid)
			 : job_store_each_of(store, after->job, after->index, user_note, &uid);

	if (rc == 0 && peer_permitted(peer, uid))
		return 0;
	if (rc == 0) {
		error_set(err, EXIT_CODE_NOT_PERMITTED, "after: job %s is another user's",
			  job_after_text(after, id));
		return -EXIT_CODE_NOT_PERMITTED;
	}
	error_set(err, EXIT_CODE_USAGE, "after: there is no job %s", job_after_text(after, id));
	error_hint(err, "`carve job list` shows them");
	return -EXIT_CODE_USAGE;
}

int api_job_after_check(const struct node *node, const struct peer *peer,
			const struct job_spec *spec, struct error *err)
{
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < spec->after_count; i++)
		rc = after_check_one(node, peer, &spec->after[i], err);
	return rc;
}

/* Whether the daemon can run jobs for this user. */
static int runs_for(const struct call *call, struct error *err)
{
	if (launcher_is_there(&call->node->launcher) || call->peer.uid == geteuid())
		return 0;
	error_set(err, EXIT_CODE_NOT_PERMITTED, "this daemon runs jobs of user %s only, not of %u",
		  view_user(geteuid()), call->peer.uid);
	if (call->node->options.system)
		error_hint(err, "%s; `carve run --wait-for 10m --vram SIZE CMD` needs none",
			   *call->node->launcher.why_not
				   ? call->node->launcher.why_not
				   : "a system daemon that root started runs everybody's");
	else
		error_hint(err, "enqueue it as that user");
	return -EXIT_CODE_NOT_PERMITTED;
}

/* One that was asked for before. True: answered. */
static bool answer_asked(struct call *call, const char *key)
{
	struct job_asked asked;

	if (key && jobs_enqueue_has(call->node->queues, call->peer.uid, key)) {
		answer_failed(call, HTTP_STATUS_CONFLICT, EXIT_CODE_FAILED,
			      "the same request is being written down: ask again");
		return true;
	}
	if (!key || job_store_asked_get(call->node->queues->store, key, call->peer.uid, &asked) < 0)
		return false;
	on_enqueued(call, asked.job, asked.count, NULL);
	return true;
}

/* The queue's image, or its agent's, where the user named none: it is in the text that is vouched
 * for, so that nobody can name another one later. */
static void image_default(const struct call *call, const char *queue, json_t *body)
{
	uint32_t position;
	const struct agent *agent =
		agent_serving(call->node->queues, queue, call->peer.uid, &position);
	const char *image = !agent ? "" : agent->queue[position].spec.image;

	if (agent && !*image)
		image = agent->image;
	if (*image && !json_object_get(body, "image"))
		json_object_set_new(body, "image", json_string(image));
}

/* Options for a container, of a job that has none: its user meant it to have one. */
static int container_check(const struct job_spec *spec, struct error *err)
{
	if (!*spec->container_args || *spec->image)
		return 0;
	error_set(err, EXIT_CODE_USAGE,
		  "container_args: the job has no container, as no image is named");
	error_hint(err, "name one: --docker IMAGE");
	return -EXIT_CODE_USAGE;
}

/* The length of the word at `at` as names of parameters and of variables have it. */
static size_t name_length(const char *at)
{
	size_t length = 0;

	while (isalnum((unsigned char)at[length]) || at[length] == '_')
		length++;
	return length;
}

/* Takes out of `unused` what a word of the command names: {NAME}, or the variable NAME. */
static int word_check(const json_t *params, const char *word, json_t *unused, struct error *err)
{
	for (const char *at = word; *at;) {
		size_t length = name_length(at);
		cleanup_free char *name = length ? strndup(at, length) : NULL;
		/* ${NAME} is a shell's. */
		bool braced = at > word && at[-1] == '{' && at[length] == '}' &&
			      !isdigit((unsigned char)*at) && !(at > word + 1 && at[-2] == '$');

		if (name && braced && !json_object_get(params, name)) {
			error_set(err, EXIT_CODE_USAGE,
				  "param: {%.64s} in the command is no parameter", name);
			error_hint(err,
				   "give its values: --param %.48s=1,2; to leave {%.48s} as it is: "
				   "--param %.48s={%.48s}",
				   name, name, name, name);
			return -EXIT_CODE_USAGE;
		}
		if (name)
			(void)json_object_del(unused, name);
		at += length ? length : 1;
	}
	// NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the name is freed by its cleanup
	return 0;
}

/* A sweep's command uses each parameter, and no other. One pass over the command, whose length its
 * user decides. */
static int params_check(const json_t *body, struct error *err)
{
	const json_t *params = json_object_get(body, "params");
	json_t *unused = json_is_object(params) ? json_copy((json_t *)params) : NULL, *word;
	size_t i;
	int rc = 0;

	if (!unused)
		return 0;
	json_array_foreach(json_object_get(body, "argv"), i, word)
	{
		if (rc == 0 && json_object_size(params) && json_is_string(word))
			rc = word_check(params, json_string_value(word), unused, err);
	}
	const char *left = json_object_iter_key(json_object_iter(unused));
	if (rc == 0 && left) {
		rc = error_set(err, EXIT_CODE_USAGE, "param: the command never uses %.64s", left);
		error_hint(err,
			   "write {%.48s} where its value belongs; for a program that reads its "
			   "environment: env %.48s={%.48s} CMD",
			   left, left, left);
	}
	json_decref(unused);
	return rc;
}

/* A request whose text is being vouched for. */
struct enqueuing {
	struct call *call;
	json_t *body;
	struct enqueue_request request;
};

static void enqueuing_free(void *arg)
{
	struct enqueuing *e = arg;

	json_decref(e->body);
	free(e->request.spec.warrant);
	free(e->request.text);
	free(e->request.indexes);
	free(e);
}

/* The warrant is there, or is not needed. */
static void on_vouched(void *arg, struct warrant *warrant, struct error *err)
{
	struct enqueuing *e = arg;
	struct call *call = e->call;
	int rc = err ? -err->code : 0;
	struct error failed = err ? *err : (struct error){0};

	e->request.spec.warrant = warrant;
	if (rc == 0 && answer_asked(call, e->request.key)) {
		enqueuing_free(e);
		return;
	}
	if (rc == 0)
		rc = jobs_enqueue(call->node->queues, &e->request);
	if (rc == 0) {
		e->request.spec.warrant = NULL;
		e->request.text = NULL;
		e->request.indexes = NULL;
		enqueuing_free(e);
		call_defer(call, on_enqueuer_gone);
		return;
	}
	if (rc == -EMFILE)
		error_set(&failed, EXIT_CODE_FAILED, QUEUE_TOO_MANY);
	else if (rc == -ENOMEM)
		error_set(&failed, EXIT_CODE_FAILED, "out of memory");
	enqueuing_free(e);
	call_reply_error(call, answer_status(&failed), &failed);
}

static int request_read(struct enqueuing *e, struct error *err)
{
	struct enqueue_request *request = &e->request;
	struct call *call = e->call;
	int rc = runs_for(call, err);

	if (rc == 0 && !request->queue) {
		rc = error_set(err, EXIT_CODE_USAGE, "queue: no queue is named");
		error_hint(err, "`carve queue list` shows the queues");
	}
	if (rc == 0)
		rc = queue_name_check(request->queue, err);
	if (rc == 0 && request->key && strlen(request->key) >= 64)
		rc = error_set(err, EXIT_CODE_USAGE, "id: it is longer than 63 characters");
	if (rc == 0) {
		image_default(call, request->queue, e->body);
		api_job_time_default(call->node, e->body);
		rc = job_spec_parse(e->body, &call->peer, api_job_may_raise(&call->peer),
				    &request->spec, &request->count, &request->indexes, err);
	}
	if (rc == 0)
		rc = container_check(&request->spec, err);
	if (rc == 0)
		rc = api_job_time_check(call->node, &request->spec, err);
	if (rc == 0)
		rc = api_job_size_check(call->node, &call->peer, request->queue, &request->spec,
					err);
	if (rc == 0)
		rc = api_job_after_check(call->node, &call->peer, &request->spec, err);
	if (rc == 0 && !(request->text = json_dumps(e->body, JOB_TEXT_FORM)))
		rc = error_set(err, EXIT_CODE_FAILED, "out of memory");
	return rc;
}

int api_job_enqueue(struct call *call, json_t *body, struct error *err)
{
	struct enqueuing *e = calloc(1, sizeof(*e));

	if (!e)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	e->call = call;
	e->body = json_incref(body);
	e->request = (struct enqueue_request){
		.peer = &call->peer,
		.queue = json_string_value(json_object_get(body, "queue")),
		.key = json_string_value(json_object_get(body, "id")),
		.cb = on_enqueued,
		.arg = call,
	};
	int rc = request_read(e, err);
	if (rc == 0)
		rc = api_vouch(call,
			       &(struct launcher_wish){WARRANT_JOB, e->request.count,
						       job_spec_attempts(&e->request.spec),
						       e->request.text},
			       on_vouched, enqueuing_free, e, err);
	if (rc < 0)
		enqueuing_free(e);
	// NOLINTNEXTLINE(clang-analyzer-unix.Malloc): a callback of api_vouch() frees it
	return rc;
}

/* NULL with *err set: it has more values than are read in one piece, or is no JSON. */
static json_t *job_body(struct call *call, struct error *err)
{
	if (job_asked_values(call->body, call->body_size) <= JOB_VALUES_MAX)
		return answer_body(call, err);
	error_set(err, EXIT_CODE_USAGE,
		  "the job has more than %u words and variables of its environment together",
		  JOB_VALUES_MAX);
	error_hint(err, "have the command read its words from a file, as `xargs -a FILE` does");
	return NULL;
}

void api_post_job(struct call *call, const char *id)
{
	struct error err = {0};
	json_t *body = job_body(call, &err);
	int rc = json_is_object(body) ? 0 : -1;

	if (body && rc < 0)
		error_set(&err, EXIT_CODE_USAGE, "the body is not a JSON object");
	if (rc == 0 && answer_asked(call, json_string_value(json_object_get(body, "id")))) {
		json_decref(body);
		return;
	}
	if (rc == 0)
		rc = params_check(body, &err);
	if (rc == 0)
		rc = api_job_enqueue(call, body, &err);
	json_decref(body);
	if (rc < 0)
		call_reply_error(call, answer_status(&err), &err);
}
