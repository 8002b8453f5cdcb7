/* Enqueueing. A client is told the ID of its job once the job is on the disk, so a job that was
 * promised survives a power cut. All requests of one round of the loop are one step on the disk,
 * and all steps that wait for the disk at that moment are one wait.
 *
 * The rows of a long array take many rounds, in parts, in its user's turns. Nobody sees these rows
 * before the last step: a request that is not complete is removed when the database is opened next.
 * Then its jobs are made in memory, and settled when all of them are there, or the array would seem
 * to have ended with the first ones. A request counts in its user's budget from the beginning. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/kill_point.h"
#include "base/macros.h"
#include "daemon/host/fair.h"
#include "daemon/host/log.h"
#include "daemon/host/peer.h"
#include "daemon/host/unrecorded.h"
#include "daemon/queue/enqueue.h"
#include "daemon/queue/job_change.h"
#include "daemon/queue/job_table.h"
#include "daemon/queue/job_waits.h"
#include "daemon/queue/queue_context.h"
#include "proto/warden_jobs.h"

struct enqueue {
	struct enqueue *next;
	struct turn turn; /* the turn of a long array */
	struct queues *queues;
	struct disk_waiter durable;
	uid_t owner; /* the user whose budget it is in, with so many units beside one for each job
		      */
	unsigned units;
	struct enqueue_request request;
	struct peer peer;
	char queue[QUEUE_NAME_SIZE], key[64];
	int64_t spec, number, first; /* the ID of the first job */
	uint32_t text_bytes;         /* the share of each of its jobs */
	/* The last two are a long array's own. */
	enum { ENQUEUE_WRITES, ENQUEUE_SYNCS, ENQUEUE_MAKES, ENQUEUE_SETTLES } stage;
	uint32_t done;
	int64_t now;
	struct job_spec *made;
};

struct enqueues {
	struct enqueue *first, **end;           /* came in this round of the loop */
	struct enqueue *syncing, **syncing_end; /* committed, and not on the disk yet */
	struct turns longs;                     /* struct enqueue, of long arrays */
};

struct enqueues *enqueues_new(void)
{
	struct enqueues *enqueues = calloc(1, sizeof(*enqueues));

	if (enqueues) {
		enqueues->end = &enqueues->first;
		enqueues->syncing_end = &enqueues->syncing;
	}
	return enqueues;
}

bool enqueues_busy(const struct queues *q)
{
	return q->enqueues->first || q->enqueues->syncing || q->enqueues->longs.first;
}

static void enqueue_free(struct queues *q, struct enqueue *e)
{
	/* Else its request and its jobs leave when they end. */
	if (!e->made)
		budget_leave_many(&q->jobs->budget, e->owner, e->units + e->request.count);
	free(e->request.text);
	free(e->request.spec.warrant);
	free(e->request.indexes);
	job_spec_unref(e->made);
	free(e);
}

int jobs_enqueue(struct queues *q, const struct enqueue_request *request)
{
	struct enqueue *e = calloc(1, sizeof(*e));

	if (!e)
		return -ENOMEM;
	e->units = queue_request_units(request->text);
	e->text_bytes = (uint32_t)(strlen(request->text) / request->count + 1);
	if (!budget_enter_many(&q->jobs->budget, request->peer->uid, e->units + request->count,
			       &e->owner)) {
		free(e);
		return -EMFILE;
	}
	e->queues = q;
	e->request = *request;
	e->peer = *request->peer;
	snprintf(e->queue, sizeof(e->queue), "%s", request->queue);
	snprintf(e->key, sizeof(e->key), "%s", request->key ? request->key : "");
	e->request.peer = &e->peer;
	if (e->request.count > QUEUE_SHORT) {
		turns_add(&q->enqueues->longs, &e->turn, e->owner);
	} else {
		*q->enqueues->end = e;
		q->enqueues->end = &e->next;
	}
	q->dirty = true;
	return 0;
}

