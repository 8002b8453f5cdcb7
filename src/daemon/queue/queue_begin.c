/* The beginning of a daemon, which takes up the jobs that the last one left, and its end. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "daemon/host/child.h"
#include "daemon/host/log.h"
#include "daemon/queue/queue_private.h"
#include "daemon/session/session.h"
#include "proto/shim.h"

/* Records of ended jobs that are removed at the end. */
#define TIDIED_AT_END 1000u
#define BOOT_ID "/proc/sys/kernel/random/boot_id"

/* One that has ended claims nothing. A daemon before wrote numbers of an array's jobs. */
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

/* The reason may be in the words of the job's user, who could have done without --requeue as well:
 * nobody else is spared by it. */
static void claim_restore(struct job *job)
{
	job->claim = claim_in(job->queues,
			      *job->record.ending ? job->record.ending : job->record.reason);
}

static void grants_restore(struct job *job)
{
	json_t *list = json_loads(job->record.place, 0, NULL), *item;
	const struct session *session =
		session_find(job->queues->host.sessions, job->record.session);
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
	json_decref(list);
}

/* How long it has run is known by the wall clock alone. */
static uint64_t started_restore(const struct job *job)
{
	uint64_t now = now_monotonic_ns();
	int64_t ran = now_realtime_ns() - job->record.started;

	return ran > 0 && (uint64_t)ran < now ? now - (uint64_t)ran : now;
}

static void counts_restore(struct job *job)
{
	struct agent *agent = agent_find(job->queues, job->record.agent);
	int position = agent ? agent_queue_position(agent, job->record.queue) : -1;

	if (position >= 0)
		agent->queue[position].running++;
	if (job->array)
		job->array->running++;
}

static bool record_is_there(const struct job *job)
{
	json_t *start, *end;

	bool there = job_record_read(job->queues, &job->record, &start, &end) < 0 || start || end;
	json_decref(start);
	json_decref(end);
	return there;
}

/* After a power cut the database may be older than the records are. */
static bool began_after_all(struct job *job)
{
	job->record.attempt++;
	if (record_is_there(job))
		return true;
	job->record.attempt--;
	return false;
}

static void job_take_up(struct job *job)
{
	struct queues *q = job->queues;
	bool begun = job->record.state == JOB_STARTING || job->record.state == JOB_RUNNING ||
		     began_after_all(job);

	claim_restore(job);
	if (!begun) {
		job_settle(job);
		return;
	}
	grants_restore(job);
	job->started_ns = started_restore(job);
	job_state_put(job, JOB_RUNNING);
	job_move(job, &q->running);
	counts_restore(job);
	job_watch(job);
}

static void jobs_take_up(struct queues *q)
{
	size_t count = 0, all = q->pending.count;
	int64_t *ids = calloc(all + 1, sizeof(*ids));

	/* One that ends may end others that come after it. */
	for (const struct job *job = q->pending.first; ids && job; job = job->next)
		ids[count++] = job->record.id;
	for (size_t i = 0; i < count; i++) {
		struct job *job = job_find(q, ids[i]);

		if (job && job->list == &q->pending)
			job_take_up(job);
	}
	free(ids);
	/* Their end was asked for by the last daemon, which may not have told them. */
	for (struct job *job = q->running.first, *next; job; job = next) {
		next = job->next;
		if (*job->record.ending)
			job_end_again(job);
	}
}

static void places_find_all(struct queues *q)
{

	snprintf(q->dir, sizeof(q->dir), "%.*s/jobs", (int)sizeof(q->dir) - 8, q->host.state_dir);
	snprintf(q->users_dir, sizeof(q->users_dir), "%.*s" WARDEN_JOBS,
		 (int)sizeof(q->users_dir) - 8, q->host.state_dir);
	runtime_path(q->host.runtime, "attach.sock", q->attach, sizeof(q->attach));
	if (file_read(BOOT_ID, q->boot, sizeof(q->boot)) > 0)
		q->boot[strcspn(q->boot, "\n")] = '\0';
	if (child_program(SHIM_PROGRAM, q->shim) < 0)
		log_event(LOG_WARNING, "queue.no_shim program=%s", SHIM_PROGRAM);
}

/* Where the last database was moved away there are files of its jobs, and some may still run: new
 * jobs do not get their numbers. */
static int numbers_begin(struct queues *q)
{
	int64_t last;
	int rc = job_store_number_last(q->store, &last);

	if (rc < 0 || last)
		return rc;
	last = job_files_last(q);
	return last ? job_store_number_set(q->store, last) : 0;
}

static int queues_open(struct queues *q, struct error *err)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/queue.db", q->host.state_dir);
	bool keeps_room = strcmp(q->host.state_dir, q->host.runtime->dir) != 0;
	int rc = job_store_open(&q->store, path, keeps_room, q->host.sessions->loop,
				queue_store_freed, q, err);
	if (rc < 0)
		return rc;
	rc = numbers_begin(q);
	if (rc == 0)
		rc = queue_end_load(q);
	if (rc == 0)
		rc = queue_use_load(q);
	if (rc == 0)
		rc = queue_history_load(q);
	if (rc == 0)
		rc = agents_load(q);
	if (rc == 0)
		rc = queue_load(q);
	if (rc < 0)
		error_set(err, EXIT_CODE_FAILED, "the jobs cannot be read back from %.300s: %s",
			  path, rc == -EUCLEAN ? "it is damaged" : strerrordesc_np(-rc));
	return rc;
}

struct queues *queues_start(const struct queues_host *host, struct error *err)
{
	struct queues *q = calloc(1, sizeof(*q));

	if (!q) {
		error_set(err, EXIT_CODE_FAILED, "out of memory");
		return NULL;
	}
	q->host = *host;
	q->report = &queue_report;
	(void)!getrandom(&q->seed, sizeof(q->seed), GRND_NONBLOCK);
	crowd_begin_any(&q->crowd, *q->host.living_jobs);
	q->pending.as_they_come = q->ending.as_they_come = true;
	q->enqueues_end = &q->enqueues;
	q->syncing_end = &q->syncing;
	queue_waits_begin(&q->waits);
	places_find_all(q);
	if (queues_open(q, err) == 0) {
		jobs_take_up(q);
		return q;
	}
	log_event(LOG_ERROR, "queue.unusable error=\"%s\"", err->message);
	queues_stop(q);
	return NULL;
}

void queues_settle(struct queues *q)
{
	if (q)
		job_store_end(q->store);
}

void queues_stop(struct queues *q)
{
	if (!q)
		return;
	queues_settle(q);
	queue_records_settle(q);
	queue_records_tidy(q, TIDIED_AT_END);
	free(q->left);
	jobs_change_free(q);
	queue_parts_withdraw(q);
	enqueues_free(q);
	queue_overs_end(q);
	launcher_forget(q->host.launcher, q->files_asked);
	for (struct queue_use *use = q->uses; use; use = use->next)
		while (use->jobs)
			job_free(use->jobs);
	agents_free(q);
	job_store_close(q->store);
	while (q->uses) {
		struct queue_use *use = q->uses;

		q->uses = use->next;
		free(use);
	}
	while (q->listeners)
		queue_unlisten(q, q->listeners->arg);
	queue_waits_free(&q->waits);
	crowd_free(&q->crowd);
	free(q);
}
