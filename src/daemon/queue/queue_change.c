/* Changes of jobs that their users ask for. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "daemon/host/log.h"
#include "daemon/host/unrecorded.h"
#include "daemon/queue/queue_pods.h"
#include "daemon/queue/queue_private.h"

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

	if (job->list == &q->running)
		job_end_begin(job, JOB_CANCELLED, why);
	else if (!job_is_ending(job) && !pod_end_begin(job, why))
		job_finish(job, JOB_CANCELLED, why);
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
	if (!crowd_enter_many(&q->crowd, job->record.uid, spec->units + 1, &spec->owner)) {
		job_spec_unref(spec);
		return error_set(err, EXIT_CODE_FAILED, QUEUE_TOO_MANY);
	}
	spec->crowd = &q->crowd;
	int rc = job_store_spec_add(job->queues->store, text, warrant, true, &spec->id);
	if (rc < 0) {
		crowd_leave(&q->crowd, spec->owner);
		job_spec_unref(spec);
		return not_saved(rc, err);
	}
	if (job->spec->crowd)
		crowd_leave(job->spec->crowd, job->spec->owner);
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