static void forget(struct enqueue *e, const void *arg)
{
	if (e->request.arg == arg)
		e->request.cb = NULL;
}

void jobs_enqueue_forget(struct queues *q, void *arg)
{
	struct enqueue *const lists[] = {q->enqueues->first, q->enqueues->syncing};

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		for (struct enqueue *e = lists[i]; e; e = e->next)
			forget(e, arg);
	for (struct turn *turn = q->enqueues->longs.first; turn; turn = turn->next)
		forget(CONTAINER_OF(turn, struct enqueue, turn), arg);
}

static bool is_asked(const struct enqueue *e, uid_t uid, const char *key)
{
	return e->peer.uid == uid && !strcmp(e->key, key);
}

bool jobs_enqueue_has(const struct queues *q, uid_t uid, const char *key)
{
	const struct enqueue *const lists[] = {q->enqueues->first, q->enqueues->syncing};
	bool found = false;

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		for (const struct enqueue *e = lists[i]; e && !found; e = e->next)
			found = is_asked(e, uid, key);
	for (struct turn *turn = q->enqueues->longs.first; turn && !found; turn = turn->next)
		found = is_asked(CONTAINER_OF(turn, struct enqueue, turn), uid, key);
	return found;
}

static void record_of(const struct queues *q, const struct enqueue *e, uint32_t i, int64_t now,
		      struct job_record *ret)
{
	const struct enqueue_request *request = &e->request;

	*ret = (struct job_record){
		.id = e->first + i,
		.array = request->indexes ? e->number : 0,
		.index = request->indexes ? request->indexes[i] : -1,
		.spec = e->spec,
		.uid = e->peer.uid,
		.gid = e->peer.gid,
		.queue = e->queue,
		.name = request->spec.name,
		.state = request->spec.hold ? JOB_HELD : JOB_QUEUED,
		.priority = request->spec.priority,
		.boot = "",
		.place = "",
		.ending = "",
		.reason = "",
		.enqueued = now,
		.text_bytes = e->text_bytes,
	};
}

static int asked_put(struct queues *q, const struct enqueue *e)
{
	return job_store_asked_put(q->store, e->key, e->peer.uid,
				   &(struct job_asked){e->first, e->request.count});
}

static int number_take(struct queues *q, struct enqueue *e)
{
	int rc = job_store_number_take(q->store, &e->number);

	e->first = e->request.indexes ? job_element_id(e->number, 0) : e->number;
	return rc;
}

static int write_one(struct queues *q, struct enqueue *e, int64_t now)
{
	struct job_record record;
	int rc = job_store_spec_add(q->store, e->request.text, e->request.spec.warrant, true,
				    &e->spec);

	if (rc == 0)
		rc = number_take(q, e);
	for (uint32_t i = 0; rc == 0 && i < e->request.count; i++) {
		record_of(q, e, i, now, &record);
		rc = job_store_add(q->store, &record);
	}
	if (rc == 0 && e->key[0])
		rc = asked_put(q, e);
	return rc;
}

static int write_all_of(struct queues *q, int64_t now)
{
	int rc = job_store_begin(q->store);

	if (rc < 0)
		return rc;
	for (struct enqueue *e = q->enqueues->first; e && rc == 0; e = e->next)
		rc = write_one(q, e, now);
	if (rc < 0)
		job_store_rollback(q->store);
	return rc < 0 ? rc : job_store_commit(q->store);
}

/* From the disk into memory, from job number `from` on. A job that finds no memory here is found by
 * the next daemon. Returns the number of the next one, as time is up at `end`. */
static uint32_t jobs_make(struct queues *q, struct enqueue *e, uint32_t from, uint64_t end)
{
	struct job_record record;
	uint32_t i = from;

	for (; i < e->request.count && now_monotonic_ns() < end; i++) {
		record_of(q, e, i, e->now, &record);
		record.name = e->made->name;
		struct job *job = job_new(q, &record, e->made);

		if (!job)
			return e->request.count;
		job_state_set(job, record.state);
		job_move(job, &q->jobs->pending);
	}
	return i;
}

