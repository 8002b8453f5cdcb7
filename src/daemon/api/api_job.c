/* The requests of jobs. Longer than other files, as each is a short function, and enqueueing,
 * enqueueing again and changing share what they read of a request. */
#include "daemon/api/api_job.h"

#include <errno.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/api/answer.h"
#include "daemon/api/http.h"
#include "daemon/api/view.h"
#include "daemon/node.h"
#include "daemon/queue/queue_private.h"
#include "daemon/waiting/quotas.h"
#include "proto/launcher.h"
#include "proto/shim.h"
#include "proto/shim_sweep.h"

/* Ended jobs in a list, unless `ended` says otherwise. */
#define ENDED_DEFAULT 20u
/* In one answer: a job takes some 20 us to be shown, and the loop waits meanwhile. */
#define PART_JOBS 64u
#define UNPAGED_JOBS 256u
/* Jobs of other queues than the one that is asked for, that one answer passes over. */
#define LOOKS_MAX 4096u

/* ---- showing ------------------------------------------------------------------------------ */

static json_t *gpus_json(const struct job_record *record)
{
	json_t *list = json_array(), *place = json_loads(record->place, 0, NULL), *item;
	size_t i;

	json_array_foreach(place, i, item) json_array_append(list, json_array_get(item, 0));
	json_decref(place);
	return list;
}

static json_t *record_json(const struct queues *queues, const struct job_record *r, const char *why)
{
	char id[JOB_ID_TEXT], log[PATH_MAX];
	bool ended = job_state_ended(r->state);

	job_file(queues, r, SHIM_LOG, log);
	return json_pack(
		"{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:s, s:i, s:i, s:o, "
		"s:o, s:o, s:o, s:o, s:o}",
		"id", job_id_text(r, id), "name", r->name, "queue", r->queue, "state",
		job_state_text(r->state), "session",
		*r->session ? json_string(r->session) : json_null(), "gpus", gpus_json(r),
		"exit_code", ended && r->started ? json_integer(r->exit_code) : json_null(),
		"signal", r->signal ? json_integer(r->signal) : json_null(), "enqueued",
		view_time(r->enqueued), "started", view_time(r->started), "ended",
		view_time(r->ended), "reason", *r->reason ? r->reason : why, "user",
		view_user(r->uid), "priority", r->priority, "attempt", (int)r->attempt, "array",
		r->array ? json_integer(r->array) : json_null(), "index",
		r->array ? json_integer(r->index) : json_null(), "peak_bytes",
		answer_number(r->peak_bytes), "gpu_ns", answer_number(r->gpu_ns), "rss_bytes",
		answer_number(r->rss_bytes), "log", r->attempt ? json_string(log) : json_null());
}

static json_t *job_json(const struct job *job)
{
	struct job_record record = job->record;
	char why[JOB_WHY_SIZE];

	job_why(job, why);
	/* Of the attempt before: what counts now is why it waits. */
	if (*why)
		record.reason = why;
	json_t *object = record_json(job->queues, &record, why);
	struct job_prospect prospect = job_prospect(job);
	if (prospect.blocker)
		json_object_set_new(object, "blocked_by",
				    json_sprintf("%" PRId64, prospect.blocker));
	if (prospect.starts)
		json_object_set_new(object, "starts_by", view_time(prospect.starts));
	return object;
}

struct listing {
	struct call *call;
	json_t *list;
	const char *queue;
	bool forbidden;
	uint32_t rows; /* that were looked at */
	int64_t spec;  /* of the last one, and its place in the array */
	int32_t index;
	char next[64]; /* where the next part begins; "": there is none */
};

static int list_ended(void *arg, const struct job_record *record)
{
	struct listing *listing = arg;

	listing->rows++;
	snprintf(listing->next, sizeof(listing->next), "%" PRId64 ".%" PRId64, record->ended,
		 record->id);
	if (!listing->queue || !strcmp(listing->queue, record->queue))
		json_array_append_new(listing->list,
				      record_json(listing->call->node->queues, record, ""));
	return 0;
}

