/* Jobs that have ended: how many are kept, and how much text of their requests. The first to go are
 * those of the user who has most, so that nobody's many jobs push out another's. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "daemon/queue/job_files.h"
#include "daemon/queue/job_history.h"
#include "daemon/queue/job_table.h"
#include "daemon/queue/queue_context.h"
#include "proto/shim.h"

/* In one look, which there is one of a second: some milliseconds. */
#define TRIMMED_AT_ONCE 500u

static int count_one(void *arg, uid_t uid, const struct job_history *history)
{
	struct queues *q = arg;
	struct queue_use *use = queue_use_get(q, uid, true);

	if (use)
		use->ended = *history;
	q->ended.jobs += history->jobs;
	q->ended.text_bytes += history->text_bytes;
	return 0;
}

int queue_history_load(struct queues *q)
{
	return job_store_each_count(q->store, count_one, q);
}

static void history_add(struct job_history *history, const struct job_record *record)
{
	history->jobs++;
	history->text_bytes += record->text_bytes;
}

static void history_remove(struct job_history *history, const struct job_record *record)
{
	history->jobs -= MIN(history->jobs, 1);
	history->text_bytes -= MIN(history->text_bytes, record->text_bytes);
}

void queue_history_add(struct queues *q, const struct job_record *record)
{
	struct queue_use *use = queue_use_get(q, record->uid, true);

	if (!use)
		return;
	history_add(&use->ended, record);
	history_add(&q->ended, record);
}

struct oldest {
	struct job_record record[TRIMMED_AT_ONCE];
	size_t count, attempts;
	struct job_history all; /* the jobs of these */
	struct job_history excess;
};

static int oldest_add(void *arg, const struct job_record *record)
{
	struct oldest *oldest = arg;
	bool more = oldest->all.jobs < oldest->excess.jobs ||
		    oldest->all.text_bytes < oldest->excess.text_bytes;

	/* Each attempt has files. */
	if (!more || oldest->attempts >= TRIMMED_AT_ONCE || oldest->count == TRIMMED_AT_ONCE)
		return 0;
	oldest->attempts += record->attempt;
	oldest->record[oldest->count++] = *record;
	history_add(&oldest->all, record);
	return 0;
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
	for (size_t i = 0; i < oldest->count; i++) {
		struct job_record *record = &oldest->record[i];

		history_remove(&use->ended, record);
		history_remove(&q->ended, record);
		/* A daemon that was killed may have left the records. */
		for (; record->attempt; record->attempt--)
			job_files_remove(q, record,
					 SHIM_FILE_LOG | SHIM_FILE_ERR | SHIM_FILE_RECORD |
						 SHIM_FILE_GIVEN_UP);
	}
}

static bool has_more(const struct job_history *one, const struct job_history *other, bool text)
{
	return text ? one->text_bytes > other->text_bytes : one->jobs > other->jobs;
}

/* The owner with most. It is not the user with most: a range may have some of each of its users.
 * NULL: nobody has any. */
static struct queue_use *user_with_most(const struct queues *q, bool text)
{
	struct queue_use *owner = q->jobs->uses, *most = NULL;

	for (struct queue_use *use = q->jobs->uses; use; use = use->next)
		use->all = (struct job_history){0};
	for (struct queue_use *use = q->jobs->uses; use; use = use->next) {
		use->owner->all.jobs += use->ended.jobs;
		use->owner->all.text_bytes += use->ended.text_bytes;
	}
	for (struct queue_use *use = q->jobs->uses; use; use = use->next)
		if (has_more(&use->all, &owner->all, text))
			owner = use;
	for (struct queue_use *use = q->jobs->uses; use; use = use->next)
		if (use->owner == owner && (!most || has_more(&use->ended, &most->ended, text)))
			most = use;
	return most;
}

void queue_history_trim(struct queues *q, const struct job_history *keep)
{
	const struct job_history excess = {q->ended.jobs - MIN(q->ended.jobs, keep->jobs),
					   q->ended.text_bytes -
						   MIN(q->ended.text_bytes, keep->text_bytes)};
	bool due = (excess.jobs || excess.text_bytes) && !job_store_holds(q->store);
	struct oldest *oldest = due ? calloc(1, sizeof(*oldest)) : NULL;
	struct queue_use *most = due ? user_with_most(q, !excess.jobs) : NULL;

	if (!oldest)
		return;
	oldest->excess = excess;
	/* One thing after the other: who has the most text need not have the most jobs. */
	if (excess.jobs)
		oldest->excess.text_bytes = 0;
	if (most &&
	    job_store_each_oldest(q->store, most->uid, TRIMMED_AT_ONCE, oldest_add, oldest) == 0)
		forget(q, most, oldest);
	free(oldest);
}
