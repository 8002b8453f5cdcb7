/* Starting a job. A start is a table of steps (`steps`). First come the checks, the place on GPUs,
 * the slice, the attempt, and the question to the launcher for a shim. The launcher answers in a
 * later round of the loop. Then the slice becomes the shim's, the start goes to disk, and the shim
 * is told to go. Until then the shim waits, so nothing of the job runs before its start is on disk.
 *
 * Each step that leaves something behind has its undo. Where a step fails, the steps before it are
 * undone from the last to the first, and the job waits again. How long it waits is up to
 * job_start_judge(), which also finds that a job can never start. A daemon that is killed between
 * two steps leaves a shim that was not told to go, and that ends by itself. It leaves a slice
 * without a process, too, and the next daemon ends that slice. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/kill_point.h"
#include "base/macros.h"
#include "core/queue.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/log.h"
#include "daemon/host/privileges.h"
#include "daemon/mig/mig.h"
#include "daemon/queue/agents.h"
#include "daemon/queue/job_ender.h"
#include "daemon/queue/job_files.h"
#include "daemon/queue/job_shim.h"
#include "daemon/queue/job_starter.h"
#include "daemon/queue/job_table.h"
#include "daemon/queue/job_waits.h"
#include "daemon/queue/launcher.h"
#include "daemon/queue/queue_context.h"
#include "daemon/queue/queue_pods.h"
#include "daemon/report/report.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"
#include "daemon/waiting/grant.h"
#include "daemon/waiting/quota_check.h"
#include "daemon/waiting/quota_near.h"
#include "proto/shim.h"

/* ---- the shim's orders -------------------------------------------------------------------- */

/* The daemon's own part of them. */
static void run_fill(const struct job *job, struct shim_run *ret)
{
	const struct job_record *record = &job->record;

	*ret = (struct shim_run){
		.job = (uint64_t)record->id,
		.array = (uint64_t)record->array,
		.index = record->array ? record->index : -1,
		.position = job_position(job),
		.attempt = record->attempt,
		.daemon = (int)getpid(),
		.limit_ns = job->spec->limit_ns,
		.grace_ns = job->spec->grace_ns,
	};
	snprintf(ret->queue, sizeof(ret->queue), "%s", record->queue);
}

/* The text of the agent's owner: as it was vouched for, where the launcher starts the pod. A job of
 * the daemon's own user has it for the image, too. malloc'ed; NULL: there is none. */
static char *owners_text(const struct job *job, const struct agent *agent)
{
	if (!job->spec->warrant)
		return agent_text(agent);
	return agent->pods && agent->pods->text ? strdup(agent->pods->text) : NULL;
}

static int job_memfd(const struct job *job, const struct agent *agent,
		     const struct place_request *request)
{
	struct shim_head head = {.kind = agent->pods ? SHIM_TASK_POD : SHIM_TASK_JOB};
	cleanup_free char *text = NULL, *owners = owners_text(job, agent);
	int rc = job_store_spec_get(job->queues->store, job->record.spec, &text, NULL);

	if (rc < 0)
		return rc; // NOLINT(clang-analyzer-unix.Malloc): freed by their cleanup
	run_fill(job, &head.run);
	if (agent->pods)
		job_pod_fill(job, request, &head.run);
	if (job->spec->warrant)
		head.warrant = *job->spec->warrant;
	if (job->spec->warrant && agent->pods && agent->pods->warrant)
		head.owner_warrant = *agent->pods->warrant;
	return shim_spec_memfd(&head, text, owners);
}

/* ---- the slice ---------------------------------------------------------------------------- */

/* The job's user and groups, as one who asks for a slice. */
static struct peer peer_of(const struct job *job)
{
	const struct warrant *warrant = job->spec->warrant;
	struct peer peer = {.uid = job->record.uid, .gid = job->record.gid};

	for (uint32_t i = 0; warrant && i < warrant->group_count && i < PEER_GROUPS_MAX; i++)
		peer.groups.gid[peer.groups.count++] = warrant->group[i];
	return peer;
}

static int quota_look(const struct job *job, const struct place_result *place)
{
	struct peer peer = peer_of(job);
	struct error ignored = {0};

	return quotas_check(job->queues->host.quotas, &peer, place, &ignored);
}

/* ---- MIG instances ------------------------------------------------------------------------ */

