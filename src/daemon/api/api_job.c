/* Requests that tell of jobs. */
#include "daemon/api/api_job.h"

#include <errno.h>
#include <http_parser.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "core/queue.h"
#include "daemon/api/answer.h"
#include "daemon/api/api_idle.h"
#include "daemon/api/api_job_private.h"
#include "daemon/api/http.h"
#include "daemon/api/view.h"
#include "daemon/node.h"
#include "daemon/queue/agents.h"
#include "daemon/queue/decision.h"
#include "daemon/queue/job_asked.h"
#include "daemon/queue/job_events.h"
#include "daemon/queue/job_files.h"
#include "daemon/queue/job_store.h"
#include "daemon/queue/job_table.h"
#include "daemon/queue/job_why.h"
#include "daemon/queue/launcher.h"
#include "daemon/queue/queue_context.h"
#include "daemon/request/request.h"
#include "proto/shim.h"

/* Ended jobs in a list, unless `ended` says otherwise. */
#define ENDED_DEFAULT 20u
/* In one answer: a job takes some 20 us to be shown, and the loop waits meanwhile. */
#define PART_JOBS 64u
#define UNPAGED_JOBS 256u
/* Jobs of other queues than the one that is asked for, that one answer passes over. */
#define LOOKS_MAX 4096u

/* ---- showing ------------------------------------------------------------------------------ */

/* The job's place has a pair for each of its GPUs: the GPU's number, and the bytes that the job
 * was granted there. A pod's place is an object. */
enum { PLACE_INDEX, PLACE_BYTES_GRANTED };

static json_t *place_json(const struct job_record *record, size_t of_pair)
{
	json_t *list = json_array(), *place = json_loads(record->place, 0, NULL), *item;
	size_t i;

	json_array_foreach(place, i, item) json_array_append(list, json_array_get(item, of_pair));
	json_decref(place);
	return list;
}

static json_t *granted_json(const struct job_record *record)
{
	json_t *list = place_json(record, PLACE_BYTES_GRANTED);

	if (json_array_size(list))
		return list;
	json_decref(list);
	return json_null();
}

/* Nobody knows the code of a job whose shim could not tell it. */
static json_t *code_json(const struct job_record *record)
{
	bool known = job_state_ended(record->state) && record->started && record->exit_code >= 0;

	return known ? json_integer(record->exit_code) : json_null();
}

static json_t *record_json(const struct queues *queues, const struct job_record *r)
{
	char id[JOB_ID_TEXT], log[PATH_MAX];

	job_file(queues, r, SHIM_LOG, log);
	return json_pack(
		"{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:s, s:i, s:i, "
		"s:o, s:o, s:o, s:o, s:o, s:o}",
		"id", job_id_text(r, id), "name", r->name, "queue", r->queue, "state",
		job_state_text(r->state), "session",
		*r->session ? json_string(r->session) : json_null(), "gpus",
		place_json(r, PLACE_INDEX), "granted_bytes", granted_json(r), "exit_code",
		code_json(r), "signal", r->signal ? json_integer(r->signal) : json_null(),
		"enqueued", view_time(r->enqueued), "started", view_time(r->started), "ended",
		view_time(r->ended), "reason", r->reason, "user", view_user(r->uid), "priority",
		r->priority, "attempt", (int)r->attempt, "array",
		r->array ? json_integer(r->array) : json_null(), "index",
		r->array ? json_integer(r->index) : json_null(), "peak_bytes",
		answer_number(r->peak_bytes), "gpu_ns", answer_number(r->gpu_ns), "rss_bytes",
		answer_number(r->rss_bytes), "log", r->attempt ? json_string(log) : json_null());
}

/* The size that the job waits for, as its user would write it: its own, or else its queue's; null:
 * neither has one. */
static json_t *size_json(const struct job *job)
{
	char queue[QUEUE_SIZE_TEXT] = "", asked[REQUEST_TEXT_SIZE];
	uint32_t position;
	const struct agent *agent;

	if (job->spec->sized)
		return json_string(request_text(&job->spec->request, "", asked));
	agent = agent_serving(job->queues, job->record.queue, job->record.uid, &position);
	if (agent)
		queue_size_text(&agent->queue[position].spec, queue);
	return *queue ? json_string(queue) : json_null();
}