static void ended_add(struct listing *listing, const struct job_place *before, uint32_t limit)
{
	const struct peer *peer = &listing->call->peer;

	(void)job_store_each_ended(listing->call->node->queues->store,
				   peer->admin ? (uid_t)-1 : peer->uid, before, limit, list_ended,
				   listing);
	if (listing->rows < limit)
		listing->next[0] = '\0';
}

static void reply_part(struct listing *listing)
{
	call_reply(listing->call, MHD_HTTP_OK,
		   json_pack("{s:o, s:o}", "jobs", listing->list, "next",
			     *listing->next ? json_string(listing->next) : json_null()));
}

static void bad_part(struct call *call, const char *name)
{
	answer_failed(call, MHD_HTTP_BAD_REQUEST, EXIT_CODE_USAGE,
		      "%s: takes what `next` of the part before said; empty: the first", name);
}

/* Where a part of the living jobs begins: behind this one. */
struct living_place {
	uid_t uid;
	uint64_t came; /* 0: before all of the user's */
	int64_t id;
};

/* Of one user. False: the part is full. */
static bool living_add_of(struct listing *l, const struct queue_use *user, struct living_place at,
			  size_t most)
{
	for (const struct job *job = jobs_after(user, at.came, at.id); job;
	     job = job->next_of_user) {
		if (json_array_size(l->list) >= most || l->rows++ == LOOKS_MAX)
			return false;
		snprintf(l->next, sizeof(l->next), "%u.%" PRIu64 ".%" PRId64, user->uid, job->came,
			 job->record.id);
		if (!l->queue || !strcmp(l->queue, job->record.queue))
			json_array_append_new(l->list, job_json(job));
	}
	return true;
}

/* The caller's own, or of an administrator's all, user by user. */
static void living_add(struct listing *l, struct living_place at, size_t most)
{
	struct queues *q = l->call->node->queues;
	const struct peer *peer = &l->call->peer;
	uid_t first = peer->admin ? at.uid : peer->uid;
	const struct queue_use *user =
		peer->admin && !at.came ? q->uses : queue_use_get(q, first, false);

	for (; user; user = peer->admin ? user->next : NULL) {
		if (!living_add_of(l, user, at, most))
			return;
		at = (struct living_place){0};
	}
	l->next[0] = '\0';
}

static bool living_place_parse(const char *at, struct living_place *ret)
{
	int64_t uid, came;

	if (!answer_number_take(&at, '.', &uid) || !answer_number_take(&at, '.', &came) ||
	    !answer_number_take(&at, '\0', &ret->id) || uid < 0 || uid > UINT32_MAX || came < 0)
		return false;
	ret->uid = (uid_t)uid;
	ret->came = (uint64_t)came;
	return true;
}

static void reply_living(struct listing *listing, const char *text)
{
	struct living_place at = {0};

	if (*text && !living_place_parse(text, &at)) {
		json_decref(listing->list);
		bad_part(listing->call, "part");
		return;
	}
	living_add(listing, at, PART_JOBS);
	reply_part(listing);
}

static void reply_ended(struct listing *listing, const char *text, uint32_t limit)
{
	struct job_place before;
	const char *at = text;

	if (*text && (!answer_number_take(&at, '.', &before.ended) ||
		      !answer_number_take(&at, '\0', &before.id))) {
		json_decref(listing->list);
		bad_part(listing->call, "before");
		return;
	}
	ended_add(listing, *text ? &before : NULL, MIN(limit, PART_JOBS));
	reply_part(listing);
}

static void reply_unpaged(struct listing *listing, uint32_t limit)
{
	ended_add(listing, NULL, MIN(limit, UNPAGED_JOBS));
	/* The latest last, as they are read. */
	json_t *ordered = json_array();
	for (size_t i = json_array_size(listing->list); i; i--)
		json_array_append(ordered, json_array_get(listing->list, i - 1));
	json_decref(listing->list);
	listing->list = ordered;
	listing->rows = 0;
	living_add(listing, (struct living_place){0}, json_array_size(ordered) + UNPAGED_JOBS);
	call_reply(listing->call, MHD_HTTP_OK, listing->list);
}