bool job_is_making(struct job *job)
{
	for (uint32_t i = 0; job->making && i < job->queues->host.pool->count; i++)
		if (job->making >> i & 1 && mig_gpu_changing(job->queues->host.sessions->mig, i))
			return true;
	job->making = 0;
	return false;
}

/* 0 where all instances are there already, with *ret. An instance that has to be made is nobody's
 * when it is there: whichever job or request comes first then has it. So a job that found none
 * twice waits a while, and a driver that makes none is not asked all the time. */
static int instances_take(struct job *job, const struct mig_decision *decision,
			  struct mig_grant *ret)
{
	struct error err = {0};
	bool made = job->made;
	bool all_there = true;

	for (uint32_t i = 0; i < decision->count; i++)
		all_there &= decision->choice[i].step == MIG_REUSE;
	job->made = false;
	if (!all_there && made)
		return -ESTALE;
	int rc = mig_take(job->queues->host.sessions->mig, "", decision, false, ret, &err);
	if (rc < 0) {
		log_event(LOG_WARNING, "job.no_instance id=%" PRId64 " error=\"%s\"",
			  job->record.id, err.message);
		return -EIO;
	}
	if (rc > 0)
		return 0;
	for (uint32_t i = 0; i < decision->count; i++)
		job->making |= 1ull << decision->choice[i].gpu;
	job->made = true;
	return -EINPROGRESS;
}

/* ---- failures -------------------------------------------------------------------------------- */

void job_start_failed(struct job *job, int rc)
{
	struct queue_bucket *bucket = job->list->bucket;
	struct queues *q = job->queues;
	uint64_t now = now_monotonic_ns();
	int files = job_files_look(q, job->record.uid);

	if (bucket) {
		bucket->wait = JOB_WAITS_FAILURE;
		bucket->again_ns = now + QUEUE_AGAIN_NS;
	}
	job->no_files = files < 0;
	job->failure = files < 0 ? files : rc;
	/* A failure that has nothing to do with the job ends for all jobs at once. */
	bool away = launcher_is_there(q->host.launcher) && launcher_is_away(q->host.launcher);
	job->again_ns = away ? 0 : now + queue_again_ns(job->failures);
	job->failures++;
}

/* Hours are used up for days, so that the user wants to know the day. */
static enum job_wait wait_for_quota(const struct job *job)
{
	struct peer peer = peer_of(job);
	bool of_group;

	if (!quotas_hours_used_up(job->queues->host.quotas, &peer, &of_group))
		return JOB_WAITS_QUOTA;
	return of_group ? JOB_WAITS_GROUP_HOURS : JOB_WAITS_HOURS;
}

/* A start that failed is not tried again and again. */
static void start_failed(struct job *job, int rc)
{
	enum job_wait wait = rc == -EAGAIN   ? wait_for_quota(job)
			     : rc == -EDQUOT ? JOB_WAITS_QUOTA_NEVER
			     : rc == -ESTALE ? JOB_WAITS_INSTANCE
					     : JOB_WAITS_FAILURE;
	struct queue_bucket *bucket = job->list->bucket;

	if (wait == JOB_WAITS_FAILURE) {
		log_event(LOG_WARNING, "job.not_started id=%" PRId64 " error=\"%s\"",
			  job->record.id, strerrordesc_np(-rc));
		job_start_failed(job, rc);
		return;
	}
	if (!bucket)
		return;
	bucket->wait = wait;
	bucket->again_ns = now_monotonic_ns() + QUEUE_AGAIN_NS;
}

static void start_refused(struct job *job, const struct agent *agent)
{
	const char *option = agent_refuses(agent, job->spec);
	char reason[JOB_REASON_SIZE];

	snprintf(reason, sizeof(reason), "agent %s does not allow %.*s for containers", agent->id,
		 option ? (int)strcspn(option, "\n") : 0, option ? option : "");
	job_finish(job, JOB_CANCELLED, reason);
}

/* Its warrant is by another key, or spent, and only its user can get a new one. */
static void start_unproven(struct job *job, bool spent)
{
	char id[JOB_ID_TEXT], reason[JOB_REASON_SIZE];

	snprintf(reason, sizeof(reason), "%s; enqueue it again: carve job rerun %s",
		 spent ? "the launcher let this attempt, or a later one, run before"
		       : "the key that shows who enqueued it was lost with the directory of jobs",
		 job_id_text(&job->record, id));
	job_finish(job, JOB_FAILED, reason);
}

