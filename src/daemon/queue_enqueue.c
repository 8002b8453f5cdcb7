/* Enqueueing: all requests of one round of the loop are one step on the disk. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/kill_point.h"
#include "base/macros.h"
#include "daemon/log.h"
#include "daemon/queue_private.h"

static void enqueue_free(struct enqueue *e)
{
	free(e->request.text);
	free(e->request.spec.warrant);
	free(e->request.indexes);
	free(e);
}

int jobs_enqueue(struct node *node, const struct enqueue_request *request)
{
	struct queues *q = node->queues;
	struct enqueue *e = calloc(1, sizeof(*e));

	if (!e)
		return -ENOMEM;
	e->request = *request;
	e->peer = *request->peer;
	snprintf(e->queue, sizeof(e->queue), "%s", request->queue);
	snprintf(e->key, sizeof(e->key), "%s", request->key ? request->key : "");
	e->request.peer = &e->peer;
	*q->enqueues_end = e;
	q->enqueues_end = &e->next;
	q->dirty = true;
	return 0;
}

void jobs_enqueue_forget(struct node *node, void *arg)
{
	for (struct enqueue *e = node->queues->enqueues; e; e = e->next)
		if (e->request.arg == arg)
			e->request.cb = NULL;
}

static void record_of(const struct queues *q, const struct enqueue *e, uint32_t i, int64_t now,
		      struct job_record *ret)
{
	const struct enqueue_request *request = &e->request;

	*ret = (struct job_record){
		.id = e->first + i,
		.array = request->indexes ? e->first : 0,
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
	};
}

static int write_one(struct queues *q, struct enqueue *e, int64_t now)
{
	struct job_record record;
	int rc = job_store_spec_add(q->store, e->request.text, e->request.spec.warrant, &e->spec);

	if (rc == 0)
		rc = job_store_next_id(q->store, &e->first);
	for (uint32_t i = 0; rc == 0 && i < e->request.count; i++) {
		record_of(q, e, i, now, &record);
		rc = job_store_add(q->store, &record);
	}
	if (rc == 0 && e->key[0])
		rc = job_store_asked_put(q->store, e->key, e->peer.uid, e->first);
	return rc;
}

static int write_all_of(struct queues *q, int64_t now)
{
	int rc = job_store_begin(q->store);

	if (rc < 0)
		return rc;
	for (struct enqueue *e = q->enqueues; e && rc == 0; e = e->next)
		rc = write_one(q, e, now);
	if (rc < 0)
		job_store_rollback(q->store);
	return rc < 0 ? rc : job_store_commit(q->store, true);
}

/* From the disk into memory. What finds no memory here is found by the next daemon. */
static void jobs_make(struct queues *q, struct enqueue *e, int64_t now)
{
	struct job_spec *spec = malloc(sizeof(*spec));
	struct job_record record;

	if (!spec)
		return;
	*spec = e->request.spec;
	e->request.spec.warrant = NULL; /* it is the job's now */
	spec->uses = 1;
	spec->id = e->spec;
	for (uint32_t i = 0; i < e->request.count; i++) {
		record_of(q, e, i, now, &record);
		record.name = spec->name;
		struct job *job = job_new(q, &record, spec);

		if (!job)
			break;
		job_state_set(job, record.state);
		job_move(job, &q->pending);
	}
	/* Once all of an array are there. */
	for (uint32_t i = 0; i < e->request.count; i++) {
		struct job *job = job_find(q->node, e->first + i);

		if (job)
			job_settle(job);
	}
	job_spec_unref(spec);
}

static void failed(const struct enqueue *e, int rc)
{
	struct error err = {0};

	error_set(&err, EXIT_CODE_FAILED, "the job cannot be written down: %s",
		  rc == -ENOSPC    ? "the disk is full"
		  : rc == -EFBIG   ? "carved may write no larger files (ulimit -f)"
		  : rc == -EROFS   ? "the database of jobs cannot be written"
		  : rc == -EUCLEAN ? "the database of jobs is damaged"
				   : strerrordesc_np(-rc));
	if (e->request.cb)
		e->request.cb(e->request.arg, 0, 0, &err);
}

void enqueue_commit(struct queues *q)
{
	int64_t now = now_realtime_ns();

	if (!q->enqueues)
		return;
	kill_point("enqueue.begun");
	int rc = write_all_of(q, now);
	kill_point("enqueue.committed");
	struct enqueue *list = q->enqueues;
	q->enqueues = NULL;
	q->enqueues_end = &q->enqueues;
	for (struct enqueue *e = list, *next; e; e = next) {
		next = e->next;
		if (rc < 0) {
			failed(e, rc);
		} else {
			jobs_make(q, e, now);
			log_event(LOG_INFO, "job.enqueued id=%" PRId64 " count=%u uid=%u queue=%s",
				  e->first, e->request.count, e->peer.uid, e->queue);
			if (e->request.cb)
				e->request.cb(e->request.arg, e->first, e->request.count, NULL);
		}
		enqueue_free(e);
	}
}