static json_t *job_json(const struct job *job)
{
	struct job_record record = job->record;
	char why[JOB_WHY_SIZE], blocker[JOB_ID_TEXT];

	/* The record's reason and signal are of the attempt before. */
	record.reason = job_why(job, why);
	record.signal = 0;
	json_t *object = record_json(job->queues, &record);
	struct job_prospect prospect = job_prospect(job);
	if (prospect.blocker)
		json_object_set_new(
			object, "blocked_by",
			json_string(queue_job_id_text(job->queues, prospect.blocker, blocker)));
	if (prospect.starts)
		json_object_set_new(object, "starts_by", view_time(prospect.starts));
	json_object_set_new(object, "size", size_json(job));
	if (record.state == JOB_RUNNING && *record.session)
		api_idle_add(session_find(job->queues->host.sessions, record.session), object);
	return object;
}

/* The jobs that a waiting job waits for: that takes longer to find out than all the rest. */
static void waits_add(const struct job *job, json_t *object)
{
	struct queue_ends ends;
	char why[JOB_WHY_SIZE], id[JOB_ID_TEXT];
	json_t *jobs;

	if (!decision_explain(job, &ends))
		return;
	jobs = json_array();
	for (size_t i = 0; i < ends.count; i++)
		json_array_append_new(
			jobs, json_string(queue_job_id_text(job->queues, (int64_t)ends.id[i], id)));
	if (ends.count == 1)
		json_object_set(object, "blocked_by", json_array_get(jobs, 0));
	json_object_set_new(object, "reason", json_string(job_waits_text(job, &ends, why)));
	json_object_set_new(object, "starts_after",
			    json_pack("{s:o, s:s, s:b}", "jobs", jobs, "ends",
				      ends.all ? "all" : "any", "exact", ends.exact));
}

struct listing {
	struct call *call;
	json_t *list;
	/* Only these jobs: of this queue, of this name (NULL: any), of this user ((uid_t)-1: all
	 * that the caller may see). */
	const char *queue, *name;
	uid_t uid;
	bool forbidden;
	uint32_t rows; /* that were looked at */
	int64_t spec;  /* the last one's, and its place in the array */
	int32_t index;
	const struct job *job; /* the last one; NULL: it has ended */
	char next[64];         /* where the next part begins; "": there is none */
};

static bool is_wanted(const struct listing *l, const struct job_record *record)
{
	return (!l->queue || !strcmp(l->queue, record->queue)) &&
	       (!l->name || !strcmp(l->name, record->name));
}

static int list_ended(void *arg, const struct job_record *record)
{
	struct listing *listing = arg;

	listing->rows++;
	snprintf(listing->next, sizeof(listing->next), "%" PRId64 ".%" PRId64, record->ended,
		 record->id);
	if (is_wanted(listing, record))
		json_array_append_new(listing->list,
				      record_json(listing->call->node->queues, record));
	return 0;
}

static void ended_add(struct listing *listing, const struct job_place *before, uint32_t limit)
{
	(void)job_store_each_ended(listing->call->node->queues->store, listing->uid, before, limit,
				   list_ended, listing);
	if (listing->rows < limit)
		listing->next[0] = '\0';
}

static json_t *part_json(const struct listing *listing)
{
	return json_pack("{s:o, s:o}", "jobs", listing->list, "next",
			 *listing->next ? json_string(listing->next) : json_null());
}

static void reply_part(struct listing *listing)
{
	call_reply(listing->call, HTTP_STATUS_OK, part_json(listing));
}

static void bad_part(struct call *call, const char *name)
{
	answer_failed(call, HTTP_STATUS_BAD_REQUEST, EXIT_CODE_USAGE,
		      "%s: takes what `next` of the part before said; empty: the first", name);
}

/* The place at which a part of the living jobs begins. It is behind the user's jobs that came up to
 * `came` (0: it is the first one). They are looked at from job `id` on. */
struct living_place {
	uid_t uid;
	uint64_t came;
	int64_t id;
};

/* Adds the jobs of one user. False: the part is full, or as many were looked at as may. Where the
 * last job of the part before has ended meanwhile, that may be those before it. */
