/* The records of attempts, which shims write to files: how the command started, and how it ended.
 * The ender reads a record and writes the end of the job to the database. The record is removed
 * only when that end is on the disk. After a power cut the database may have lost the job's start
 * as well, and then the record alone says that the job ran. Records that are to go stand in a list
 * in memory, and a few are removed in each round of the loop. A record that a daemon leaves behind
 * goes with the job's log. */
#include "daemon/queue/job_records.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/macros.h"
#include "daemon/queue/job_entry.h"
#include "daemon/queue/job_files.h"
#include "daemon/queue/queue_context.h"
#include "daemon/queue/queue_pods.h"
#include "proto/shim.h"

#define RECORD_MAX 4096
/* Records of ended jobs that are removed at the end. */
#define TIDIED_AT_END 1000u
#define RECORD_FILES (SHIM_FILE_RECORD | SHIM_FILE_CID | SHIM_FILE_GIVEN_UP)
/* The pod's state must outlive a shim that was killed. */
#define POD_FILES (SHIM_FILE_POD | SHIM_FILE_POD_STATE)

/* A record whose job has ended. */
struct record_left {
	int64_t id;
	uint32_t attempt;
	uid_t uid;
};

struct job_records {
	struct record_left *left; /* the oldest first, from `first` on; malloc'ed */
	size_t first, synced, count, room;
	struct disk_waiter durable;
	size_t syncing; /* so many wait for the disk; 0: none */
};

struct job_records *job_records_new(void)
{
	return calloc(1, sizeof(struct job_records));
}

int job_record_given_up(const struct queues *q, const struct job_record *record)
{
	int error = job_file_link(q, record, SHIM_GIVEN_UP);

	return strerrordesc_np(error) ? error : 0;
}

int job_record_read(const struct queues *q, const struct job_record *record, json_t **ret_start,
		    json_t **ret_end)
{
	char text[RECORD_MAX], *at = text, *end;

	*ret_start = *ret_end = NULL;
	ssize_t n = job_file_read(q, record, SHIM_RECORD, text, sizeof(text));
	if (n < 0 && n != -ENOENT)
		return (int)n;
	if (n <= 0)
		return -job_record_given_up(q, record);
	/* Lines that are whole. */
	for (; (end = strchr(at, '\n')); at = end + 1) {
		json_t *line = json_loadb(at, (size_t)(end - at), 0, NULL);
		const char *kind = json_string_value(json_object_get(line, "kind"));
		json_t **to = kind && !strcmp(kind, SHIM_KIND_START) ? ret_start : ret_end;

		if (kind && !*to)
			*to = line;
		else
			json_decref(line);
	}
	return *ret_start || *ret_end ? 0 : -EBADMSG;
}

void job_records_remove(const struct job *job, bool all)
{
	job_files_remove(job->queues, &job->record,
			 all && job_is_pod(&job->record) ? RECORD_FILES | POD_FILES : RECORD_FILES);
}

static bool record_leave(struct queues *q, const struct job_record *record)
{
	struct record_left *left =
		array_grown(q->records->left, q->records->count, &q->records->room, sizeof(*left));
	if (!left)
		return false;
	q->records->left = left;
	q->records->left[q->records->count++] =
		(struct record_left){record->id, record->attempt, record->uid};
	return true;
}

/* A file that stays behind, where there is no memory, goes with the job's log. */
void job_records_leave(const struct job *job)
{
	if (job_is_pod(&job->record))
		job_records_remove(job, true);
	else
		(void)record_leave(job->queues, &job->record);
}

static void on_records_durable(struct disk_waiter *waiter, int rc)
{
	struct job_records *records = CONTAINER_OF(waiter, struct job_records, durable);

	if (rc == 0)
		records->synced = records->syncing;
	records->syncing = 0;
}

void queue_records_sync(struct queues *q)
{
	if (q->records->synced == q->records->count || q->records->syncing)
		return;
	q->records->syncing = q->records->count;
	q->records->durable.cb = on_records_durable;
	job_store_await(q->store, &q->records->durable);
}

void queue_records_tidy(struct queues *q, size_t most)
{
	for (; most && q->records->first < q->records->synced; most--) {
		const struct record_left *left = &q->records->left[q->records->first++];
		const struct job_record record = {
			.id = left->id, .attempt = left->attempt, .uid = left->uid};

		job_files_remove(q, &record, RECORD_FILES);
	}
	if (q->records->first == q->records->count)
		q->records->first = q->records->synced = q->records->count = 0;
}

void queue_records_end(struct queues *q)
{
	struct job_records *records = q->records;

	if (records->synced < records->count && job_store_sync(q->store) == 0)
		records->synced = records->count;
	queue_records_tidy(q, TIDIED_AT_END);
	free(records->left);
}
