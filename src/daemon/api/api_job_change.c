/* Requests to change jobs, and to cancel them. */
#include <http_parser.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/macros.h"
#include "daemon/api/answer.h"
#include "daemon/api/api_events.h"
#include "daemon/api/api_job.h"
#include "daemon/api/api_job_private.h"
#include "daemon/api/api_vouch.h"
#include "daemon/api/http.h"
#include "daemon/api/view.h"
#include "daemon/host/owner.h"
#include "daemon/node.h"
#include "daemon/queue/job_change.h"
#include "daemon/queue/job_table.h"
#include "daemon/queue/job_waits.h"
#include "daemon/queue/job_why.h"
#include "daemon/queue/launcher.h"
#include "daemon/queue/queue_context.h"
#include "proto/warden_jobs.h"

/* Lives as long as the change, which may take longer than the client waits. */
struct change {
	struct change *next;
	struct call *call; /* NULL: the client is gone */
	struct node *node;
	struct peer peer;
	uid_t owner; /* the jobs' user */
	char id[JOB_ID_TEXT];
	const char *what;
	json_t *body;
	/* The jobs' new text, and the warrant that the client said it. NULL: no text changes, or
	 * none is vouched for. */
	char *text;
	struct warrant *warrant;
	struct error err;
	unsigned done, failed;
};

static struct change *changing; /* those whose client waits */

static struct change *change_new(struct call *call, const char *id, const char *what)
{
	struct change *change = calloc(1, sizeof(*change));