void job_start_judge(struct job *job, const struct agent *agent, int rc)
{
	/* One whose pod may run still waits. */
	bool spent = rc == -EKEYEXPIRED;
	bool unproven = (rc == -EKEYREJECTED || spent) && !job_is_pod(&job->record);

	if (rc == -EACCES)
		start_refused(job, agent);
	else if (unproven)
		start_unproven(job, spent);
	else if (rc < 0 && rc != -EINPROGRESS)
		start_failed(job, rc);
}

/* ---- the whole ---------------------------------------------------------------------------- */

static void place_note(struct job *job, const struct agent *agent)
{
	if (agent->pods) {
		cleanup_free char *its = job_pod_place(job, agent);

		job_text_set(&job->record.place, its ? its : "{}");
		return;
	}
	const struct pool *pool = job->queues->host.pool;
	json_t *list = json_array();

	for (uint32_t i = 0; i < job->grant_count; i++)
		json_array_append_new(list, json_pack("[i, I]",
						      (int)pool->gpu[job->grants[i].gpu].info.index,
						      (json_int_t)job->grants[i].bytes));
	cleanup_free char *text = json_dumps(list, JSON_COMPACT);
	json_decref(list);
	job_text_set(&job->record.place, text ? text : "[]");
}

/* ---- the steps of a start ------------------------------------------------------------------- */

/* A start under way. The steps from STEP_SHIM_TAKE on may be taken in a later round of the loop.
 * They have the job, its agent and the shim alone. */
struct start {
	struct job *job;
	struct agent *agent;
	uint32_t position; /* the queue's, in the agent's list */
	const struct place_request *request;
	const struct queue_decision *decision;
	struct place_result place;
	struct mig_grant instances;
	struct process_id shim;
	int go; /* the end of its pipe */
};

static int start_check(struct start *start)
{
	const struct job *job = start->job;
	const struct launcher *launcher = job->queues->host.launcher;

	if (agent_refuses(start->agent, job->spec))
		return -EACCES;
	/* Its pod may run still: the process that followed the pod was killed. */
	if (job_is_pod(&job->record) && !start->agent->pods)
		return -EBUSY;
	return launcher_is_there(launcher) && launcher_is_away(launcher) ? -ENOTCONN : 0;
}

/* The place where it runs, and the instances of that (count 0: none). */
static int place_take(struct start *start)
{
	const struct queue_decision *decision = start->decision;

	start->place = decision->place;
	start->instances.count = 0;
	if (start->agent->pods)
		return 0;
	if (decision->instances.count)
		grant_of_decision(&decision->instances, &start->place);
	int rc = quota_look(start->job, &start->place);
	if (rc < 0)
		return rc == -EAGAIN ? rc : -EDQUOT;
	if (!decision->instances.count)
		return 0;
	rc = instances_take(start->job, &decision->instances, &start->instances);
	if (rc == 0)
		grant_of_instances(&start->instances, &start->place);
	return rc;
}

static int session_make(const struct start *start, struct session **ret)
{
	struct queues *q = start->job->queues;
	struct peer peer = peer_of(start->job);
	struct store_gpu gpus[PLACE_GPUS_MAX];
	struct store_session record;
	int rc;

	grant_record_fill(q->host.pool, &peer, start->request, &start->place, gpus, &record);
	grant_record_instances(&start->instances, gpus);
	record.ephemeral = true;
	/* Nobody keeps it alive but the job, until the shim is there: a daemon that starts
	 * meanwhile ends it. */
	do
		session_make_id(q->host.sessions, record.id);
	while ((rc = session_create(q->host.sessions, &record, NULL, ret)) == -EEXIST);
	if (rc == 0 && start->instances.count)
		mig_give(q->host.sessions->mig, &start->instances, record.id);
	if (rc == 0)
		quota_near_look(q->host.quotas, *ret, 0);
	return rc;
}

