/* How a job ends. While it runs, the process is watched whose end is the job's. That is the shim,
 * or the command where the shim was killed. When the process has ended, the job stands among the
 * ends of its user, and users take turns. In the turn, job_conclude() reads what the shim recorded
 * and says what came of the attempt: an exit status, nothing that ran, or an end that nobody knows.
 * The wish of the daemon, as after a cancellation, goes before that.
 *
 * Then outcome_take() writes the end. It goes on only when nothing of the job is left on the host.
 * The slice ends next, then the end goes to disk, and at last the job is reported to the loop,
 * which frees it or has it wait again. A step that fails leaves the job in the list of jobs that
 * are ending, and it is tried again in a second. So no job is told to have ended while its
 * processes run, and an end that is told is on disk. The record of the shim goes later
 * (job_records.h).
 *
 * A job that is to end is signalled, and killed when its time for that is over. Nothing here waits:
 * the warden answers later, and the end goes on with its answer. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/kill_point.h"
#include "base/macros.h"
#include "base/simulated_host.h"
#include "core/turns.h"
#include "daemon/host/fair.h"
#include "daemon/host/log.h"
#include "daemon/host/privileges.h"
#include "daemon/queue/job_ender.h"
#include "daemon/queue/job_events.h"
#include "daemon/queue/job_files.h"
#include "daemon/queue/job_left.h"
#include "daemon/queue/job_records.h"
#include "daemon/queue/job_rights.h"
#include "daemon/queue/job_table.h"
#include "daemon/queue/launcher.h"
#include "daemon/queue/queue_context.h"
#include "daemon/queue/queue_pods.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"
#include "proto/shim.h"

/* From a start to when carve-kubernetes has surely taken its signals. */
#define POD_END_NS 1000000000ull
/* Beyond the job's own grace time, a shim has this long to record the end. */
#define SHIM_PATIENCE_NS 5000000000ull
/* The process that removes the container of a job whose shim was killed has 60 s (shim/remover.c).
 */
#define REMOVER_PATIENCE_NS 65000000000ull
/* The time in one look for removing the cgroups of a job of this process's own user. */
#define CGROUP_STEP_NS 1000000ull

struct job_ender {
	struct job_list ending; /* their end could not be written */
	struct turns ends;      /* struct queue_use, with ends to be read */
	/* The cgroup of a job that is over, to be removed when it is empty; or "". */
	char cgroup[PATH_MAX];
};

struct job_ender *job_ender_new(void)
{
	struct job_ender *ender = calloc(1, sizeof(*ender));

	if (ender)
		ender->ending.as_they_come = true;
	return ender;
}

/* ---- processes that are left ---------------------------------------------------------------- */

/* Processes that were killed leave it a moment later. */
void job_cgroup_remove(struct queues *q)
{
	int rc = *q->ender->cgroup ? cgroup_remove_until(q->ender->cgroup,
							 now_monotonic_ns() + CGROUP_STEP_NS)
				   : -ENOENT;

	if (rc != -EBUSY && rc != -EAGAIN)
		q->ender->cgroup[0] = '\0';
}

/* If a job's shim was killed, nobody else ends its processes. Records are believed of this
 * process's own user only. If it was killed before it wrote a record, the name is known, if not the
 * place. A job that is being ended keeps its grace. Returns whether nothing of the job is left. */