	if (!change) {
		answer_failed(call, HTTP_STATUS_INTERNAL_SERVER_ERROR, EXIT_CODE_FAILED,
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
	free(change->text);
	free(change->warrant);
	free(change);
}

static void on_changer_gone(struct call *call)
{
	for (struct change *change = changing; change; change = change->next)
		if (change->call == call)
			change->call = NULL;
}

/* A job has one size: a new one takes the place of the one before. */
void api_job_changes_apply(json_t *body, const json_t *changes)
{
	static const char *const sizes[] = {"vram_bytes", "vram", "gpu_memory", "gpu"};
	bool sized = false;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		sized |= json_object_get(changes, sizes[i]) != NULL;
	for (size_t i = 0; sized && i < ARRAY_SIZE(sizes); i++)
		json_object_del(body, sizes[i]);
	json_object_update(body, (json_t *)changes);
}

static json_t *edited_text(const struct node *node, const struct job *job, const json_t *changes)
{
	char *text = NULL;
	json_t *body = NULL;

	if (job_store_spec_get(job->queues->store, job->record.spec, &text, NULL) == 0)
		body = json_loads(text, 0, NULL);
	free(text);
	if (body)
		api_job_changes_apply(body, changes);
	if (body && json_object_get(changes, "time"))
		api_job_time_default(node, body);
	return body;
}

/* Whether more is to change than where and when it runs. */
static bool changes_text(const json_t *changes)
{
	return json_object_size(changes) > (json_object_get(changes, "queue") != NULL) +
						   (json_object_get(changes, "priority") != NULL);
}

static int round_check(const struct job *job, const struct job_spec *spec, struct error *err)
{
	char id[JOB_ID_TEXT], other[JOB_ID_TEXT];
	bool known;
	const struct job_after *round = job_comes_round(job, spec, &known);

	if (!round)
		return 0;
	job_id_text(&job->record, id);
	job_after_text(round, other);
	if (known)
		error_set(err, EXIT_CODE_USAGE,
			  "after: job %s would wait for itself, by way of job %s", id, other);
	else
		error_set(err, EXIT_CODE_USAGE, "after: job %s waits for too many others", other);
	error_hint(err, "`carve queue explain JOB` says what a job waits for");
	return -EXIT_CODE_USAGE;
}

/* The jobs of an array have one text, which was vouched for, unless some were changed before. */
static int warrant_copy(struct change *change, const struct job *job, const char *text,
			struct warrant **ret)
{
	char id[JOB_ID_TEXT];

	if (!change->warrant || strcmp(text, change->text) != 0) {
		error_set(&change->err, EXIT_CODE_FAILED,
			  "job %s runs something else than the first job of its array",
			  job_id_text(&job->record, id));
		error_hint(&change->err, "change it by its own number: carve job edit %s", id);
		return -EXIT_CODE_FAILED;
	}
	*ret = malloc(sizeof(**ret));
	if (!*ret)
		return error_set(&change->err, EXIT_CODE_FAILED, "out of memory");
	**ret = *change->warrant;
	return 0;
}

/* The text of one job of an array was vouched for as the array's: the others keep theirs. */
static void rights_narrow(const struct change *change, const struct job *job)
{
	const struct warrant *warrant = job->spec->warrant;
	uint64_t position = job_position(job);
	int64_t id;
	int32_t index;

	if (!warrant || job_id_parse(change->id, &id, &index) < 0 || index < 0)
		return;
	(void)queue_rights_over(job->queues, warrant, 0, position);
	(void)queue_rights_over(job->queues, warrant, position + 1, warrant->count - position - 1);
}

static int edit(struct change *change, struct job *job, const char *queue, const int *priority)
{
	bool rewrites = changes_text(change->body);
	struct warrant *warrant = NULL;
	json_t *body = edited_text(change->node, job, change->body);
	struct job_spec spec;
	int32_t *indexes = NULL;
	uint32_t count;
	int rc = body ? job_spec_parse(body, &change->peer, api_job_may_raise(&change->peer), &spec,
				       &count, &indexes, &change->err)
		      : error_set(&change->err, EXIT_CODE_FAILED, "the job cannot be read");

	free(indexes);
	if (rc == 0)
		rc = api_job_size_check(change->node, &change->peer,
					queue ? queue : job->record.queue, &spec, &change->err);
	/* A job that was enqueued under other limits keeps its time. */
	if (rc == 0 && json_object_get(change->body, "time"))
		rc = api_job_time_check(change->node, &spec, &change->err);
	if (rc == 0 && rewrites)
		rc = api_job_after_check(change->node, &change->peer, &spec, &change->err);
	if (rc == 0 && json_object_get(change->body, "after"))
		rc = round_check(job, &spec, &change->err);
	/* The command that runs as a user is that user's alone to say. */
	if (rc == 0 && rewrites && job->record.uid != change->peer.uid &&
	    launcher_is_there(job->queues->host.launcher))
		rc = error_set(&change->err, EXIT_CODE_NOT_PERMITTED,
			       "only user %s may change what the job runs",
			       view_user(job->record.uid));
	char *text = rc == 0 && rewrites ? json_dumps(body, JOB_TEXT_FORM) : NULL;
	if (text && launcher_is_there(job->queues->host.launcher))
		rc = warrant_copy(change, job, text, &warrant);
	if (rc == 0)
		rc = job_change(job, queue, priority, text, warrant, &change->err);
	if (rc == 0 && text)
		rights_narrow(change, job);
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

	if (change_one(change, job) < 0)
		change->failed++;
	else
		change->done++;
}

/* Why the jobs do not start in the queue that they were moved to; "" where nothing says so. */
static const char *moved_halt(const struct change *change, char buf[static JOB_WHY_SIZE])
{
	const struct job *job;
	int64_t id;
	int32_t index;

	if (!json_object_get(change->body, "queue") || job_id_parse(change->id, &id, &index) < 0)
		return "";
	job = job_meant(change->node->queues, id, index);
	return job ? job_halt(job, buf) : "";
}

static void change_answer(struct change *change)
{
	struct call *call = change->call;
	char why[JOB_WHY_SIZE];

	if (!change->done && change->failed) {
		call_reply_error(call, answer_status(&change->err), &change->err);
		return;
	}
	if (change->done) {
		call_reply(call, HTTP_STATUS_OK,
			   json_pack("{s:s, s:i, s:s}", "id", change->id, change->what,
				     (int)change->done, "reason", moved_halt(change, why)));
		return;
	}
	if (api_job_is_known(call, change->id))
		answer_failed(call, HTTP_STATUS_CONFLICT, EXIT_CODE_FAILED,
			      "job %.64s has ended already", change->id);
}

static void record(const struct change *change)
{
	char *text = change->body ? json_dumps(change->body, JSON_COMPACT) : NULL;

	api_deed_record(change->node, &change->peer,
			&(struct api_deed){EVENT_JOB_CHANGED, "job", change->id, change->owner,
					   NULL, text ? text : change->what});
	free(text);
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
	if (change->done)
		record(change);
	if (change->call)
		change_answer(change);
	change_free(change);
}

/* Answers when it is on the disk. All jobs of an array are one user's: whoever may not change them
 * does not keep them from starting either. */
static void change_run(struct change *change, jobs_cb cb)
{
	struct queues *queues = change->node->queues;
	struct call *call = change->call;
	const struct job *job;
	int64_t id;
	int32_t index;

	if (job_id_parse(change->id, &id, &index) < 0) {
		api_job_none(call, change->id);
		change_free(change);
		return;
	}
	job = job_meant(queues, id, index);
	if (job && !peer_permitted(&change->peer, job->record.uid)) {
		answer_failed(call, HTTP_STATUS_FORBIDDEN, EXIT_CODE_NOT_PERMITTED,
			      "job %s is another user's", change->id);
		change_free(change);
		return;
	}
	if (job) {
		change->owner = job->record.uid;
		call_defer(call, on_changer_gone);
	}
	jobs_change(queues, owner_of(change->peer.uid), id, index, cb, on_changed, change);
}

static void on_vouched(void *arg, struct warrant *warrant, struct error *err)
{
	struct change *change = arg;

	change->warrant = warrant;
	if (!err) {
		change_run(change, change_job);
		return;
	}
	call_reply_error(change->call, answer_status(err), err);
	change_free(change);
}

static void on_gone_unvouched(void *arg)
{
	change_free(arg);
}

/* The text that the jobs are to run, if it changes: the warden asks for the client first. */
static char *text_to_vouch(const struct change *change)
{
	const struct job *job;
	int64_t id;
	int32_t index;

	if (!changes_text(change->body) || json_object_get(change->body, "hold") ||
	    job_id_parse(change->id, &id, &index) < 0)
		return NULL;
	job = job_meant(change->node->queues, id, index);
	if (!job || job->record.uid != change->peer.uid ||
	    !launcher_is_there(&change->node->launcher))
		return NULL;
	json_t *body = edited_text(change->node, job, change->body);
	char *text = body ? json_dumps(body, JOB_TEXT_FORM) : NULL;
	json_decref(body);
	return text;
}

/* The text says how many jobs and attempts it is of; if it is wrong, it is refused later. */
static void wish_fill(const struct change *change, struct launcher_wish *ret)
{
	struct error ignored;
	struct job_spec spec;
	int32_t *indexes = NULL;
	json_t *body = json_loads(change->text, 0, NULL);

	if (body &&
	    job_spec_parse(body, &change->peer, true, &spec, &ret->count, &indexes, &ignored) == 0)
		ret->attempts = job_spec_attempts(&spec);
	else
		ret->count = 1;
	json_decref(body);
	free(indexes);
}

static void patch(struct change *change)
{
	struct call *call = change->call;
	struct error err = {0};

	change->text = text_to_vouch(change);
	if (!change->text) {
		change_run(change, change_job);
		return;
	}
	struct launcher_wish wish = {WARRANT_JOB, 1, 1, change->text};
	wish_fill(change, &wish);
	if (api_vouch(call, &wish, on_vouched, on_gone_unvouched, change, &err) == 0)
		return;
	call_reply_error(call, answer_status(&err), &err);
	change_free(change);
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
		patch(change);
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

	change->done++;
	job_cancel(job, "cancelled");
}

void api_delete_job(struct call *call, const char *text)
{
	struct change *change = change_new(call, text, "cancelled");

	if (change)
		change_run(change, cancel_job);
}
