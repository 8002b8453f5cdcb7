/* Changes of jobs that their users ask for: a cancellation, a hold, another queue, priority or
 * text. A change is on disk before it is told. A change of a long array is done in parts, each one
 * step on the disk, in its user's turns (core/turns.h), and none of the array starts meanwhile. The
 * jobs of an array are listed by ID when the change begins, as some may end before their part
 * comes. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/macros.h"
#include "daemon/host/fair.h"
#include "daemon/host/log.h"
#include "daemon/host/unrecorded.h"
#include "daemon/queue/job_change.h"
#include "daemon/queue/job_ender.h"
#include "daemon/queue/job_rights.h"
#include "daemon/queue/job_table.h"
#include "daemon/queue/job_waits.h"
#include "daemon/queue/queue_context.h"
#include "daemon/queue/queue_pods.h"

/* Work on the jobs that an ID means: of a long array in parts. */
struct queue_parts {
	struct turn turn;
	struct queues *queues;
	struct disk_waiter durable;
	int64_t array, *ids;
	uint32_t count, done;
	int rc;
	jobs_cb cb;
	jobs_done_cb done_cb;
	void *arg;
};

/* A job that waits to take up its pod takes it up to delete it. False: it has none. */
static bool pod_end_begin(struct job *job, const char *why)
{
	struct job_record last = job->record;

	last.attempt++;
	if (!job_pod_is_there(job->queues, &last))
		return false;
	if (*job->record.ending)
		return true;
	job_text_set(&job->record.ending, why);
	job->record.ending_as = JOB_CANCELLED;
	if (job->record.state == JOB_HELD)
		job_state_set(job, JOB_QUEUED);
	if (job_record_save(job) < 0)
		log_event(LOG_WARNING, "job.unrecorded id=%" PRId64, job->record.id);
	job_settle(job);
	return true;
}

void job_cancel(struct job *job, const char *why)
{
	struct queues *q = job->queues;

	if (job->list == &q->jobs->running)
		job_end_begin(job, JOB_CANCELLED, why);
	else if (!job_is_ending(job) && !pod_end_begin(job, why))
		job_finish(job, JOB_CANCELLED, why);
}

bool job_end_of_session(struct queues *q, const char *session, enum job_state as, const char *why)
{
	const struct job *found = job_of_session(q, session);
	struct job *job = found ? job_find(q, found->record.id) : NULL;

	if (job)
		job_end_begin(job, as, why);
	return job;
}

static bool waits(const struct job *job)
{
	return job->record.state == JOB_QUEUED || job->record.state == JOB_HELD;
}

static int not_waiting(const struct job *job, struct error *err)
{
	char id[JOB_ID_TEXT];

	error_set(err, EXIT_CODE_FAILED, "job %s does not wait: it is %s",
		  job_id_text(&job->record, id), job_state_text(job->record.state));
	return -EXIT_CODE_FAILED;
}

static int not_saved(int rc, struct error *err)
{
	return unrecorded_set(err, "the change cannot be written down", rc);
}

int job_hold(struct job *job, bool hold, struct error *err)
{
	enum job_state before = job->record.state;

	if (!waits(job))
		return not_waiting(job, err);
	job->record.state = hold ? JOB_HELD : JOB_QUEUED;
	int rc = job_record_save(job);
	enum job_state after = job->record.state;
	job->record.state = before;
	if (rc < 0)
		return not_saved(rc, err);
	if (after != before)
		job_state_set(job, after);
	job_settle(job);
	return 0;
}

static int spec_change(struct job *job, const char *text, struct warrant *warrant,
		       struct error *err)
{
	struct job_spec *spec = calloc(1, sizeof(*spec));
	struct queues *q = job->queues;

	if (!spec || job_spec_load(text, spec) < 0) {
		free(warrant);
		free(spec);
		return error_set(err, EXIT_CODE_FAILED, "the job cannot be read");
	}
	spec->warrant = warrant;
	spec->uses = 1;
	spec->units = queue_request_units(text);
	if (!budget_enter_many(&q->jobs->budget, job->record.uid, spec->units + 1, &spec->owner)) {
		job_spec_unref(spec);
		return error_set(err, EXIT_CODE_FAILED, QUEUE_TOO_MANY);
	}
	spec->budget = &q->jobs->budget;
	int rc = job_store_spec_add(job->queues->store, text, warrant, true, &spec->id);
	if (rc < 0) {
		budget_leave(&q->jobs->budget, spec->owner);
		job_spec_unref(spec);
		return not_saved(rc, err);
	}
	if (job->spec->budget)
		budget_leave(job->spec->budget, job->spec->owner);
	(void)queue_rights_over(q, job->spec->warrant, job_position(job), 1);
	job_move(job, NULL); /* its kind has the old one */
	job_spec_unref(job->spec);
	job->spec = spec;
	job->record.spec = spec->id;
	job->record.text_bytes = (uint32_t)strlen(text);
	job->record.name = spec->name;
	return 0;
}

