/* A daemon that starts takes up the jobs that the last one left: those whose shims ran are watched,
 * and the others wait. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/child.h"
#include "daemon/queue/agents.h"
#include "daemon/queue/job_ender.h"
#include "daemon/queue/job_records.h"
#include "daemon/queue/job_restore.h"
#include "daemon/queue/job_starter.h"
#include "daemon/queue/job_table.h"
#include "daemon/queue/job_waits.h"
#include "daemon/queue/queue_context.h"
#include "daemon/report/report.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"
#include "proto/shim.h"

/* The job that a text names. A job that has ended claims nothing. An earlier daemon wrote the
 * numbers of an array's jobs. */
static int64_t claim_in(const struct queues *q, const char *text)
{
	size_t length = strlen(QUEUE_PREEMPTED_BY);
	char *end;

	if (strncmp(text, QUEUE_PREEMPTED_BY, length) != 0)
		return 0;
	int64_t id = strtoll(text + length, &end, 10);
	if (*end != '_')
		return id;
	const struct job *job = job_meant(q, id, (int32_t)strtol(end + 1, NULL, 10));
	return job ? job->record.id : 0;
}

static void grants_restore(struct job *job)
{
	json_t *list = json_loads(job->record.place, 0, NULL), *item;
	const struct queues_host *host = &job->queues->host;
	struct session *session = session_find(host->sessions, job->record.session);
	size_t count = json_array_size(list), i;

	job->grants = calloc(count + 1, sizeof(*job->grants));
	json_array_foreach(list, i, item)
	{
		uint32_t index = (uint32_t)json_integer_value(json_array_get(item, 0));

		for (uint32_t g = 0; job->grants && g < job->queues->host.pool->count; g++)
			if (job->queues->host.pool->gpu[g].info.index == index)
				job->grants[job->grant_count++] = (struct place_grant){
					.gpu = g,
					.bytes = (uint64_t)json_integer_value(
						json_array_get(item, 1)),
				};
	}
	job->compute = session ? session->record.compute : 0;
	if (session)
		report_named(host->report, session, job->record.name);
	json_decref(list);
}

/* How long it has run is known by the wall clock alone. */
static uint64_t started_restore(const struct job *job)
{
	uint64_t now = now_monotonic_ns();
	int64_t ran = now_realtime_ns() - job->record.started;

	return ran > 0 && (uint64_t)ran < now ? now - (uint64_t)ran : now;
}

/* After a power cut the database may be older than the records are. */
static bool began_after_all(struct job *job)
{
	json_t *start, *end;

	job->record.attempt++;
	bool began = job_record_read(job->queues, &job->record, &start, &end) < 0 || start || end;
	json_decref(start);
	json_decref(end);
	job->record.attempt -= !began;
	return began;
}

static void job_take_up(struct job *job)
{
	struct queues *q = job->queues;
	bool begun = job->record.state == JOB_STARTING || job->record.state == JOB_RUNNING ||
		     began_after_all(job);

	/* The reason may be in the words of the job's user, who could have done without --requeue
	 * as well: nobody else is spared by it. */
	job->claim = claim_in(q, *job->record.ending ? job->record.ending : job->record.reason);
	if (!begun) {
		job_settle(job);
		return;
	}
	grants_restore(job);
	job->started_ns = started_restore(job);
	job_state_put(job, JOB_RUNNING);
	job_move(job, &q->jobs->running);
	job_agent_enter(job);
	job_watch(job);
}

void jobs_restore(struct queues *q)
{
	size_t count = 0, all = q->jobs->pending.count;
	int64_t *ids = calloc(all + 1, sizeof(*ids));

	/* A job that ends may end jobs that come after it. */
	for (const struct job *job = q->jobs->pending.first; ids && job; job = job->next)
		ids[count++] = job->record.id;
	for (size_t i = 0; i < count; i++) {
		struct job *job = job_find(q, ids[i]);

		if (job && job->list == &q->jobs->pending)
			job_take_up(job);
	}
	free(ids);
	/* Their end was asked for by the last daemon, which may not have told them. */
	for (struct job *job = q->jobs->running.first, *next; job; job = next) {
		next = job->next;
		if (*job->record.ending)
			job_end_again(job);
	}
}