/* A pod has no slice here. */
static int slice_grant(struct start *start)
{
	struct job *job = start->job;
	uint32_t count = start->place.count;
	struct session *session = NULL;

	kill_point("start.chosen");
	job->grants = calloc(count + 1, sizeof(*job->grants));
	if (!job->grants)
		return -ENOMEM;
	int rc = start->agent->pods ? 0 : session_make(start, &session);
	if (rc < 0) {
		free(steal_ptr(&job->grants));
		return rc;
	}
	kill_point("start.granted");
	memcpy(job->grants, start->place.grant, count * sizeof(*job->grants));
	job->grant_count = count;
	job->compute = place_compute(start->request);
	/* A daemon before left the figures of the attempt before. */
	job_figures_clear(&job->record);
	if (session)
		memcpy(job->record.session, session->record.id, sizeof(job->record.session));
	return 0;
}

static void slice_return(struct job *job)
{
	struct session *session = session_find(job->queues->host.sessions, job->record.session);

	job_figures_clear(&job->record);
	free(steal_ptr(&job->grants));
	job->grant_count = 0;
	if (session)
		session_end(session, STORE_END_SYSTEM, "its job could not be started");
}

/* It waited from when it could have started. */
static void job_report_start(const struct job *job)
{
	const struct queues_host *host = &job->queues->host;
	struct session *session = session_find(host->sessions, job->record.session);
	int64_t since = MAX(job->record.enqueued, job->spec->begin);

	if (!session)
		return;
	report_job(host->report, session, job->record.name,
		   job->record.started > since ? (uint64_t)(job->record.started - since) : 0);
}

/* From now on it counts as a job that runs. */
static int attempt_begin(struct start *start)
{
	struct job *job = start->job;
	struct agent *agent = start->agent;

	job->record.attempt++;
	job->started_ns = now_monotonic_ns();
	job->record.started = now_realtime_ns();
	job->record.boot = job->queues->boot;
	snprintf(job->record.agent, sizeof(job->record.agent), "%s", agent->id);
	job->processes_ended = false;
	job->starting = true;
	job_report_start(job);
	job->user->owner->starting++;
	job_state_set(job, JOB_STARTING);
	job_move(job, &job->queues->jobs->running);
	agent->last = start->position;
	job_agent_enter(job);
	return 0;
}

static void attempt_undo(struct job *job)
{
	job_start_forget(job);
	job_agent_leave(job);
	job->record.attempt--;
	job->record.shim = (struct process_id){0};
	job->record.agent[0] = '\0';
	if (!job_is_pod(&job->record))
		job_text_set(&job->record.place, "");
	job_state_set(job, JOB_QUEUED);
}

static void on_shim(void *arg, int rc, const void *reply, int *fd);

/* Has a shim started for the job's attempt, which waits for a word. */
static int shim_ask(struct start *start)
{
	struct job *job = start->job;
	cleanup_close int spec = job_memfd(job, start->agent, start->request);

	return spec < 0 ? spec : shim_launch(job, spec, on_shim);
}

static int shim_take(struct start *start)
{
	kill_point("start.spawned");
	start->job->record.shim = start->shim;
	return 0;
}

/* The shim was not told to go. A shim that the launcher started ends by itself when its pipe is
 * closed. */
static void shim_drop(struct job *job)
{
	pid_t pid = job->record.shim.pid;

	job_processes_drop(job);
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
}

/* The job's end was asked for, and no pod of an earlier start is there, which this start is to
 * delete. */
static bool start_is_void(const struct job *job)
{
	return *job->record.ending && !job_pod_is_there(job->queues, &job->record);
}

/* The slice becomes the shim's own. */
static int slice_hand_over(struct start *start)
{
	const struct job *job = start->job;
	struct session *session = session_find(job->queues->host.sessions, job->record.session);
	bool has_slice = *job->record.session;

	if (start_is_void(job) || !start->agent ||
	    (has_slice && (!session || session->state != SESSION_ACTIVE)))
		return -ECANCELED;
	return session ? session_owner_set(session, &start->shim) : 0;
}

static int start_write(struct start *start)
{
	struct job *job = start->job;

	job->started_ns = now_monotonic_ns();
	job->record.started = now_realtime_ns();
	place_note(job, start->agent);
	return job_record_save(job);
}

static int shim_go(struct start *start)
{
	struct job *job = start->job;
	struct shim_go word = {.magic = SHIM_GO_MAGIC};

	kill_point("start.recorded");
	snprintf(word.session, sizeof(word.session), "%s", job->record.session);
	/* Where the shim was killed meanwhile, its watch tells. */
	(void)write_all(start->go, &word, sizeof(word));
	kill_point("start.gone");
	job_start_forget(job);
	job_state_set(job, JOB_RUNNING);
	log_event(LOG_INFO, "job.started id=%" PRId64 " uid=%u queue=%s session=%s", job->record.id,
		  job->record.uid, job->record.queue, job->record.session);
	job_watch(job);
	return 0;
}