int job_change(struct job *job, const char *queue, const int *priority, const char *text,
	       struct warrant *warrant, struct error *err)
{
	struct queues *q = job->queues;
	int rc = 0;

	if (!waits(job)) {
		free(warrant);
		return not_waiting(job, err);
	}
	queue = queue ? queue_name_intern(q, queue) : job->record.queue;
	if (!queue) {
		free(warrant);
		return not_saved(-ENOMEM, err);
	}
	job_move(job, NULL);
	if (text)
		rc = spec_change(job, text, warrant, err);
	if (rc == 0)
		job_queue_set(job, queue);
	if (rc == 0 && priority)
		job->record.priority = *priority;
	if (rc == 0 && (rc = job_record_save(job)) < 0)
		rc = not_saved(rc, err);
	job_settle(job);
	return rc;
}

/* ---- many jobs ----------------------------------------------------------------------------- */

/* In one step on the disk. */
static void part_change(struct queues *q, struct queue_parts *p)
{
	uint64_t end = now_monotonic_ns() + FAIR_STEP_NS;
	int rc = job_store_begin(q->store);

	for (; p->done < p->count && now_monotonic_ns() < end; p->done++) {
		struct job *job = job_find(q, p->ids[p->done]);

		if (job && job->record.array == p->array)
			p->cb(job, p->arg);
	}
	if (rc == 0)
		rc = job_store_commit(q->store);
	if (rc == 0)
		queue_overs_tell(q);
	if (p->rc == 0)
		p->rc = rc;
}

static void on_durable(struct disk_waiter *waiter, int rc)
{
	struct queue_parts *p = CONTAINER_OF(waiter, struct queue_parts, durable);

	p->done_cb(p->arg, p->rc < 0 ? p->rc : rc);
	free(p->ids);
	free(p);
}

/* All jobs were changed. */
static void parts_end(struct queue_parts *p)
{
	p->durable.cb = on_durable;
	job_store_await(p->queues->store, &p->durable);
}

static struct queue_parts *parts_new(struct queues *q, const struct job *first, bool all)
{
	struct queue_parts *p = calloc(1, sizeof(*p));
	uint32_t count = all ? first->array->living : 1;

	if (p)
		p->ids = calloc(count, sizeof(*p->ids));
	if (!p || !p->ids) {
		free(p);
		return NULL;
	}
	p->queues = q;
	p->array = first->record.array;
	for (const struct job *job = first; p->count < count; job = job->next_of)
		p->ids[p->count++] = job->record.id;
	return p;
}

void jobs_change(struct queues *q, uid_t owner, int64_t id, int32_t index, jobs_cb cb,
		 jobs_done_cb done, void *arg)
{
	const struct job *first = job_meant(q, id, index);
	bool all = first && first->array && index < 0;
	struct queue_parts *p = first ? parts_new(q, first, all) : NULL;

	if (!p) {
		done(arg, first ? -ENOMEM : 0);
		return;
	}
	p->cb = cb;
	p->done_cb = done;
	p->arg = arg;
	if (p->count <= QUEUE_SHORT && !q->parts.first && !job_store_holds(q->store))
		part_change(q, p);
	if (p->done == p->count) {
		parts_end(p);
		return;
	}
	/* The first ones may have ended already, and the array with them. */
	struct job_array *array = p->array ? job_array_find(q, p->array) : NULL;
	if (array)
		array->halts++;
	turns_add(&q->parts, &p->turn, owner);
}

/* ---- the loop ----------------------------------------------------------------------------- */

static struct queue_parts *parts_first(const struct queues *q)
{
	return q->parts.first ? CONTAINER_OF(q->parts.first, struct queue_parts, turn) : NULL;
}

bool jobs_change_owner(const struct queues *q, uid_t *ret)
{
	if (q->parts.first)
		*ret = q->parts.first->user;
	return q->parts.first;
}

void jobs_change_part(struct queues *q)
{
	struct queue_parts *p = parts_first(q);

	part_change(q, p);
	turns_pass(&q->parts, p->turn.user);
	if (p->done < p->count)
		return;
	turns_remove(&q->parts, &p->turn);
	/* The array may have ended meanwhile. */
	struct job_array *array = p->array ? job_array_find(q, p->array) : NULL;
	if (array && array->halts)
		array->halts--;
	q->dirty |= p->array != 0;
	parts_end(p);
}

void jobs_change_free(struct queues *q)
{
	for (struct queue_parts *p; (p = parts_first(q));) {
		turns_remove(&q->parts, &p->turn);
		free(p->ids);
		free(p);
	}
}