void api_get_jobs(struct call *call, const char *id)
{
	struct listing listing = {
		.call = call, .list = json_array(), .queue = call_argument(call, "queue")};
	const char *ended = call_argument(call, "ended"), *part = call_argument(call, "part"),
		   *before = call_argument(call, "before");
	uint32_t limit =
		ended ? (uint32_t)MIN(strtoul(ended, NULL, 10), UINT32_MAX) : ENDED_DEFAULT;

	if (part)
		reply_living(&listing, part);
	else if (before)
		reply_ended(&listing, before, limit);
	else
		reply_unpaged(&listing, limit);
}

/* ---- one job or array --------------------------------------------------------------------- */

static void no_job(struct call *call, const char *text)
{
	struct error err = {0};

	error_set(&err, EXIT_CODE_FAILED, "there is no job %.64s", text);
	error_hint(&err, "`carve job list` shows them");
	call_reply_error(call, MHD_HTTP_NOT_FOUND, &err);
}

/* The request of one job: all but its environment, which may have secrets, and what the
 * command's shell had. */
static void asked_add(const struct listing *listing, json_t *job)
{
	static const char *const private[] = {"env", "limits", "umask"};
	cleanup_free char *text = NULL;

	if (job_store_spec_get(listing->call->node->queues->store, listing->spec, &text, NULL) < 0)
		return;
	json_t *asked = json_loads(text, 0, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(private); i++)
		json_object_del(asked, private[i]);
	const json_t *params = json_object_get(asked, "params");
	if (params)
		json_object_set_new(asked, "params", shim_sweep_choose(params, listing->index));
	json_object_set_new(job, "asked", asked);
}

/* A job that has not ended is newer in memory. */
static int list_meant(void *arg, const struct job_record *record)
{
	struct listing *listing = arg;
	const struct job *job = job_find(listing->call->node->queues, record->id);

	if (!peer_permitted(&listing->call->peer, record->uid)) {
		listing->forbidden = true;
		return 0;
	}
	listing->rows++;
	listing->spec = job ? job->record.spec : record->spec;
	listing->index = record->index;
	if (job)
		json_array_append_new(listing->list, job_json(job));
	else if (job_state_ended(record->state))
		json_array_append_new(listing->list,
				      record_json(listing->call->node->queues, record, ""));
	return 0;
}

/* The jobs that an ID stands for, up to `most` of them with an index above `after`, in ret->list,
 * which is the caller's. False: answered. */
static bool meant_or_reply(struct call *call, const char *text, int32_t after, uint32_t most,
			   struct listing *ret)
{
	struct listing listing = {.call = call, .list = json_array()};
	struct job_store *store = call->node->queues->store;
	int64_t id;
	int32_t index;

	if (job_id_parse(text, &id, &index) < 0) {
		no_job(call, text);
		json_decref(listing.list);
		return false;
	}
	if (index >= 0)
		(void)job_store_each_of(store, id, index, list_meant, &listing);
	else
		(void)job_store_each_part(store, id, after, most, list_meant, &listing);
	if (listing.rows == most)
		snprintf(listing.next, sizeof(listing.next), "%d", listing.index);
	if (listing.rows) {
		*ret = listing;
		return true;
	}
	if (listing.forbidden)
		answer_failed(call, MHD_HTTP_FORBIDDEN, EXIT_CODE_NOT_PERMITTED,
			      "job %.64s is another user's", text);
	else
		no_job(call, text);
	json_decref(listing.list);
	return false;
}

struct wait {
	struct call *call;
	char id[JOB_ID_TEXT];
};

static void wait_answer(void *arg);

static void on_waiter_gone(struct call *call)
{
	queue_unlisten(call->node->queues, call);
}

/* Who follows a job's output waits for its next attempt, too: for one after `attempt`. */
static bool has_begun_anew(struct call *call, const struct job *job)
{
	const char *attempt = call_argument(call, "attempt");

	return attempt && job->record.state == JOB_RUNNING &&
	       job->record.attempt > strtoul(attempt, NULL, 10);
}

/* True: it waits. Nothing of the jobs is put together until all have ended. */
static bool wait_on(struct call *call, const char *text, bool deferred)
{
	const char *wait = call_argument(call, "wait");
	const struct job *job;
	int64_t id;
	int32_t index;

	if (!wait || !strcmp(wait, "0") || job_id_parse(text, &id, &index) < 0)
		return false;
	job = job_meant(call->node->queues, id, index);
	if (!job || !peer_permitted(&call->peer, job->record.uid) || has_begun_anew(call, job) ||
	    queue_listen(call->node->queues, wait_answer, call) < 0)
		return false;
	if (!deferred)
		call_defer(call, on_waiter_gone);
	return true;
}

