/* The loop of the queues, which has the objects of the queue work together. Objects do not call
 * upwards: the ender and the waits report what became of a job, and the functions here do what
 * follows for other jobs.
 *
 * Each round of the loop writes what was enqueued, decides who starts, and tells requests that wait
 * for changes. Work on many jobs is done in parts: each kind of work that has something to do
 * stands once in the line of the user whose part is next (host/fair.h). While the store would make
 * the loop wait for the disk, nothing is begun; the store calls on_store_free() when that is over.
 *
 * At the start the database is read, and jobs are taken up (job_restore.h). At the end requests
 * that wait for the disk are answered, and jobs go on without a daemon. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/child.h"
#include "daemon/host/fair.h"
#include "daemon/host/log.h"
#include "daemon/host/runtime.h"
#include "daemon/mig/mig.h"
#include "daemon/queue/agents.h"
#include "daemon/queue/decision.h"
#include "daemon/queue/enqueue.h"
#include "daemon/queue/job_change.h"
#include "daemon/queue/job_ender.h"
#include "daemon/queue/job_events.h"
#include "daemon/queue/job_files.h"
#include "daemon/queue/job_history.h"
#include "daemon/queue/job_records.h"
#include "daemon/queue/job_restore.h"
#include "daemon/queue/job_rights.h"
#include "daemon/queue/job_starter.h"
#include "daemon/queue/job_table.h"
#include "daemon/queue/job_waits.h"
#include "daemon/queue/launcher.h"
#include "daemon/queue/queue_pods.h"
#include "daemon/queue/queues.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"
#include "daemon/waiting/waiting.h"
#include "proto/shim.h"

#define BOOT_ID "/proc/sys/kernel/random/boot_id"
/* Records of ended jobs that are removed in a round, and in a look a second: a job that ends makes
 * one, and removing it takes some 0.1 ms. */
#define TIDIED_AT_ONCE 2u
#define TIDIED_AT_TICK 20u

/* ---- reports of jobs ----------------------------------------------------------------------- */

static void on_over(struct job *job, bool ran)
{
	struct queues *q = job->queues;

	if (ran)
		job_agent_leave(job);
	queue_overs_tell(q);
	queue_history_add(q, &job->record);
	job_free(job);
}

static void on_again(struct job *job, bool ran)
{
	if (ran)
		job_agent_leave(job);
	job_settle(job);
}

static void on_unstarted(struct job *job)
{
	job_start_failed(job, 0);
}

static void on_never(struct job *job, const char *reason)
{
	job_finish(job, JOB_CANCELLED, reason);
}

static const struct job_report report = {
	.over = on_over,
	.again = on_again,
	.unstarted = on_unstarted,
	.never = on_never,
};

/* ---- work in parts ------------------------------------------------------------------------- */

/* The kinds of work on jobs that are done in parts. Each kind that has something to do stands once
 * in the line of the user whose part is its next one (host/fair.h). */
enum queue_kind {
	QUEUE_PART_CHANGES,  /* jobs_change() of long arrays */
	QUEUE_PART_ENQUEUES, /* long arrays that come */
	QUEUE_PART_WAITS,    /* jobs that waited for others, or for a time */
	QUEUE_PART_ENDS,     /* jobs that ended */
	QUEUE_PART_STARTS,   /* agents that have more to decide */
	QUEUE_PARTS,
};

struct queue_turn {
	struct fair_work work;
	struct queues *queues;
	enum queue_kind kind;
};

struct loop {
	struct queues queues;
	struct queue_turn turn[QUEUE_PARTS]; /* in the lines of the loop's budget */
	uint64_t mig_changes;                /* those that were decided on */
};

static struct loop *loop_of(struct queues *q)
{
	return CONTAINER_OF(q, struct loop, queues);
}

/* Decisions are for all users, and so are nobody's. */
static bool start_owner(const struct queues *q, uid_t *ret)
{
	*ret = (uid_t)-1;
	return q->starts_more;
}

static const struct {
	/* Returns whether there is a part to do, and gives its owner. */
	bool (*owner)(const struct queues *q, uid_t *ret);
	void (*part)(struct queues *q);
} kinds[QUEUE_PARTS] = {
	[QUEUE_PART_CHANGES] = {jobs_change_owner, jobs_change_part},
	[QUEUE_PART_ENQUEUES] = {enqueue_part_owner, enqueue_part},
	[QUEUE_PART_WAITS] = {queue_waits_owner, queue_waits_part},
	[QUEUE_PART_ENDS] = {jobs_end_owner, jobs_end_part},
	[QUEUE_PART_STARTS] = {start_owner, decision_make},
};

static void parts_wake(struct queues *q);

static void on_turn(struct fair_work *work)
{
	struct queue_turn *turn = CONTAINER_OF(work, struct queue_turn, work);
	struct queues *q = turn->queues;
	uid_t ignored;

	if (!job_store_holds(q->store) && kinds[turn->kind].owner(q, &ignored))
		kinds[turn->kind].part(q);
	parts_wake(q);
}

/* Lines up all that there is to do in parts. While the store holds there is nothing to do: this is
 * called again when it is free. */
static void parts_wake(struct queues *q)
{
	uid_t owner;

	for (unsigned kind = 0; kind < QUEUE_PARTS && !job_store_holds(q->store); kind++) {
		struct queue_turn *turn = &loop_of(q)->turn[kind];

		if (turn->work.line || !kinds[kind].owner(q, &owner))
			continue;
		turn->work.run = on_turn;
		turn->queues = q;
		turn->kind = kind;
		/* Without memory for a line, the next event goes on with it. */
		(void)fair_line_up(q->host.turns, owner, &turn->work);
	}
}