static bool leftovers_end(const struct job *job)
{
	struct queues *q = job->queues;
	bool graced = *job->record.ending && now_monotonic_ns() + SHIM_PATIENCE_NS < job->kill_ns;
	char name[128];
	json_t *start, *end;

	if (job->record.uid != geteuid())
		return true;
	(void)job_record_read(job->queues, &job->record, &start, &end);
	const char *path = json_string_value(json_object_get(start, "cgroup"));
	job_cgroup_remove(q);
	snprintf(name, sizeof(name), "/" CGROUP_JOB "%" PRId64 ".%u-%d", job->record.id,
		 job->record.attempt, job->record.shim.pid);
	if (path && strstr(path, "/" CGROUP_JOB))
		snprintf(q->ender->cgroup, sizeof(q->ender->cgroup), "%s", path);
	else if (!start && cgroup_of(0, q->ender->cgroup, sizeof(q->ender->cgroup)) == 0 &&
		 strlen(q->ender->cgroup) + strlen(name) < sizeof(q->ender->cgroup))
		memcpy(q->ender->cgroup + strlen(q->ender->cgroup), name, strlen(name) + 1);
	if (*q->ender->cgroup)
		(void)cgroup_kill(q->ender->cgroup);
	job_cgroup_remove(q);
	json_decref(start);
	json_decref(end);
	return job_left_signal(q, &job->record, graced ? 0 : SIGKILL) == 0 &&
	       !job_file_is_locked(q, &job->record, SHIM_RECORD);
}

/* The record is locked by the process that removes the container of a job whose shim was killed,
 * once the command has ended. The warden kills that process with the rest of the job's cgroup. Any
 * process of the user's can hold the lock, so this wait has a bound. */
static bool container_is_being_removed(struct job *job)
{
	uint64_t now = now_monotonic_ns();

	if (!job_file_is_locked(job->queues, &job->record, SHIM_RECORD))
		return false;
	if (!job->remover_until_ns) {
		(void)launcher_command_kill(job->queues->host.launcher, job->user->owner->uid,
					    job->record.id, job->record.attempt);
		job->remover_until_ns = now + REMOVER_PATIENCE_NS;
	}
	return now < job->remover_until_ns;
}

static void job_end_later(struct job *job);

static void on_processes_ended(void *arg, int rc, const void *reply, int *fd)
{
	struct job *job = arg;

	job->asked = 0;
	/* Else it is asked again, when the launcher is there. */
	if (rc < 0)
		return;
	job->processes_ended = true;
	job_end_later(job);
}

int job_processes_end(struct job *job, bool by_shim)
{
	struct launcher *launcher = job->queues->host.launcher;

	if (job->processes_ended)
		return 0;
	if (job->asked)
		return -EINPROGRESS;
	if (!launcher_is_there(launcher)) {
		/* It is asked again in a second. */
		return by_shim || leftovers_end(job) ? 0 : -EINPROGRESS;
	}
	if (!by_shim && container_is_being_removed(job))
		return -EINPROGRESS;
	int rc = launcher_end(launcher, job->user->owner->uid, job->record.id, job->record.attempt,
			      on_processes_ended, job, &job->asked);
	return rc < 0 ? rc : -EINPROGRESS;
}

void job_processes_drop(const struct job *job)
{
	struct launcher *launcher = job->queues->host.launcher;

	if (launcher_is_there(launcher))
		(void)launcher_end(launcher, job->user->owner->uid, job->record.id,
				   job->record.attempt, NULL, NULL, NULL);
	else
		(void)leftovers_end(job);
}

/* ---- the end ------------------------------------------------------------------------------ */

static void watch_stop(struct job *job)
{
	process_watch_stop(job->watch);
	job->watch = NULL;
}

/* The job's one watch, in place of the last: none is left that the job's end does not stop. 0 or
 * -errno. */
static int watch_start(struct job *job, struct process_id process, process_watch_cb cb)
{
	watch_stop(job);
	return process_watch_start(job->queues->host.sessions->loop, process, cb, job, &job->watch);
}

struct outcome {
	enum job_state state;
	int exit_code, signal;
	uint64_t rss_bytes;
	int64_t ended;
	char reason[JOB_REASON_SIZE];
	bool again;       /* it goes back into its queue */
	bool unstarted;   /* the attempt does not count */
	bool by_shim;     /* its shim ended what was left of it */
	bool pod_goes_on; /* the next start takes it up */
};

static void usage_note(struct job *job)
{
	const struct session *session =
		session_find(job->queues->host.sessions, job->record.session);

	job->record.gpu_ns = queue_use_gpu_ns(job);
	for (uint32_t i = 0; session && i < session->record.gpu_count; i++)
		job->record.peak_bytes = MAX(job->record.peak_bytes, session_peak(session, i));
}