static void reply_meant(struct listing *listing, bool parts, bool first)
{
	if (first && json_array_size(listing->list) == 1)
		asked_add(listing, json_array_get(listing->list, 0));
	if (parts) {
		reply_part(listing);
	} else if (*listing->next) {
		json_decref(listing->list);
		answer_failed(listing->call, MHD_HTTP_BAD_REQUEST, EXIT_CODE_USAGE,
			      "the array has more than %u jobs: ask for parts of it (?part=), or "
			      "for one of them",
			      UNPAGED_JOBS);
	} else {
		call_reply(listing->call, MHD_HTTP_OK, listing->list);
	}
}

static void answer_or_wait(struct call *call, const char *id, bool deferred)
{
	const char *part = call_argument(call, "part");
	struct listing listing;
	char *end = "";
	long after = part && *part ? strtol(part, &end, 10) : -1;

	if (wait_on(call, id, deferred))
		return;
	if (*end || after < -1 || after > INT32_MAX)
		bad_part(call, "part");
	else if (meant_or_reply(call, id, (int32_t)after, part ? PART_JOBS : UNPAGED_JOBS + 1,
				&listing))
		reply_meant(&listing, part != NULL, after == -1);
}

static void wait_answer(void *arg)
{
	struct call *call = arg;

	answer_or_wait(call, call->path + strlen(HTTP_JOBS_PATH "/"), true);
}

void api_get_job(struct call *call, const char *id)
{
	answer_or_wait(call, id, false);
}

/* ---- events ------------------------------------------------------------------------------- */

static void events_answer(void *arg)
{
	struct call *call = arg;
	const char *from = call_argument(call, "from");
	uint64_t last = queue_events_last(call->node->queues);

	call_reply(call, MHD_HTTP_OK,
		   json_pack("{s:o, s:o}", "next", answer_number(last), "events",
			     queue_events(call->node->queues, from ? strtoull(from, NULL, 10) : 0,
					  &call->peer)));
}

void api_get_job_events(struct call *call, const char *id)
{
	const char *from = call_argument(call, "from"), *wait = call_argument(call, "wait");

	if (wait && strcmp(wait, "0") != 0 && from &&
	    strtoull(from, NULL, 10) == queue_events_last(call->node->queues) &&
	    queue_listen(call->node->queues, events_answer, call) == 0)
		call_defer(call, on_waiter_gone);
	else
		events_answer(call);
}

/* ---- enqueueing --------------------------------------------------------------------------- */

static bool is_served(const struct job *job)
{
	uint32_t position;

	return !job || agent_serving(job->queues, job->record.queue, job->record.uid, &position);
}

static void on_enqueued(void *arg, int64_t id, uint32_t count, const struct error *err)
{
	struct call *call = arg;
	struct job *job = id ? job_find(call->node->queues, id) : NULL;
	char text[JOB_ID_TEXT];

	if (err) {
		call_reply_error(call, MHD_HTTP_CONFLICT, err);
		return;
	}
	snprintf(text, sizeof(text), "%" PRId64, id);
	call_reply(call, MHD_HTTP_CREATED,
		   json_pack("{s:s, s:i, s:o}", "id", text, "count", (int)count, "reason",
			     json_string(is_served(job) ? "" : "no agent serves its queue")));
}

static void on_enqueuer_gone(struct call *call)
{
	jobs_enqueue_forget(call->node->queues, call);
}

static bool may_raise(const struct peer *peer)
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

/* A queue's agent knows whether such a job can ever run. */
static int size_check(const struct node *node, const struct peer *peer, const char *queue,
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
	if (rc == -ERANGE) {
		error_set(err, EXIT_CODE_USAGE, "the job asks for more than queue %s gives", queue);
		error_hint(err, "`carve queue list` shows the sizes of queues");
		return -EXIT_CODE_USAGE;
	}
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
	error_set(err, EXIT_CODE_NO_ROOM, "no GPU of queue %s's agent can ever grant that", queue);
	error_hint(err, "`carve gpu list` shows what the GPUs have");
	return -EXIT_CODE_NO_ROOM;
}