static void parts_withdraw(struct queues *q)
{
	for (unsigned kind = 0; kind < QUEUE_PARTS; kind++)
		fair_withdraw(&loop_of(q)->turn[kind].work);
}

/* ---- the loop ----------------------------------------------------------------------------- */

void queues_kick(struct queues *q)
{
	if (q)
		q->dirty = true;
}

void queues_run(struct queues *q)
{
	if (!q)
		return;
	struct loop *loop = loop_of(q);
	fair_begin(q->host.turns);
	enqueue_commit(q);
	q->dirty |= loop->mig_changes != mig_changes(q->host.sessions->mig);
	loop->mig_changes = mig_changes(q->host.sessions->mig);
	if (!q->starts_more)
		decision_make(q);
	queue_records_tidy(q, TIDIED_AT_ONCE);
	queue_events_tell(q);
	job_store_run(q->store);
	parts_wake(q);
	fair_end(q->host.turns);
}

/* Changes that came while the store could not be written to. */
static void on_store_free(void *arg)
{
	struct queues *q = arg;

	jobs_end_again(q);
	agents_end(q);
	parts_wake(q);
	q->dirty = true;
	q->events->told = true; /* requests about agents wait for it */
}

const char *queues_database_missing(const struct queues *q)
{
	return q && q->store ? job_store_missing(q->store) : NULL;
}

int queues_database_copy(const struct queues *q)
{
	return q && q->store ? job_store_copy(q->store) : -ENOENT;
}

void queues_tick(struct queues *q)
{
	uint64_t now = now_monotonic_ns();

	if (!q)
		return;
	q->jobs->budget.most = *q->host.living_jobs; /* it may have been read again */
	queue_overs_tell(q);
	job_directories_look(q);
	queue_waits_retry(q);
	queue_records_sync(q);
	queue_end_sync(q);
	queue_records_tidy(q, TIDIED_AT_TICK);
	queue_history_trim(
		q, &(struct job_history){*q->host.history_jobs, MIB(*q->host.history_text_mib)});
	for (struct job *job = q->jobs->running.first, *next; job; job = next) {
		next = job->next;
		job_end_tick(job, now);
	}
	jobs_end_again(q);
	/* Memory that programs outside carve held may be free. */
	if (decision_waits(q))
		q->dirty = true;
	job_cgroup_remove(q);
}

bool queues_busy(const struct queues *q)
{
	return q && (q->agents || q->jobs->running.count || jobs_ending(q) || enqueues_busy(q) ||
		     q->parts.first);
}

/* ---- start and end ------------------------------------------------------------------------- */

static void places_find_all(struct queues *q)
{

	snprintf(q->places.dir, sizeof(q->places.dir), "%.*s/jobs", (int)sizeof(q->places.dir) - 8,
		 q->host.state_dir);
	snprintf(q->places.users_dir, sizeof(q->places.users_dir), "%.*s" WARDEN_JOBS,
		 (int)sizeof(q->places.users_dir) - 8, q->host.state_dir);
	runtime_path(q->host.runtime, "attach.sock", q->places.attach, sizeof(q->places.attach));
	if (file_read(BOOT_ID, q->boot, sizeof(q->boot)) > 0)
		q->boot[strcspn(q->boot, "\n")] = '\0';
	if (child_program(SHIM_PROGRAM, q->places.shim) < 0)
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
	int rc = job_store_open(&q->store, path, keeps_room, q->host.sessions->loop, on_store_free,
				q, err);
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
		rc = job_table_load(q);
	if (rc < 0)
		error_set(err, EXIT_CODE_FAILED, "the jobs cannot be read back from %.300s: %s",
			  path, rc == -EUCLEAN ? "it is damaged" : strerrordesc_np(-rc));
	return rc;
}

/* Frees what no other part of it uses any more. */
static void objects_free(struct queues *q)
{
	free(q->ender);
	free(q->records);
	free(q->enqueues);
	free(q->events);
	job_table_free(q->jobs);
	free(loop_of(q));
}

static struct queues *objects_new(const struct queues_host *host)
{
	struct loop *loop = calloc(1, sizeof(*loop));
	struct queues *q = loop ? &loop->queues : NULL;

	if (!q)
		return NULL;
	q->host = *host;
	q->report = &report;
	q->ender = job_ender_new();
	q->records = job_records_new();
	q->enqueues = enqueues_new();
	q->events = calloc(1, sizeof(*q->events));
	if (q->ender && q->records && q->enqueues && q->events &&
	    job_table_new(*host->living_jobs, &q->jobs) == 0)
		return q;
	objects_free(q);
	return NULL;
}

struct queues *queues_start(const struct queues_host *host, struct error *err)
{
	struct queues *q = objects_new(host);

	if (!q) {
		error_set(err, EXIT_CODE_FAILED, "out of memory");
		return NULL;
	}
	places_find_all(q);
	if (queues_open(q, err) == 0) {
		jobs_restore(q);
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
	queue_records_end(q);
	jobs_change_free(q);
	parts_withdraw(q);
	enqueues_free(q);
	queue_overs_end(q);
	launcher_forget(q->host.launcher, q->places.asked);
	for (struct queue_use *use = q->jobs->uses; use; use = use->next)
		while (use->jobs)
			job_free(use->jobs);
	agents_free(q);
	job_store_close(q->store);
	listeners_free(&q->events->listeners);
	objects_free(q);
}