/* Its slice was promised for as long as the job runs: whoever came into it from elsewhere, as by
 * `carve run --session`, does not keep it. If the shim's end was noticed first, the session has
 * ended already. */
static void slice_end(const struct job *job)
{
	struct session *session = session_find(job->queues->host.sessions, job->record.session);

	if (!session || session->state != SESSION_ACTIVE)
		return;
	session_commands_end(session, NULL);
	session_end_unused(session, STORE_END_OWNER, "its job ended");
}

static bool retries(const struct job *job, const struct outcome *outcome)
{
	const struct job_spec *spec = job->spec;

	if (outcome->state != JOB_FAILED && outcome->state != JOB_LOST)
		return false;
	if (job->record.attempt > spec->retries)
		return false;
	/* A signal is known by its name, and by the exit code that shells give it (128 + n). */
	for (unsigned i = 0; i < spec->retry_on_count; i++)
		if (outcome->state == JOB_FAILED &&
		    (spec->retry_on[i] == outcome->exit_code ||
		     (outcome->signal && spec->retry_on[i] == -outcome->signal)))
			return true;
	return !spec->retry_on_count || outcome->state == JOB_LOST;
}

/* The record as it is to be on disk; 0 or -errno. */
static int outcome_write(struct job *job, const struct outcome *outcome, enum job_state before)
{
	struct queues *q = job->queues;
	int rc = job_store_begin(q->store);

	if (rc < 0)
		return rc;
	rc = job_store_put(q->store, &job->record);
	if (rc == 0 && !outcome->again)
		rc = job_store_change_set(q->store, job->record.change);
	if (rc == 0 && !outcome->again)
		rc = queue_rights_over(q, job->spec->warrant, job_position(job), 1);
	if (rc == 0 && before == JOB_RUNNING)
		queue_use_add(q, job, now_realtime_ns());
	if (rc < 0)
		job_store_rollback(q->store);
	return rc < 0 ? rc : job_store_commit(q->store);
}

static void record_fill(struct job *job, const struct outcome *outcome)
{
	struct job_record *r = &job->record;

	r->exit_code = outcome->exit_code;
	r->signal = outcome->signal;
	r->rss_bytes = outcome->rss_bytes;
	job_text_set(&r->reason, outcome->reason);
	r->ended = outcome->again ? 0 : outcome->ended;
	r->state = outcome->again ? JOB_QUEUED : outcome->state;
	r->change = outcome->again ? 0 : queue_end_number_take(job->queues);
	/* The next attempt has its own. */
	if (outcome->again)
		job_figures_clear(r);
}

/* Writes the outcome, and lets the job go. Where that fails the job is among the `ending` ones, and
 * it is tried again. */
static void outcome_take(struct job *job, struct outcome *outcome)
{
	struct queues *q = job->queues;
	enum job_state before = job->record.state;
	bool ran = job->list == &q->ender->ending;
	uint32_t attempt = job->record.attempt;

	/* A job is over once nothing of it is left. The launcher sees to that, and with its answer
	 * the end is read again. */
	if (ran && job_processes_end(job, outcome->by_shim) < 0)
		return;
	if (ran)
		slice_end(job);
	job->record.attempt -= outcome->unstarted && attempt > 0;
	record_fill(job, outcome);
	kill_point("end.read");
	int rc = outcome_write(job, outcome, before);
	enum job_state after = job->record.state;
	job->record.state = before;
	if (rc < 0) {
		log_event(LOG_WARNING, "job.unrecorded id=%" PRId64 " error=\"%s\"", job->record.id,
			  strerrordesc_np(-rc));
		job->record.attempt = attempt;
		job_move(job, &q->ender->ending);
		return;
	}
	kill_point("end.recorded");
	if (ran)
		job_records_leave(job);
	kill_point("end.left");
	job_state_set(job, after);
	log_event(LOG_INFO, "job.%s id=%" PRId64 " code=%d signal=%d reason=\"%s\"",
		  outcome->again ? "again" : job_state_text(after), job->record.id,
		  outcome->exit_code, outcome->signal, outcome->reason);
	q->dirty = true;
	if (!outcome->again) {
		q->report->over(job, ran);
		return;
	}
	watch_stop(job);
	free(job->grants);
	job->grants = NULL;
	job->grant_count = 0;
	job->kill_ns = 0;
	job->watched = JOB_WATCHED_SHIM;
	job->processes_ended = false;
	job->remover_until_ns = 0;
	if (!outcome->unstarted)
		job->failures = 0;
	/* The next daemon that takes the pod up ends it, where that was asked for. */
	if (!outcome->pod_goes_on) {
		job_text_set(&job->record.place, "");
		job_text_set(&job->record.ending, "");
	}
	q->report->again(job, ran);
}