static int after_check(const struct call *call, const struct job_spec *spec, struct error *err)
{
	for (unsigned i = 0; i < spec->after_count; i++) {
		const struct job_after *after = &spec->after[i];

		if (job_store_has(call->node->queues->store, after->job, after->index))
			continue;
		error_set(err, EXIT_CODE_USAGE, "after: there is no job %" PRId64, after->job);
		error_hint(err, "`carve job list` shows them");
		return -EXIT_CODE_USAGE;
	}
	return 0;
}

/* Whom the daemon can run a job for. */
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

static int away_error(struct error *err)
{
	error_set(err, EXIT_CODE_FAILED,
		  "carve-launcher.service, which starts users' jobs, does not answer now");
	error_hint(err, "where it is just being started anew, try again; "
			"`systemctl status carve-launcher.service` tells");
	return -EXIT_CODE_FAILED;
}

int api_job_warrant(const struct call *call, const char *text, struct warrant **ret,
		    struct error *err)
{
	struct warrant *warrant;

	*ret = NULL;
	if (!launcher_is_there(&call->node->launcher))
		return 0;
	warrant = malloc(sizeof(*warrant));
	int rc = warrant ? launcher_vouch(&call->node->launcher, call_socket(call), text, warrant)
			 : -ENOMEM;
	if (rc == 0 && warrant->uid != call->peer.uid)
		rc = -EPERM;
	if (rc < 0) {
		free(warrant);
		return launcher_is_away(&call->node->launcher)
			       ? away_error(err)
			       : error_set(err, EXIT_CODE_FAILED,
					   "cannot tell who sent the request: %s",
					   strerrordesc_np(-rc));
	}
	*ret = warrant;
	return 0;
}