/* A start is these steps, in this order; kill points lie between them (queues.h). A step that fails
 * leaves nothing behind, and the steps before it are undone from the last to the first. */
enum {
	STEP_CHECK,
	STEP_PLACE,
	STEP_SLICE,
	STEP_ATTEMPT,
	STEP_SHIM_ASK,
	STEP_SHIM_TAKE, /* the launcher has answered */
	STEP_HAND_OVER,
	STEP_WRITE,
	STEP_GO,
	STEPS
};

static const struct {
	int (*take)(struct start *start); /* 0 or -errno */
	void (*undo)(struct job *job);
} steps[STEPS] = {
	[STEP_CHECK] = {start_check, NULL},
	[STEP_PLACE] = {place_take, NULL},
	[STEP_SLICE] = {slice_grant, slice_return},
	[STEP_ATTEMPT] = {attempt_begin, attempt_undo},
	[STEP_SHIM_ASK] = {shim_ask, NULL},
	[STEP_SHIM_TAKE] = {shim_take, shim_drop},
	[STEP_HAND_OVER] = {slice_hand_over, NULL},
	[STEP_WRITE] = {start_write, NULL},
	[STEP_GO] = {shim_go, NULL},
};

/* A job that was to end while it started: it waits again, or is over. */
static void ending_take(struct job *job)
{
	char why[JOB_REASON_SIZE];
	enum job_state as = job->record.ending_as;

	snprintf(why, sizeof(why), "%s", job->record.ending);
	job_text_set(&job->record.ending, "");
	job->kill_ns = 0;
	if (as != JOB_QUEUED) {
		job_finish(job, as, why);
		return;
	}
	/* The disk has the end that was asked for. */
	job_text_set(&job->record.reason, why);
	(void)job_record_save(job);
	job_settle(job);
}

/* The job waits again, as before its start, or is over. */
static void start_undo(struct job *job, unsigned done, int rc)
{
	struct queues *q = job->queues;
	int64_t id = job->record.id;
	bool is_void = start_is_void(job);

	/* A launcher that was too slow may start a shim yet. */
	if (rc == -ETIMEDOUT)
		job_processes_drop(job);
	while (done--)
		if (steps[done].undo)
			steps[done].undo(job);
	if (is_void) {
		ending_take(job);
		return;
	}
	/* It may end here. */
	job_settle(job);
	job = job_find(q, id);
	if (job && job->list)
		job_start_judge(job, NULL, rc);
}

/* Takes the steps from `*done` on, up to `end`. *done is then the number of those that are done. */
static int steps_take(struct start *start, unsigned *done, unsigned end)
{
	int rc = 0;

	for (; rc == 0 && *done < end; *done += rc == 0)
		rc = steps[*done].take(start);
	return rc;
}

/* The launcher's answer: the shim waits for a word. */
static void on_shim(void *arg, int rc, const void *reply, int *fd)
{
	struct job *job = arg;
	struct queues *q = job->queues;
	struct start start = {.job = job, .agent = agent_find(q, job->record.agent), .go = *fd};
	unsigned done = STEP_SHIM_TAKE;

	job->asked = 0;
	rc = shim_of_answer(rc, reply, *fd, &start.shim);
	if (rc == 0)
		rc = steps_take(&start, &done, STEPS);
	if (rc < 0)
		start_undo(job, done, rc);
	/* Its user may have another one started. */
	q->dirty = true;
}

int job_start(struct job *job, struct agent *agent, uint32_t position,
	      const struct place_request *request, const struct queue_decision *decision)
{
	struct start start = {.job = job,
			      .agent = agent,
			      .position = position,
			      .request = request,
			      .decision = decision,
			      .go = -1};
	unsigned done = STEP_CHECK;
	int rc = steps_take(&start, &done, STEP_SHIM_TAKE);

	/* Nothing is to be undone before there is an attempt. */
	if (rc == 0 || done <= STEP_SLICE)
		return rc;
	start_undo(job, done, rc);
	return 0;
}