void job_finish(struct job *job, enum job_state state, const char *reason)
{
	struct outcome outcome = {
		.state = state, .exit_code = JOB_CODE_UNKNOWN, .ended = now_realtime_ns()};

	snprintf(outcome.reason, sizeof(outcome.reason), "%s", reason);
	outcome_take(job, &outcome);
}

/* The daemon's wish goes before what came of it. */
static void ending_apply(const struct job *job, struct outcome *outcome)
{
	if (!*job->record.ending) {
		outcome->again = retries(job, outcome);
		return;
	}
	snprintf(outcome->reason, sizeof(outcome->reason), "%s", job->record.ending);
	outcome->state = job->record.ending_as;
	outcome->again = job->record.ending_as == JOB_QUEUED;
}

/* Its user can have written any number. */
static int64_t number_of(const json_t *record, const char *key, int64_t least, int64_t most)
{
	int64_t number = json_integer_value(json_object_get(record, key));

	return MIN(MAX(number, least), most);
}

static void outcome_of_record(const struct job *job, const json_t *record, struct outcome *outcome)
{
	const char *why = json_string_value(json_object_get(record, "why"));
	const char *error = json_string_value(json_object_get(record, "error"));
	const char *kind = json_string_value(json_object_get(record, "kind"));
	bool by_signal = kind && !strcmp(kind, SHIM_KIND_SIGNAL);
	int code = by_signal ? (int)number_of(record, "code", 1, SIGRTMAX)
			     : (int)number_of(record, "code", 0, UINT8_MAX);
	int64_t now = now_realtime_ns();

	outcome->exit_code = by_signal ? 128 + code : code;
	outcome->signal = by_signal ? code : 0;
	outcome->rss_bytes = (uint64_t)number_of(record, "rss", 0, INT64_MAX);
	outcome->ended = number_of(record, "ended", MIN(job->record.started, now), now);
	outcome->state = outcome->exit_code ? JOB_FAILED : JOB_DONE;
	if (error && *error)
		snprintf(outcome->reason, sizeof(outcome->reason), "%s", error);
	else if (by_signal)
		snprintf(outcome->reason, sizeof(outcome->reason), "signal %d (%s)", code,
			 sigdescr_np(code) ? sigdescr_np(code) : "unknown");
	else if (code)
		snprintf(outcome->reason, sizeof(outcome->reason), "exit code %d", code);
	if (why && !strcmp(why, "timeout")) {
		outcome->state = JOB_TIMEOUT;
		snprintf(outcome->reason, sizeof(outcome->reason), "its time limit was reached");
	} else if (why && !strcmp(why, "cancelled")) {
		outcome->state = JOB_CANCELLED;
		snprintf(outcome->reason, sizeof(outcome->reason), "its shim was told to end it");
	}
}

/* Nothing of it ran: it goes back, as if it had not been started. That is what its record says,
 * which its user can write, or take away: the slice was held, and counts as use. If the start was
 * before the machine went down, nobody knows for how long. */