/* Once all of an array are there: or it would seem to have ended with the first ones. */
static uint32_t jobs_settle(struct queues *q, const struct enqueue *e, uint32_t from, uint64_t end)
{
	uint32_t i = from;

	for (; i < e->request.count && now_monotonic_ns() < end; i++) {
		struct job *job = job_find(q, e->first + i);

		if (job && job->list == &q->jobs->pending)
			job_settle(job);
	}
	return i;
}

static bool spec_make(struct queues *q, struct enqueue *e)
{
	e->made = malloc(sizeof(*e->made));
	if (!e->made)
		return false;
	*e->made = e->request.spec;
	e->request.spec.warrant = NULL; /* it is the job's now */
	e->made->uses = 1;
	e->made->id = e->spec;
	e->made->budget = &q->jobs->budget;
	e->made->owner = e->owner;
	e->made->units = e->units;
	return true;
}

static void failed(const struct enqueue *e, int rc)
{
	struct error err = {0};

	unrecorded_set(&err, "the job cannot be written down", rc);
	if (e->request.cb)
		e->request.cb(e->request.arg, 0, 0, &err);
}

static void succeeded(const struct enqueue *e)
{
	log_event(LOG_INFO, "job.enqueued id=%" PRId64 " count=%u uid=%u queue=%s", e->number,
		  e->request.count, e->peer.uid, e->queue);
	if (e->request.cb)
		e->request.cb(e->request.arg, e->first, e->request.count, NULL);
}

/* Rows that stay are found by the next daemon; their ID was told to nobody. */
static void rows_remove(struct queues *q, const struct enqueue *e)
{
	if (e->spec)
		(void)job_store_spec_remove(q->store, e->spec, e->first,
					    e->first + e->request.count - 1);
}

static void on_durable(struct disk_waiter *waiter, int rc)
{
	struct enqueue *e = CONTAINER_OF(waiter, struct enqueue, durable);
	struct queues *q = e->queues;

	/* They are called in their order. */
	q->enqueues->syncing = e->next;
	if (!q->enqueues->syncing)
		q->enqueues->syncing_end = &q->enqueues->syncing;
	kill_point("enqueue.durable");
	if (rc < 0) {
		rows_remove(q, e);
		failed(e, rc);
	} else {
		if (spec_make(q, e)) {
			(void)jobs_make(q, e, 0, UINT64_MAX);
			(void)jobs_settle(q, e, 0, UINT64_MAX);
		}
		succeeded(e);
	}
	enqueue_free(q, e);
}

static void sync_begin(struct queues *q, struct enqueue *e)
{
	e->stage = ENQUEUE_SYNCS;
	e->next = NULL;
	*q->enqueues->syncing_end = e;
	q->enqueues->syncing_end = &e->next;
	e->durable.cb = on_durable;
	job_store_await(q->store, &e->durable);
}

void enqueue_commit(struct queues *q)
{
	int64_t now = now_realtime_ns();

	if (!q->enqueues->first || job_store_holds(q->store))
		return;
	kill_point("enqueue.begun");
	int rc = write_all_of(q, now);
	kill_point("enqueue.committed");
	struct enqueue *list = q->enqueues->first;
	q->enqueues->first = NULL;
	q->enqueues->end = &q->enqueues->first;
	for (struct enqueue *e = list, *next; e; e = next) {
		next = e->next;
		e->now = now;
		if (rc == 0) {
			sync_begin(q, e);
			continue;
		}
		failed(e, rc);
		enqueue_free(q, e);
	}
}

/* ---- long arrays -------------------------------------------------------------------------- */

static int long_begin(struct queues *q, struct enqueue *e)
{
	e->now = now_realtime_ns();
	int rc = job_store_spec_add(q->store, e->request.text, e->request.spec.warrant, false,
				    &e->spec);
	return rc == 0 ? number_take(q, e) : rc;
}

