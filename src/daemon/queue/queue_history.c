/* Jobs that have ended: how many are kept. The first to go are those of the user who has most, so
 * that nobody's many jobs push out another's. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "daemon/queue/queue_private.h"
#include "proto/shim.h"

/* In one look, which there is one of a second: some milliseconds. */
#define TRIMMED_AT_ONCE 500u

static int count_one(void *arg, uid_t uid, uint64_t count)
{
	struct queues *q = arg;
	struct queue_use *use = queue_use_get(q, uid, true);

	if (use)
		use->ended = count;
	q->ended += count;
	return 0;
}

int queue_history_load(struct queues *q)
{
	return job_store_each_count(q->store, count_one, q);
}

void queue_history_add(struct queues *q, uid_t uid)
{
	struct queue_use *use = queue_use_get(q, uid, true);

	if (!use)
		return;
	use->ended++;
	q->ended++;
}

struct oldest {
	struct job_record record[TRIMMED_AT_ONCE];
	size_t count;
};

static int oldest_add(void *arg, const struct job_record *record)
{
	struct oldest *oldest = arg;

	if (oldest->count < TRIMMED_AT_ONCE)
		oldest->record[oldest->count++] = *record;
	return 0;
}

/* A daemon that was killed may have left the record. */
static void attempt_forget(struct queues *q, const struct job_record *record)
{
	job_file_remove(q, record, SHIM_LOG);
	job_file_remove(q, record, SHIM_ERR);
	job_file_remove(q, record, SHIM_RECORD);
}

/* On disk first: a log without a job is found by nobody. */
static void forget(struct queues *q, struct queue_use *use, struct oldest *oldest)
{
	if (job_store_begin(q->store) < 0)
		return;
	for (size_t i = 0; i < oldest->count; i++)
		if (job_store_forget(q->store, &oldest->record[i]) < 0) {
			job_store_rollback(q->store);
			return;
		}
	if (job_store_commit(q->store) < 0)
		return;
	use->ended -= MIN(use->ended, oldest->count);
	q->ended -= MIN(q->ended, oldest->count);
	for (size_t i = 0; i < oldest->count; i++) {
		struct job_record *record = &oldest->record[i];

		for (; record->attempt; record->attempt--)
			attempt_forget(q, record);
	}
}

void queue_history_trim(struct queues *q, uint64_t keep)
{
	struct queue_use *most = q->uses;
	bool due = q->ended > keep && !job_store_holds(q->store);
	struct oldest *oldest = due ? calloc(1, sizeof(*oldest)) : NULL;

	if (!oldest)
		return;
	for (struct queue_use *use = q->uses; use; use = use->next)
		if (use->ended > most->ended)
			most = use;
	if (most && job_store_each_oldest(q->store, most->uid,
					  (uint32_t)MIN(q->ended - keep, TRIMMED_AT_ONCE),
					  oldest_add, oldest) == 0)
		forget(q, most, oldest);
	free(oldest);
}