static void unstarted(struct job *job, bool pod_goes_on)
{
	struct outcome outcome = {.state = JOB_QUEUED,
				  .exit_code = JOB_CODE_UNKNOWN,
				  .again = true,
				  .unstarted = true,
				  .ended = now_realtime_ns(),
				  .pod_goes_on = pod_goes_on};
	struct queues *q = job->queues;
	int64_t id = job->record.id;

	job_records_remove(job, false);
	if (*job->record.ending && !pod_goes_on)
		ending_apply(job, &outcome);
	if (job->record.boot != q->boot)
		job->started_ns = now_monotonic_ns();
	outcome_take(job, &outcome);
	/* A job that cannot start, or whose user moves its records, must not be started again and
	 * again. */
	job = job_find(q, id);
	if (!job || !job->list || !job->list->bucket)
		return;
	/* Its start was none that failed, however often those are killed who follow its pod. */
	if (pod_goes_on)
		job->failures = 0;
	q->report->unstarted(job);
}

static void on_command_ended(void *arg)
{
	struct job *job = arg;

	watch_stop(job);
	job_end_later(job);
}

/* A record is its user's to write. A job that named another user's process would be in the way
 * until that ends. */
static bool is_process_of(pid_t pid, uid_t uid)
{
	uid_t user;

	return process_user(pid, &user) && user == uid;
}

/* The shim is gone without a word of the end. True: the command goes on, and is watched. */
static bool orphan_watch(struct job *job, const json_t *start)
{
	struct process_id command = {
		.pid = (pid_t)number_of(start, "pid", 0, INT32_MAX),
		.birth = (uint64_t)json_integer_value(json_object_get(start, "birth")),
	};
	const char *boot = json_string_value(json_object_get(start, "boot"));

	if (!boot || strcmp(boot, job->queues->boot) != 0 || job->watched != JOB_WATCHED_SHIM ||
	    command.pid <= 1 || !is_process_of(command.pid, job->record.uid) ||
	    watch_start(job, command, on_command_ended) < 0)
		return false;
	job->watched = JOB_WATCHED_COMMAND;
	job->record.shim = command;
	job_move(job, &job->queues->jobs->running);
	log_event(LOG_WARNING, "job.orphaned id=%" PRId64 " pid=%d", job->record.id, command.pid);
	return true;
}

/* `unread`: -errno where its record is there, but cannot be read; it may have run, and is not
 * started once more. */
static void lost(struct job *job, int unread)
{
	struct outcome outcome = {
		.state = JOB_LOST, .exit_code = JOB_CODE_UNKNOWN, .ended = now_realtime_ns()};
	int error = job_record_given_up(job->queues, &job->record);

	if (error)
		snprintf(outcome.reason, sizeof(outcome.reason),
			 "its shim could not record its end: %s", strerrordesc_np(error));
	else if (unread)
		snprintf(outcome.reason, sizeof(outcome.reason),
			 "its record of start and end cannot be read: %s",
			 strerrordesc_np(-unread));
	else
		snprintf(outcome.reason, sizeof(outcome.reason), "%s",
			 job->record.boot == job->queues->boot
				 ? "its shim was killed: nobody knows its exit status"
				 : "the machine went down while it ran");
	ending_apply(job, &outcome);
	outcome_take(job, &outcome);
}

/* The words of carve-kubernetes on the pod go before its own exit code. */
static void outcome_of_pod(const struct job *job, struct outcome *outcome)
{
	json_t *state = job_is_pod(&job->record) ? job_pod_state(job->queues, &job->record) : NULL;
	const char *phase = json_string_value(json_object_get(state, "phase"));
	const char *why = json_string_value(json_object_get(state, "why"));
	bool is_lost = phase && !strcmp(phase, SHIM_POD_LOST);

	if (why && (is_lost || (phase && !strcmp(phase, SHIM_POD_REFUSED)))) {
		snprintf(outcome->reason, sizeof(outcome->reason), "%s%s",
			 is_lost ? "its pod " : "", why);
		if (is_lost && outcome->state == JOB_FAILED) {
			outcome->state = JOB_LOST;
			outcome->exit_code = JOB_CODE_UNKNOWN;
		}
	}
	json_decref(state);
}

/* The process that followed the pod was killed. If the job's end was asked for, the pod is still to
 * be deleted. */