static bool living_add_of(struct listing *l, const struct queue_use *user, struct living_place at,
			  size_t most)
{
	for (const struct job *job = jobs_from(user, at.id); job; job = job->next_of_user) {
		if (json_array_size(l->list) >= most || l->rows++ == LOOKS_MAX)
			return false;
		snprintf(l->next, sizeof(l->next), "%u.%" PRIu64 ".%" PRId64, user->uid,
			 MAX(job->came, at.came), job->record.id);
		if (job->came > at.came && is_wanted(l, &job->record))
			json_array_append_new(l->list, job_json(job));
	}
	return true;
}

/* One user's, or those of all, user by user. */
static void living_add(struct listing *l, struct living_place at, size_t most)
{
	struct queues *q = l->call->node->queues;
	bool all = l->uid == (uid_t)-1;
	const struct queue_use *user =
		all && !at.came ? q->jobs->uses : queue_use_get(q, all ? at.uid : l->uid, false);

	for (; user; user = all ? user->next : NULL) {
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
	call_reply(listing->call, HTTP_STATUS_OK, listing->list);
}

void api_get_jobs(struct call *call, const char *id)
{
	struct listing listing = {.call = call,
				  .queue = call_argument(call, "queue"),
				  .name = call_argument(call, "name")};
	const char *ended = call_argument(call, "ended"), *part = call_argument(call, "part"),
		   *before = call_argument(call, "before");
	uint32_t limit =
		ended ? (uint32_t)MIN(strtoul(ended, NULL, 10), UINT32_MAX) : ENDED_DEFAULT;

	if (!answer_uid_argument(call, &listing.uid))
		return;
	/* Others' jobs are told to administrators alone. */
	if (listing.uid == (uid_t)-1 && !call->peer.admin)
		listing.uid = call->peer.uid;
	listing.list = json_array();

	if (part)
		reply_living(&listing, part);
	else if (before)
		reply_ended(&listing, before, limit);
	else
		reply_unpaged(&listing, limit);
}

/* ---- one job or array --------------------------------------------------------------------- */

void api_job_none(struct call *call, const char *text)
{
	struct error err = {0};

	error_set(&err, EXIT_CODE_FAILED, "there is no job %.64s", text);
	error_hint(&err, "`carve job list` shows them");
	call_reply_error(call, HTTP_STATUS_NOT_FOUND, &err);
}

#define ASKED_PLACE "\"asked\":null"

/* The answer with the request of its one job, which is copied in where the answer has a place for
 * it. No text within the answer looks like that place, as its quotes would be escaped. */
static char *asked_insert(const struct listing *listing, char *answer)
{
	cleanup_free char *request = NULL, *asked = NULL;
	char *place = answer ? strstr(answer, ASKED_PLACE) : NULL, *text = NULL;

	if (!place || job_store_spec_get(listing->call->node->queues->store, listing->spec,
					 &request, NULL) < 0)
		return answer;
	asked = job_asked_text(request, listing->index);
	place += strlen(ASKED_PLACE) - strlen("null");
	if (asked && asprintf(&text, "%.*s%s%s", (int)(place - answer), answer, asked,
			      place + strlen("null")) < 0)
		text = NULL;
	free(answer);
	return text;
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
	listing->job = job;
	if (job)
		json_array_append_new(listing->list, job_json(job));
	else if (job_state_ended(record->state))
		json_array_append_new(listing->list,
				      record_json(listing->call->node->queues, record));
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
		api_job_none(call, text);
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
		answer_failed(call, HTTP_STATUS_FORBIDDEN, EXIT_CODE_NOT_PERMITTED,
			      "job %.64s is another user's", text);
	else
		api_job_none(call, text);
	json_decref(listing.list);
	return false;
}

bool api_job_is_known(struct call *call, const char *text)
{
	struct listing listing;

	if (!meant_or_reply(call, text, -1, 1, &listing))
		return false;
	json_decref(listing.list);
	return true;
}

static void wait_answer(void *call);

static void on_waiter_gone(struct call *call)
{
	queue_unlisten(call->node->queues, call);
}

/* A client that follows a job's output waits for its next attempt, too: for one after `attempt`. */
static bool has_begun_anew(struct call *call, const struct job *job)
{
	const char *attempt = call_argument(call, "attempt");

	return attempt && job->record.state == JOB_RUNNING &&
	       job->record.attempt > strtoul(attempt, NULL, 10);
}

/* True: it waits. Nothing of the jobs is put together until all have ended. */
static bool wait_on(struct call *call, const char *text)
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
	call_defer(call, on_waiter_gone);
	return true;
}

