/* GET /v1/jobs/log/ID: a part of what a job printed, as text, for the page. `carve job logs` reads
 * the file itself.
 *
 * The file is the job's user's, who may put anything there and let it grow without end. So a part
 * is small. It is read from memory alone. The kernel is told to read the rest from the disk, which
 * is there when the client asks again. */
#include "daemon/api/api_job.h"

#include <errno.h>
#include <http_parser.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/text_escape.h"
#include "daemon/api/answer.h"
#include "daemon/api/api_job_private.h"
#include "daemon/api/http.h"
#include "daemon/node.h"
#include "daemon/queue/job_files.h"
#include "daemon/queue/job_store.h"
#include "daemon/queue/job_table.h"
#include "daemon/queue/queue_context.h"
#include "proto/shim.h"

/* The bytes of a log in one answer. */
#define PART_BYTES ((size_t)32 * 1024)

/* The job that an ID means; of an array, one is enough to know that it is no job. */
struct meant {
	const struct call *call;
	struct job_record record; /* its texts are not set */
	unsigned count;
	bool forbidden;
};

static int take(void *arg, const struct job_record *record)
{
	struct meant *meant = arg;
	const struct job *job = job_find(meant->call->node->queues, record->id);

	meant->forbidden |= !peer_permitted(&meant->call->peer, record->uid);
	meant->count++;
	meant->record = (struct job_record){
		.id = record->id,
		.uid = record->uid,
		/* A job that has not ended is newer in memory. */
		.attempt = job ? job->record.attempt : record->attempt,
		.state = job ? job->record.state : record->state,
	};
	return 0;
}

/* False: answered. */
static bool meant_or_reply(struct call *call, const char *text, struct meant *ret)
{
	struct job_store *store = call->node->queues->store;
	int64_t id;
	int32_t index;

	*ret = (struct meant){.call = call};
	if (job_id_parse(text, &id, &index) < 0) {
		api_job_none(call, text);
		return false;
	}
	if (index >= 0)
		(void)job_store_each_of(store, id, index, take, ret);
	else
		(void)job_store_each_part(store, id, -1, 2, take, ret);
	if (ret->forbidden)
		answer_failed(call, HTTP_STATUS_FORBIDDEN, EXIT_CODE_NOT_PERMITTED,
			      "job %.64s is another user's", text);
	else if (ret->count > 1)
		answer_failed(call, HTTP_STATUS_BAD_REQUEST, EXIT_CODE_USAGE,
			      "%.64s is an array: name one of its jobs, for example %.64s_0", text,
			      text);
	else if (!ret->count)
		api_job_none(call, text);
	return ret->count == 1 && !ret->forbidden;
}

/* A part that begins within a character goes on with the next one. */
static size_t skip_rest(const char *part, size_t size)
{
	size_t rest = 0;

	while (rest < MIN(size, 3) && ((unsigned char)part[rest] & 0xc0) == 0x80)
		rest++;
	return rest;
}

/* JSON of a part. No byte of it is more than text to a terminal or a page (base/text_escape.h). */
static json_t *part_json(const char *part, size_t size, bool last, size_t *ret_taken)
{
	cleanup_free char *text = malloc(size * TEXT_ESCAPE_SIZE + 1);
	size_t length;

	if (!text)
		return NULL;
	*ret_taken = text_escape_part(part, size, last, text, &length);
	return json_stringn(text, length);
}

static void reply(struct call *call, const char *id, const struct job_record *record, bool tail,
		  struct job_file_part *part)
{
	bool ended = job_state_ended(record->state);
	size_t skipped = tail && part->from > 0 ? skip_rest(part->bytes, part->size) : 0, taken = 0;
	bool last = ended && part->from + (int64_t)part->size >= part->length;
	json_t *text = part_json(part->bytes + skipped, part->size - skipped, last, &taken);

	call_reply(call, HTTP_STATUS_OK,
		   json_pack("{s:s, s:i, s:I, s:I, s:I, s:b, s:o}", "id", id, "attempt",
			     (int)record->attempt, "from",
			     (json_int_t)part->from + (json_int_t)skipped, "next",
			     (json_int_t)part->from + (json_int_t)skipped + (json_int_t)taken,
			     "size", (json_int_t)part->length, "ended", ended, "text",
			     text ? text : json_string("")));
}

static void reply_unread(struct call *call, const char *id, int rc)
{
	struct error err = {0};

	error_set(&err, EXIT_CODE_FAILED,
		  "the output of job %.64s is in a file that the daemon does not read: %s", id,
		  rc == -ELOOP ? "the job named the file" : strerrordesc_np(-rc));
	error_hint(&err, "`carve job logs %.64s` prints it", id);
	call_reply_error(call, HTTP_STATUS_CONFLICT, &err);
}

void api_get_job_log(struct call *call, const char *id)
{
	const char *from = call_argument(call, "from"), *at = from;
	struct job_file_part part = {.from = -1};
	struct meant meant;

	if (from && (!answer_number_take(&at, '\0', &part.from) || part.from < 0)) {
		answer_failed(call, HTTP_STATUS_BAD_REQUEST, EXIT_CODE_USAGE,
			      "from: takes what `next` of the part before said");
		return;
	}
	if (!meant_or_reply(call, id, &meant))
		return;
	cleanup_free char *bytes = malloc(PART_BYTES);
	part.bytes = bytes;
	part.size = bytes ? PART_BYTES : 0;
	int rc = job_file_read_part(call->node->queues, &meant.record, SHIM_LOG, &part);
	if (rc < 0)
		reply_unread(call, id, rc);
	else
		reply(call, id, &meant.record, !from, &part);
}