static bool pod_goes_on(const struct job *job, const json_t *exit)
{
	const char *kind = json_string_value(json_object_get(exit, "kind"));
	const char *why = json_string_value(json_object_get(exit, "why"));

	return job_is_pod(&job->record) && kind && !strcmp(kind, SHIM_KIND_SIGNAL) &&
	       (*job->record.ending || !(why && *why));
}

/* Likewise where the shim itself was killed, or ran nothing. */
static bool pod_is_left(const struct job *job)
{
	return job_is_pod(&job->record) &&
	       (!*job->record.ending || job_pod_is_there(job->queues, &job->record));
}

static void job_conclude(struct job *job)
{
	struct outcome outcome = {0};
	json_t *start, *exit;

	int rc = job_record_read(job->queues, &job->record, &start, &exit);
	const char *kind = json_string_value(json_object_get(exit, "kind"));
	if (kind && strcmp(kind, SHIM_KIND_UNSTARTED) != 0) {
		outcome_of_record(job, exit, &outcome);
		outcome.by_shim = true;
		if (pod_goes_on(job, exit)) {
			json_decref(exit);
			json_decref(start);
			unstarted(job, true);
			return;
		}
		outcome_of_pod(job, &outcome);
		ending_apply(job, &outcome);
		outcome_take(job, &outcome);
	} else if (rc < 0) {
		lost(job, rc);
	} else if (kind || !start) {
		unstarted(job, pod_is_left(job));
	} else if (!orphan_watch(job, start)) {
		/* A pod outlives its shim and this host: the same attempt takes it up. */
		if (pod_is_left(job))
			unstarted(job, true);
		else
			lost(job, 0);
	}
	json_decref(exit);
	json_decref(start);
}

/* ---- turns -------------------------------------------------------------------------------- */

bool job_is_ending(const struct job *job)
{
	return job->list == &job->queues->ender->ending || job->list == &job->user->ends;
}

static void job_end_later(struct job *job)
{
	struct queue_use *user = job->user;
	bool first = !user->ends.first;

	if (job->list == &job->queues->jobs->running)
		usage_note(job);
	job_move(job, &user->ends);
	if (first)
		turns_add(&job->queues->ender->ends, &user->ends_turn, user->owner->uid);
}

bool jobs_ending(const struct queues *q)
{
	return q->ender->ending.count || q->ender->ends.first;
}

bool jobs_end_owner(const struct queues *q, uid_t *ret)
{
	const struct turn *turn = q->ender->ends.first;

	if (turn)
		*ret = turn->user;
	return turn;
}

void jobs_end_again(struct queues *q)
{
	const struct launcher *launcher = q->host.launcher;

	if (launcher_is_there(launcher) && launcher_is_away(launcher))
		return;
	for (struct job *job = q->ender->ending.first, *next; job; job = next) {
		next = job->next;
		if (!job->asked)
			job_end_later(job);
	}
}

static void end_run(struct queues *q)
{
	struct queue_use *user = CONTAINER_OF(q->ender->ends.first, struct queue_use, ends_turn);
	struct job *job = user->ends.first;

	turns_pass(&q->ender->ends, user->ends_turn.user);
	/* A user has turns while jobs of theirs end. */
	if (job)
		job_move(job, &q->ender->ending);
	if (!user->ends.first)
		turns_remove(&q->ender->ends, &user->ends_turn);
	if (job)
		job_conclude(job);
}

void jobs_end_part(struct queues *q)
{
	uint64_t end = now_monotonic_ns() + FAIR_STEP_NS;

	/* The store tells when it is free. */
	while (q->ender->ends.first && !job_store_holds(q->store) && now_monotonic_ns() < end)
		end_run(q);
}

/* ---- watching ----------------------------------------------------------------------------- */

static void on_shim_ended(void *arg)
{
	struct job *job = arg;

	/* A child of this process, unless an earlier daemon started it. */
	(void)waitpid(job->record.shim.pid, NULL, WNOHANG);
	watch_stop(job);
	job_end_later(job);
}