/* Nobody sees them before the last step, which is one of the disk. */
static int long_end(struct queues *q, struct enqueue *e)
{
	int rc = job_store_spec_entered(q->store, e->spec);

	return rc == 0 && e->key[0] ? asked_put(q, e) : rc;
}

static int long_write(struct queues *q, struct enqueue *e, uint64_t end)
{
	uint32_t rows = e->request.count;
	struct job_record record;
	int rc = job_store_begin(q->store);

	if (rc < 0)
		return rc;
	/* It may have begun in a part that had no time for a job. */
	if (!e->spec)
		rc = long_begin(q, e);
	for (; rc == 0 && e->done < rows && now_monotonic_ns() < end; e->done++) {
		record_of(q, e, e->done, e->now, &record);
		rc = job_store_add(q->store, &record);
	}
	bool last = e->done == rows;
	if (rc == 0 && last)
		rc = long_end(q, e);
	if (rc < 0)
		job_store_rollback(q->store);
	return rc < 0 ? rc : job_store_commit(q->store);
}

static void long_leave(struct queues *q, struct enqueue *e)
{
	turns_remove(&q->enqueues->longs, &e->turn);
	enqueue_free(q, e);
}

static void long_fail(struct queues *q, struct enqueue *e, int rc)
{
	rows_remove(q, e);
	failed(e, rc);
	long_leave(q, e);
}

static void on_long_durable(struct disk_waiter *waiter, int rc)
{
	struct enqueue *e = CONTAINER_OF(waiter, struct enqueue, durable);
	struct queues *q = e->queues;

	if (rc == 0 && !spec_make(q, e))
		rc = -ENOMEM;
	if (rc < 0) {
		long_fail(q, e, rc);
		return;
	}
	e->stage = ENQUEUE_MAKES;
}

static void stage_next(struct enqueue *e, uint32_t of)
{
	if (e->done < of)
		return;
	e->stage++;
	e->done = 0;
}

/* The next by turn, but for those that wait for the disk. NULL: all do. */
static struct enqueue *long_next(const struct queues *q)
{
	for (struct turn *turn = q->enqueues->longs.first; turn; turn = turn->next) {
		struct enqueue *e = CONTAINER_OF(turn, struct enqueue, turn);

		if (e->stage != ENQUEUE_SYNCS)
			return e;
	}
	return NULL;
}

bool enqueue_part_owner(const struct queues *q, uid_t *ret)
{
	const struct enqueue *e = long_next(q);

	if (e)
		*ret = e->turn.user;
	return e;
}

void enqueue_part(struct queues *q)
{
	struct enqueue *e = long_next(q);
	uint64_t end = now_monotonic_ns() + FAIR_STEP_NS;
	uint32_t count = e->request.count;
	int rc = 0;

	turns_pass(&q->enqueues->longs, e->turn.user);
	switch (e->stage) {
	case ENQUEUE_WRITES:
		rc = long_write(q, e, end);
		kill_point("enqueue.part");
		stage_next(e, count);
		if (rc < 0 || e->stage != ENQUEUE_SYNCS)
			break;
		e->durable.cb = on_long_durable;
		job_store_await(q->store, &e->durable);
		break;
	case ENQUEUE_SYNCS:
		break;
	case ENQUEUE_MAKES:
		e->done = jobs_make(q, e, e->done, end);
		stage_next(e, count);
		if (e->stage == ENQUEUE_SETTLES)
			succeeded(e);
		break;
	case ENQUEUE_SETTLES:
		e->done = jobs_settle(q, e, e->done, end);
		if (e->done == count)
			long_leave(q, e);
		break;
	}
	if (rc < 0)
		long_fail(q, e, rc);
}

void enqueues_free(struct queues *q)
{
	for (struct enqueue *e = q->enqueues->first, *next; e; e = next) {
		next = e->next;
		enqueue_free(q, e);
	}
	q->enqueues->first = NULL;
	while (q->enqueues->longs.first)
		long_leave(q, CONTAINER_OF(q->enqueues->longs.first, struct enqueue, turn));
}
