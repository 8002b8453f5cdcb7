/* Requests to enqueue jobs again. An ID may stand for an array of 100,000: its rows are read a
 * part in each round of the loop, in users' turns. */
#include <http_parser.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/error.h"
#include "base/macros.h"
#include "core/turns.h"
#include "daemon/api/answer.h"
#include "daemon/api/api_job.h"
#include "daemon/api/api_job_private.h"
#include "daemon/api/http.h"
#include "daemon/host/owner.h"
#include "daemon/node.h"
#include "daemon/queue/enqueue.h"
#include "daemon/queue/job_store.h"
#include "daemon/queue/job_table.h"
#include "daemon/queue/queue_context.h"

/* Rows of a part: 2 ms. */
#define PART_ROWS 2000u

struct again {
	struct turn turn;
	struct call *call; /* NULL: the client is gone */
	uid_t uid;
	int64_t id;
	int32_t index, after; /* the next part of an array begins behind `after` */
	json_t *changes;
	bool failed_only, forbidden, found; /* found: some are the user's own */
	int64_t spec;
	char queue[QUEUE_NAME_SIZE];
	unsigned rows, count; /* the rows of this part; the jobs enqueued in all parts */
	/* "0-16,18": indexes of an array's; the last range is not written yet. */
	FILE *list;
	char *text;
	size_t size;
	int32_t first, last; /* -1: there is none */
};

static struct turns reading; /* those that are not read to the end */
static uv_idle_t idle;       /* runs while there are some */

/* ---- one request -------------------------------------------------------------------------- */

static void again_free(struct again *again)
{
	if (again->list)
		fclose(again->list);
	free(again->text);
	json_decref(again->changes);
	free(again);
}

static struct again *again_new(struct call *call, json_t *changes)
{
	struct again *again = calloc(1, sizeof(*again));

	if (again)
		again->list = open_memstream(&again->text, &again->size);
	if (!again || !again->list) {
		free(again);
		return NULL;
	}
	again->call = call;
	again->uid = call->peer.uid;
	again->changes = json_incref(changes);
	again->after = again->first = -1;
	again->failed_only = json_is_true(json_object_get(changes, "failed"));
	json_object_del(changes, "failed");
	return again;
}

static void range_write(struct again *again)
{
	if (again->first < 0)
		return;
	fprintf(again->list, ftell(again->list) ? ",%d" : "%d", again->first);
	if (again->last > again->first)
		fprintf(again->list, "-%d", again->last);
}

static void index_add(struct again *again, int32_t index)
{
	if (again->first < 0 || index != again->last + 1) {
		range_write(again);
		again->first = index;
	}
	again->last = index;
}

static int again_add(void *arg, const struct job_record *record)
{
	struct again *again = arg;

	again->rows++;
	again->after = record->index;
	/* It would be the asking user's job: nobody is to run another's command by mistake. */
	if (record->uid != again->uid) {
		again->forbidden = true;
		return 0;
	}
	again->found = true;
	if (again->failed_only && (!job_state_ended(record->state) || record->state == JOB_DONE))
		return 0;
	again->spec = record->spec;
	snprintf(again->queue, sizeof(again->queue), "%s", record->queue);
	again->count++;
	if (record->array)
		index_add(again, record->index);
	return 0;
}

/* True: there is no more. */
static bool part_read(struct again *again)
{
	struct job_store *store = again->call->node->queues->store;

	again->rows = 0;
	if (again->index >= 0)
		(void)job_store_each_of(store, again->id, again->index, again_add, again);
	else
		(void)job_store_each_part(store, again->id, again->after, PART_ROWS, again_add,
					  again);
	return again->index >= 0 || again->rows < PART_ROWS;
}

/* ---- the new jobs ------------------------------------------------------------------------- */

/* "3,5-7%4": those indexes, at most so many at a time. */
static json_t *indexes_text(struct again *again, const char *before)
{
	const char *most = before ? strchr(before, '%') : NULL;

	range_write(again);
	fprintf(again->list, "%s", most ? most : "");
	return fflush(again->list) == 0 ? json_string(again->text) : NULL;
}

static json_t *again_body(struct again *again)
{
	struct job_store *store = again->call->node->queues->store;
	char *text = NULL;
	json_t *body = NULL;

	if (job_store_spec_get(store, again->spec, &text, NULL) == 0)
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
	if (again->first >= 0)
		json_object_set_new(
			body, "array",
			indexes_text(again, json_string_value(json_object_get(body, "array"))));
	api_job_changes_apply(body, again->changes);
	return body;
}

static int nothing_again(const struct again *again, const char *text, struct error *err)
{
	if (again->forbidden)
		return error_set(err, EXIT_CODE_NOT_PERMITTED, "job %.64s is another user's", text);
	if (again->found)
		return error_set(err, EXIT_CODE_FAILED, "no job of %.64s has failed", text);
	error_set(err, EXIT_CODE_FAILED, "there is no job %.64s", text);
	error_hint(err, "`carve job list` shows them");
	return -EXIT_CODE_FAILED;
}

static void finish(struct again *again)
{
	struct call *call = again->call;
	const char *text = call->path + strlen(HTTP_JOBS_PATH "/");
	struct error err = {0};
	json_t *body = again->count ? again_body(again) : NULL;
	int rc = !again->count ? nothing_again(again, text, &err)
		 : !body       ? error_set(&err, EXIT_CODE_FAILED, "job %.64s cannot be read", text)
			       : api_job_enqueue(call, body, &err);

	json_decref(body);
	again_free(again);
	if (rc < 0)
		call_reply_error(call, answer_status(&err), &err);
}

/* ---- in turn ------------------------------------------------------------------------------ */

static struct again *again_of(struct turn *turn)
{
	return CONTAINER_OF(turn, struct again, turn);
}

static void on_idle(uv_idle_t *handle)
{
	struct again *again = again_of(reading.first);
	bool done = !again->call || part_read(again);

	/* Requests whose client is gone have no part: the next one of the user's does. */
	if (again->call)
		turns_pass(&reading, again->turn.user);
	if (done) {
		turns_remove(&reading, &again->turn);
		if (again->call)
			finish(again);
		else
			again_free(again);
	}
	if (!reading.first)
		uv_idle_stop(handle);
}

static void on_again_gone(struct call *call)
{
	for (struct turn *turn = reading.first; turn; turn = turn->next)
		if (again_of(turn)->call == call)
			again_of(turn)->call = NULL;
}

static void read_later(struct again *again)
{
	call_defer(again->call, on_again_gone);
	turns_add(&reading, &again->turn, owner_of(again->uid));
	if (!idle.loop)
		uv_idle_init(&again->call->node->loop, &idle);
	uv_idle_start(&idle, on_idle);
}

void api_post_job_again(struct call *call, const char *text)
{
	struct error err = {0};
	json_t *changes = answer_body(call, &err);
	struct again *again = NULL;
	int64_t id;
	int32_t index;
	int rc = json_is_object(changes) ? 0 : -1;

	if (changes && rc < 0)
		error_set(&err, EXIT_CODE_USAGE, "the body is not a JSON object");
	if (rc == 0 && job_id_parse(text, &id, &index) < 0)
		rc = error_set(&err, EXIT_CODE_FAILED, "there is no job %.64s", text);
	if (rc == 0 && !(again = again_new(call, changes)))
		rc = error_set(&err, EXIT_CODE_FAILED, "out of memory");
	json_decref(changes);
	if (rc < 0) {
		call_reply_error(call, answer_status(&err), &err);
		return;
	}
	again->id = id;
	again->index = index;
	if (part_read(again))
		finish(again);
	else
		read_later(again);
}