void job_watch(struct job *job)
{
	int rc = job->record.boot == job->queues->boot && job->record.shim.pid > 1
			 ? watch_start(job, job->record.shim, on_shim_ended)
			 : -ESRCH;

	if (rc == 0)
		return;
	if (job->record.shim.pid > 1)
		(void)waitpid(job->record.shim.pid, NULL, WNOHANG);
	job_end_later(job);
}

/* ---- ending a job that runs --------------------------------------------------------------- */

/* A shim passes a signal on. If it was killed, the command and its processes are signalled. */
static void signal_send(struct job *job, int number)
{
	if (job->watched != JOB_WATCHED_SHIM && !launcher_is_there(job->queues->host.launcher))
		(void)job_left_signal(job->queues, &job->record, number);
	privileges_signal(job->queues->host.sessions->privileges, job->record.uid,
			  job->record.session, job->record.shim, number, NULL, job->queues);
}

void job_end_begin(struct job *job, enum job_state as, const char *why)
{
	/* A cancellation goes before a preemption. */
	if (*job->record.ending && job->record.ending_as != JOB_QUEUED)
		return;
	job_text_set(&job->record.ending, why);
	job->record.ending_as = as;
	(void)job_record_save(job);
	kill_point("cancel.recorded");
	/* A start that goes on to delete a pod is told by pod_end_look(). */
	if (job->starting)
		return;
	uint64_t grace = job_is_pod(&job->record) ? AGENT_PODS_GRACE_NS : job->spec->grace_ns;
	if (!job->kill_ns)
		job->kill_ns = now_monotonic_ns() + grace + SHIM_PATIENCE_NS;
	signal_send(job, SIGTERM);
}

void job_end_again(struct job *job)
{
	char why[JOB_REASON_SIZE];

	snprintf(why, sizeof(why), "%s", job->record.ending);
	job_text_set(&job->record.ending, "");
	job_end_begin(job, job->record.ending_as, why);
}

/* Its shim ends a job at its limit, unless its user stopped the shim. If the shim was killed, the
 * daemon does so in its place. Others were promised the room at that time. */
static void limit_look(struct job *job, uint64_t now)
{
	bool has_shim = job->watched == JOB_WATCHED_SHIM;
	uint64_t limit = job->spec->limit_ns;
	uint64_t patience = has_shim ? job->spec->grace_ns + SHIM_PATIENCE_NS : 0;

	if (!limit || job->kill_ns || job_is_pod(&job->record) ||
	    now - job->started_ns < limit + patience)
		return;
	job_end_begin(job, JOB_TIMEOUT, "its time limit was reached");
	if (has_shim)
		job->kill_ns = now;
}

/* One that was started to delete a pod is told so when it can hear it: a signal before that would
 * end it. */
static void pod_end_look(struct job *job, uint64_t now)
{
	json_t *start = NULL, *exit = NULL;

	if (!*job->record.ending || job->kill_ns || now - job->started_ns < POD_END_NS)
		return;
	(void)job_record_read(job->queues, &job->record, &start, &exit);
	if (start)
		job_end_again(job);
	json_decref(start);
	json_decref(exit);
}

void job_end_tick(struct job *job, uint64_t now)
{
	/* Without a shim nobody else kills the command when its grace is over. */
	uint64_t early = job->watched == JOB_WATCHED_COMMAND ? SHIM_PATIENCE_NS : 0;

	limit_look(job, now);
	pod_end_look(job, now);
	/* Its shim would end it with its simulated host. */
	if (early && !launcher_is_there(job->queues->host.launcher) && simulated_host_is_gone())
		signal_send(job, SIGKILL);
	if (!job->kill_ns || now + early < job->kill_ns || !job->watch)
		return;
	/* A record can name any process as the command: one that its user may not end is not waited
	 * for. */
	if (job->watched == JOB_WATCHED_COMMAND_KILLED) {
		on_command_ended(job);
		return;
	}
	/* A shim that was stopped does not do it. Then the command is ended itself. */
	signal_send(job, SIGKILL);
	if (job->watched == JOB_WATCHED_COMMAND)
		job->watched = JOB_WATCHED_COMMAND_KILLED;
	job->kill_ns = now + SHIM_PATIENCE_NS;
}