/* One that was asked for before. True: answered. */
static bool answer_asked(struct call *call, const char *key)
{
	struct job_store *store = call->node->queues->store;
	struct job_counts counts;
	int64_t first;

	if (key && jobs_enqueue_has(call->node->queues, call->peer.uid, key)) {
		answer_failed(call, MHD_HTTP_CONFLICT, EXIT_CODE_FAILED,
			      "the same request is being written down: ask again");
		return true;
	}
	if (!key || job_store_asked_get(store, key, call->peer.uid, &first) < 0 ||
	    job_store_count(store, first, -1, &counts) < 0)
		return false;
	on_enqueued(call, first, counts.all, NULL);
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

static int enqueue(struct call *call, json_t *body, struct error *err)
{
	struct enqueue_request request = {
		.peer = &call->peer,
		.queue = json_string_value(json_object_get(body, "queue")),
		.key = json_string_value(json_object_get(body, "id")),
		.cb = on_enqueued,
		.arg = call,
	};
	int rc = runs_for(call, err);

	if (rc == 0 && !request.queue) {
		rc = error_set(err, EXIT_CODE_USAGE, "queue: no queue is named");
		error_hint(err, "`carve queue list` shows the queues");
	}
	if (rc == 0)
		rc = queue_name_check(request.queue, err);
	if (rc == 0 && request.key && strlen(request.key) >= 64)
		rc = error_set(err, EXIT_CODE_USAGE, "id: it is longer than 63 characters");
	if (rc == 0) {
		image_default(call, request.queue, body);
		rc = job_spec_parse(body, &call->peer, may_raise(&call->peer), &request.spec,
				    &request.count, &request.indexes, err);
	}
	if (rc < 0)
		return rc;
	rc = size_check(call->node, &call->peer, request.queue, &request.spec, err);
	if (rc == 0)
		rc = after_check(call, &request.spec, err);
	request.text = rc == 0 ? json_dumps(body, JSON_COMPACT) : NULL;
	if (rc == 0 && request.text)
		rc = api_job_warrant(call, request.text, &request.spec.warrant, err);
	if (rc == 0)
		rc = request.text ? jobs_enqueue(call->node->queues, &request) : -ENOMEM;
	if (rc == -EMFILE)
		rc = error_set(err, EXIT_CODE_FAILED, QUEUE_TOO_MANY);
	else if (rc == -ENOMEM)
		rc = error_set(err, EXIT_CODE_FAILED, "out of memory");
	if (rc < 0) {
		free(request.spec.warrant);
		free(request.text);
		free(request.indexes);
		return rc;
	}
	call_defer(call, on_enqueuer_gone);
	return 0;
}

void api_post_job(struct call *call, const char *id)
{
	struct error err = {0};
	json_t *body = answer_body(call, &err);
	int rc = json_is_object(body) ? 0 : -1;

	if (body && rc < 0)
		error_set(&err, EXIT_CODE_USAGE, "the body is not a JSON object");
	if (rc == 0 && answer_asked(call, json_string_value(json_object_get(body, "id")))) {
		json_decref(body);
		return;
	}
	if (rc == 0)
		rc = enqueue(call, body, &err);
	json_decref(body);
	if (rc < 0)
		call_reply_error(call, answer_status(&err), &err);
}

/* ---- again -------------------------------------------------------------------------------- */

struct again {
	const struct peer *peer;
	bool failed_only, forbidden;
	int64_t spec;
	char queue[QUEUE_NAME_SIZE];
	json_t *indexes; /* of an array's; NULL: it is none */
	unsigned count;
};

static int again_add(void *arg, const struct job_record *record)
{
	struct again *again = arg;

	/* It would be the asking user's job: nobody is to run another's command by mistake. */
	if (record->uid != again->peer->uid) {
		again->forbidden = true;
		return 0;
	}
	if (again->failed_only && (!job_state_ended(record->state) || record->state == JOB_DONE))
		return 0;
	again->spec = record->spec;
	snprintf(again->queue, sizeof(again->queue), "%s", record->queue);
	again->count++;
	if (record->array)
		json_array_append_new(again->indexes, json_integer(record->index));
	return 0;
}

/* "3,5,7%4": those indexes, at most so many at a time. */
static json_t *indexes_text(const json_t *indexes, const char *before)
{
	const char *most = before ? strchr(before, '%') : NULL;
	char *text = NULL;
	size_t size = 0, i;
	json_t *item;
	FILE *to = open_memstream(&text, &size);

	if (!to)
		return NULL;
	json_array_foreach(indexes, i, item)
		fprintf(to, "%s%d", i ? "," : "", (int)json_integer_value(item));
	fprintf(to, "%s", most ? most : "");
	fclose(to);
	json_t *string = json_string(text);
	free(text);
	return string;
}

/* A job has one size: a new one takes the place of the one before. */
static void changes_apply(json_t *body, const json_t *changes)
{
	static const char *const sizes[] = {"vram_bytes", "vram", "gpu_memory", "gpu"};
	bool sized = false;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		sized |= json_object_get(changes, sizes[i]) != NULL;
	for (size_t i = 0; sized && i < ARRAY_SIZE(sizes); i++)
		json_object_del(body, sizes[i]);
	json_object_update(body, (json_t *)changes);
}

static json_t *again_body(struct call *call, const struct again *again, const json_t *changes)
{
	char *text = NULL;
	json_t *body = NULL;

	if (job_store_spec_get(call->node->queues->store, again->spec, &text, NULL) == 0)
		body = json_loads(text, 0, NULL);
	free(text);
	if (!body)
		return NULL;
	json_object_del(body, "id");
	/* The jobs that it came after are over, or were not waited for. */
	json_object_del(body, "after");
	json_object_del(body, "begin");
	json_object_del(body, "hold");
	json_object_set_new(body, "queue", json_string(again->queue));
	/* A sweep's jobs keep their parameters by their index. */
	if (json_array_size(again->indexes))
		json_object_set_new(body, "array",
				    indexes_text(again->indexes, json_string_value(json_object_get(
									 body, "array"))));
	if (changes)
		changes_apply(body, changes);
	return body;
}

void api_post_job_again(struct call *call, const char *text)
{
	struct again again = {.peer = &call->peer, .indexes = json_array()};
	struct error err = {0};
	json_t *changes = answer_body(call, &err), *body = NULL;
	int64_t id;
	int32_t index;
	int rc = json_is_object(changes) ? 0 : -1;

	if (changes && rc < 0)
		error_set(&err, EXIT_CODE_USAGE, "the body is not a JSON object");
	if (rc == 0 && job_id_parse(text, &id, &index) < 0)
		rc = error_set(&err, EXIT_CODE_FAILED, "there is no job %.64s", text);
	again.failed_only = json_is_true(json_object_get(changes, "failed"));
	json_object_del(changes, "failed");
	if (rc == 0)
		(void)job_store_each_of(call->node->queues->store, id, index, again_add, &again);
	if (rc == 0 && !again.count)
		rc = again.forbidden ? error_set(&err, EXIT_CODE_NOT_PERMITTED,
						 "job %.64s is another user's", text)
		     : again.failed_only
			     ? error_set(&err, EXIT_CODE_FAILED, "no job of %.64s has failed", text)
			     : error_set(&err, EXIT_CODE_FAILED, "there is no job %.64s", text);
	if (rc == 0 && !(body = again_body(call, &again, changes)))
		rc = error_set(&err, EXIT_CODE_FAILED, "job %.64s cannot be read", text);
	if (rc == 0)
		rc = enqueue(call, body, &err);
	json_decref(body);
	json_decref(changes);
	json_decref(again.indexes);
	if (rc < 0)
		call_reply_error(call, answer_status(&err), &err);
}

/* ---- changing ----------------------------------------------------------------------------- */

/* Lives as long as the change, which may take longer than the client waits. */
struct change {
	struct change *next;
	struct call *call; /* NULL: the client is gone */
	struct node *node;
	struct peer peer;
	char id[JOB_ID_TEXT];
	const char *what;
	json_t *body;
	struct error err;
	unsigned done, failed;
};

static struct change *changing; /* those whose client waits */

static struct change *change_new(struct call *call, const char *id, const char *what)
{
	struct change *change = calloc(1, sizeof(*change));

	if (!change) {
		answer_failed(call, MHD_HTTP_INTERNAL_SERVER_ERROR, EXIT_CODE_FAILED,
			      "out of memory");
		return NULL;
	}
	change->call = call;
	change->node = call->node;
	change->peer = call->peer;
	change->what = what;
	snprintf(change->id, sizeof(change->id), "%s", id);
	change->next = changing;
	changing = change;
	return change;
}

static void change_free(struct change *change)
{
	struct change **at = &changing;

	while (*at && *at != change)
		at = &(*at)->next;
	if (*at)
		*at = change->next;
	json_decref(change->body);
	free(change);
}

static void on_changer_gone(struct call *call)
{
	for (struct change *change = changing; change; change = change->next)
		if (change->call == call)
			change->call = NULL;
}

static json_t *edited_text(const struct job *job, const json_t *changes)
{
	char *text = NULL;
	json_t *body = NULL;

	if (job_store_spec_get(job->queues->store, job->record.spec, &text, NULL) == 0)
		body = json_loads(text, 0, NULL);
	free(text);
	if (body)
		changes_apply(body, changes);
	return body;
}

/* Whether more is to change than where and when it runs. */
static bool changes_text(const json_t *changes)
{
	return json_object_size(changes) > (json_object_get(changes, "queue") != NULL) +
						   (json_object_get(changes, "priority") != NULL);
}

static int edit(struct change *change, struct job *job, const char *queue, const int *priority)
{
	bool rewrites = changes_text(change->body);
	struct warrant *warrant = NULL;
	json_t *body = edited_text(job, change->body);
	struct job_spec spec;
	int32_t *indexes = NULL;
	uint32_t count;
	int rc = body ? job_spec_parse(body, &change->peer, may_raise(&change->peer), &spec, &count,
				       &indexes, &change->err)
		      : error_set(&change->err, EXIT_CODE_FAILED, "the job cannot be read");

	free(indexes);
	if (rc == 0)
		rc = size_check(change->node, &change->peer, queue ? queue : job->record.queue,
				&spec, &change->err);
	/* The command that runs as a user is that user's alone to say. */
	if (rc == 0 && rewrites && job->record.uid != change->peer.uid &&
	    launcher_is_there(job->queues->host.launcher))
		rc = error_set(&change->err, EXIT_CODE_NOT_PERMITTED,
			       "only user %s may change what the job runs",
			       view_user(job->record.uid));
	char *text = rc == 0 && rewrites ? json_dumps(body, JSON_COMPACT) : NULL;
	if (text && !change->call)
		rc = error_set(&change->err, EXIT_CODE_FAILED, "the client went away");
	else if (text)
		rc = api_job_warrant(change->call, text, &warrant, &change->err);
	if (rc == 0)
		rc = job_change(job, queue, priority, text, warrant, &change->err);
	free(text);
	json_decref(body);
	return rc;
}

static int change_one(struct change *change, struct job *job)
{
	const json_t *hold = json_object_get(change->body, "hold");
	const json_t *raised = json_object_get(change->body, "priority");
	const char *queue = json_string_value(json_object_get(change->body, "queue"));
	int priority = (int)json_integer_value(raised);

	if (hold)
		return job_hold(job, json_is_true(hold), &change->err);
	return edit(change, job, queue, raised ? &priority : NULL);
}

static void change_job(struct job *job, void *arg)
{
	struct change *change = arg;

	if (!peer_permitted(&change->peer, job->record.uid)) {
		error_set(&change->err, EXIT_CODE_NOT_PERMITTED, "the job is another user's");
		change->failed++;
		return;
	}
	if (change_one(change, job) < 0)
		change->failed++;
	else
		change->done++;
}

static void change_answer(struct change *change)
{
	struct call *call = change->call;
	struct listing listing;

	if (!change->done && change->failed) {
		call_reply_error(call, answer_status(&change->err), &change->err);
		return;
	}
	if (change->done) {
		call_reply(
			call, MHD_HTTP_OK,
			json_pack("{s:s, s:i}", "id", change->id, change->what, (int)change->done));
		return;
	}
	if (!meant_or_reply(call, change->id, -1, 1, &listing))
		return;
	answer_failed(call, MHD_HTTP_CONFLICT, EXIT_CODE_FAILED, "job %.64s has ended already",
		      change->id);
	json_decref(listing.list);
}

static void on_changed(void *arg, int rc)
{
	struct change *change = arg;

	if (rc < 0 && !change->failed) {
		error_set(&change->err, EXIT_CODE_FAILED,
			  "the database of jobs cannot be written: %s", strerrordesc_np(-rc));
		change->failed = change->done;
		change->done = 0;
	}
	if (change->call)
		change_answer(change);
	change_free(change);
}

/* Answers when it is on the disk. */
static void change_run(struct change *change, jobs_cb cb)
{
	struct call *call = change->call;
	int64_t id;
	int32_t index;

	if (job_id_parse(change->id, &id, &index) < 0) {
		no_job(call, change->id);
		change_free(change);
		return;
	}
	if (job_meant(call->node->queues, id, index))
		call_defer(call, on_changer_gone);
	jobs_change(call->node->queues, id, index, cb, on_changed, change);
}

void api_patch_job(struct call *call, const char *text)
{
	struct change *change = change_new(call, text, "changed");

	if (!change)
		return;
	change->body = answer_body(call, &change->err);
	const char *queue = json_string_value(json_object_get(change->body, "queue"));
	if (json_is_object(change->body) && !json_object_get(change->body, "array") &&
	    !json_object_get(change->body, "params") &&
	    (!queue || queue_name_check(queue, &change->err) == 0)) {
		change_run(change, change_job);
		return;
	}
	if (change->body && !change->err.code)
		error_set(&change->err, EXIT_CODE_USAGE,
			  "the body is not an object of what can change of a job");
	call_reply_error(call, answer_status(&change->err), &change->err);
	change_free(change);
}

static void cancel_job(struct job *job, void *arg)
{
	struct change *change = arg;

	if (!peer_permitted(&change->peer, job->record.uid)) {
		error_set(&change->err, EXIT_CODE_NOT_PERMITTED, "the job is another user's");
		change->failed++;
		return;
	}
	change->done++;
	job_cancel(job, "cancelled");
}

void api_delete_job(struct call *call, const char *text)
{
	struct change *change = change_new(call, text, "cancelled");

	if (change)
		change_run(change, cancel_job);
}