static void reply_meant(struct listing *listing, bool parts, bool first)
{
	if (!parts && *listing->next) {
		json_decref(listing->list);
		answer_failed(listing->call, HTTP_STATUS_BAD_REQUEST, EXIT_CODE_USAGE,
			      "the array has more than %u jobs: ask for parts of it (?part=), or "
			      "for one of them",
			      UNPAGED_JOBS);
		return;
	}
	bool asked = first && json_array_size(listing->list) == 1;
	if (asked)
		json_object_set_new(json_array_get(listing->list, 0), "asked", json_null());
	if (asked && listing->job)
		waits_add(listing->job, json_array_get(listing->list, 0));
	char *answer = call_text(parts ? part_json(listing) : listing->list);
	call_reply_text(listing->call, HTTP_STATUS_OK,
			asked ? asked_insert(listing, answer) : answer);
}

static void answer_or_wait(struct call *call, const char *id)
{
	const char *part = call_argument(call, "part");
	struct listing listing;
	char *end = "";
	long after = part && *part ? strtol(part, &end, 10) : -1;

	if (wait_on(call, id))
		return;
	if (*end || after < -1 || after > INT32_MAX)
		bad_part(call, "part");
	else if (meant_or_reply(call, id, (int32_t)after, part ? PART_JOBS : UNPAGED_JOBS + 1,
				&listing))
		reply_meant(&listing, part != NULL, after == -1);
}

static void wait_run(struct call *call, void *arg)
{
	answer_or_wait(call, call->path + strlen(HTTP_JOBS_PATH "/"));
}

/* One user may have thousands that wait for the same job. */
static void wait_answer(void *call)
{
	call_fairly(call, wait_run, NULL);
}

void api_get_job(struct call *call, const char *id)
{
	answer_or_wait(call, id);
}

/* ---- events ------------------------------------------------------------------------------- */

static void events_run(struct call *call, void *arg)
{
	const char *from = call_argument(call, "from");
	uint64_t next;
	json_t *events = queue_events(call->node->queues, from ? strtoull(from, NULL, 10) : 0,
				      &call->peer, &next);

	call_reply(call, HTTP_STATUS_OK,
		   json_pack("{s:o, s:o}", "next", answer_number(next), "events", events));
}

static void events_answer(void *call)
{
	call_fairly(call, events_run, NULL);
}

void api_get_job_events(struct call *call, const char *id)
{
	const char *from = call_argument(call, "from"), *wait = call_argument(call, "wait");

	if (wait && strcmp(wait, "0") != 0 && from &&
	    strtoull(from, NULL, 10) == queue_events_last(call->node->queues) &&
	    queue_listen(call->node->queues, events_answer, call) == 0)
		call_defer(call, on_waiter_gone);
	else
		events_run(call, NULL);
}

/* ---- ends --------------------------------------------------------------------------------- */

static void ends_answer(void *call);

/* Without `from` the answer has no end, and says where the next one will be. */
static void ends_run(struct call *call, void *arg)
{
	const char *from = call_argument(call, "from"), *wait = call_argument(call, "wait");
	struct queues *q = call->node->queues;
	struct queue_end_part part;
	int64_t first = (int64_t)queue_end_next(q);

	if (from && (!answer_number_take(&from, 0, &first) || first < 0)) {
		bad_part(call, "from");
		return;
	}
	if (from && wait && strcmp(wait, "0") != 0 && queue_end_is_awaited(q, (uint64_t)first) &&
	    queue_listen(q, ends_answer, call) == 0) {
		call_defer(call, on_waiter_gone);
		return;
	}
	int rc = queue_end_read(q, (uint64_t)first, &call->peer, &part);
	if (rc < 0) {
		answer_failed(call, HTTP_STATUS_INTERNAL_SERVER_ERROR, EXIT_CODE_FAILED,
			      "the ends of jobs cannot be read: %s", strerrordesc_np(-rc));
		return;
	}
	call_reply(call, HTTP_STATUS_OK,
		   json_pack("{s:s, s:o, s:o}", "database", part.database, "next",
			     answer_number(part.next), "ends", part.ends));
}

static void ends_answer(void *call)
{
	call_fairly(call, ends_run, NULL);
}

void api_get_job_ends(struct call *call, const char *id)
{
	ends_run(call, NULL);
}
