/* Hooks of agents: a program of the agent's owner, which hears of each change of the agent's jobs.
 * A shim starts it, as it starts jobs, so that it runs as the owner; its words come through a pipe
 * that never blocks. A slow program hears late.
 *
 * Each user's changes are in a list of their own (hook_pending.h), and users take turns: one who
 * cancels a long array holds up what others' changes tell. Few lines at a time are in the pipe,
 * about as many as the program deals with in a second.
 *
 * It hears of a job's end at least once. The end has a number, written to disk with the job. The
 * program leaves a line in the pipe until it has dealt with it, so the bytes that are left there
 * say how far it is. The number up to which it has dealt with all ends goes to disk each second.
 * Ends behind that number are told again, from the disk, where the daemon was killed. So are those
 * of a user with more changes than are remembered.
 *
 * It hears of other changes at most once where the daemon is killed: they are not on disk, as each
 * would be a transaction. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/host/log.h"
#include "daemon/host/owner.h"
#include "daemon/queue/hook_pending.h"
#include "daemon/queue/queue_private.h"
#include "proto/shim.h"

/* One that ends, or cannot be started, is started again after this long. */
#define HOOK_AGAIN_NS 5000000000ull

/* Lines that the program has not dealt with: a pipe holds fewer than the most. */
#define HOOK_LINES_LEAST 16u
#define HOOK_LINES 1024u
/* How long it takes to tell how many lines it deals with. */
#define HOOK_PACE_NS 1000000000ull
/* Jobs that are read from the disk at a time. */
#define OWED_PART 64u

/* One that the program has not dealt with. */
struct hook_line {
	uint64_t end; /* bytes written up to its end */
	struct hook_event *event;
};

struct agent_hook {
	char *text;
	struct warrant *warrant; /* NULL: it is the daemon's own user's */
	int fd;                  /* its standard input; -1: it does not run */
	struct agent *agent;
	uint64_t asked;              /* the launcher was asked to start it; NULL: it was not */
	pid_t starter;               /* this process's child that started it, and ends at once */
	struct process_watch *watch; /* the starter's */
	struct hook_pending pending; /* the ends that it is to be told of */
	uint64_t seen;               /* the number of the last change that is in there, or was */
	struct hook_line line[HOOK_LINES];
	uint32_t line_first, line_count;
	uint32_t lines_most; /* for now */
	uint32_t dealt;      /* lines, since paced_ns */
	uint64_t paced_ns;
	uint64_t written; /* bytes, to this process */
	/* Numbers of ends; each counts up to that one.
	 * saved: it is on disk that the program has dealt with them.
	 * passed: they are in the lists, or were, or are none of the agent's.
	 * owed: they are to be read from the disk before they can be in the lists. */
	int64_t saved, passed, owed;
	uint64_t again_ns; /* it is not started before */
	int failure;       /* -errno of the last start; 0: it succeeded */
	bool behind;       /* it missed changes, and the log says so */
};

struct agent_hook *agent_hook_new(char *text, struct warrant *warrant)
{
	struct agent_hook *hook = malloc(sizeof(*hook));

	if (hook)
		*hook = (struct agent_hook){
			.text = text, .warrant = warrant, .fd = -1, .lines_most = HOOK_LINES_LEAST};
	return hook;
}

static void starter_forget(struct agent_hook *hook)
{
	if (hook->starter > 1)
		(void)waitpid(hook->starter, NULL, WNOHANG);
	hook->starter = 0;
	process_watch_stop(hook->watch);
	hook->watch = NULL;
}

void agent_hook_free(struct agent_hook *hook)
{
	if (!hook)
		return;
	starter_forget(hook);
	if (hook->asked)
		launcher_forget(hook->agent->queues->host.launcher, hook->asked);
	close_fd(&hook->fd);
	for (; hook->line_count; hook->line_count--, hook->line_first++)
		free(hook->line[hook->line_first % HOOK_LINES].event);
	hook_pending_clear(&hook->pending);
	explicit_bzero(hook->text, strlen(hook->text));
	free(hook->text);
	free(hook->warrant);
	free(hook);
}

const struct warrant *agent_hook_warrant(const struct agent *agent)
{
	return agent->hook ? agent->hook->warrant : NULL;
}

/* ---- on disk ------------------------------------------------------------------------------ */

static json_t *hex_of(const void *data, size_t size)
{
	const unsigned char *bytes = data;
	cleanup_free char *text = malloc(2 * size + 1);

	for (size_t i = 0; text && i < size; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	return text ? json_string(text) : NULL;
}

/* malloc'ed; NULL: it is none of this size. */
static void *hex_read(const char *text, size_t size)
{
	unsigned char *bytes = strlen(text) == 2 * size ? malloc(size) : NULL;

	for (size_t i = 0; bytes && i < size; i++)
		// NOLINTNEXTLINE(cert-err34-c): two digits
		if (sscanf(text + 2 * i, "%2hhx", &bytes[i]) != 1) {
			free(bytes);
			return NULL;
		}
	return bytes;
}

json_t *warrant_json(const struct warrant *warrant)
{
	return hex_of(warrant, sizeof(*warrant));
}

struct warrant *warrant_read(const json_t *text)
{
	const char *hex = json_string_value(text);

	return hex ? hex_read(hex, sizeof(struct warrant)) : NULL;
}

void agent_hook_save(const struct agent *agent, json_t *object)
{
	const struct agent_hook *hook = agent->hook;

	if (!hook)
		return;
	json_object_set_new(object, "hook", json_string(hook->text));
	if (hook->warrant)
		json_object_set_new(object, "warrant", warrant_json(hook->warrant));
}

void agent_hook_read(struct agent *agent, const json_t *object)
{
	const char *text = json_string_value(json_object_get(object, "hook"));
	char *copy = text ? strdup(text) : NULL;
	struct warrant *warrant = warrant_read(json_object_get(object, "warrant"));

	agent->hook = copy ? agent_hook_new(copy, warrant) : NULL;
	if (agent->hook)
		return;
	free(copy);
	free(warrant);
}

void agent_hook_begin(struct agent *agent)
{
	struct agent_hook *hook = agent->hook;

	if (!hook)
		return;
	hook->seen = agent->queues->events;
	hook->passed = agent->queues->changes;
	hook->saved = -1;
}

void agent_hook_resume(struct agent *agent)
{
	struct agent_hook *hook = agent->hook;

	/* If a daemon before told the program, nobody knows how far it is. */
	if (!hook || job_store_told_get(agent->queues->store, agent->id, &hook->saved) < 0) {
		agent_hook_begin(agent);
		return;
	}
	hook->passed = hook->saved;
	hook->owed = agent->queues->changes;
}

/* The program has dealt with all ends up to this one. */
static int64_t heard(const struct agent_hook *hook)
{
	int64_t lowest = hook_pending_lowest(&hook->pending, hook->passed + 1);

	for (uint32_t i = 0; i < hook->line_count; i++) {
		const struct hook_event *event =
			hook->line[(hook->line_first + i) % HOOK_LINES].event;

		if (event->event.change)
			lowest = MIN(lowest, event->event.change);
	}
	return lowest - 1;
}

void agent_hooks_save(struct queues *q)
{
	for (struct agent *agent = q->agents; agent; agent = agent->next) {
		struct agent_hook *hook = agent->hook;
		int64_t number = hook ? heard(hook) : 0;

		if (hook && number != hook->saved &&
		    job_store_told_put(q->store, agent->id, number) == 0)
			hook->saved = number;
	}
}

/* ---- its process -------------------------------------------------------------------------- */

/* Its files are called as those of a job 0, whose attempt is the agent's number: no job has that
 * ID. */
static struct shim_owner hook_owner(const struct agent *agent)
{
	return (struct shim_owner){agent->uid, 0,
				   (uint32_t)strtoul(agent->id + strlen("a-"), NULL, 10)};
}

void agent_hook_log(const struct agent *agent, char buf[static PATH_MAX])
{
	const struct shim_owner owner = hook_owner(agent);
	const struct job_record record = {.id = 0, .uid = owner.uid, .attempt = owner.attempt};

	job_file(agent->queues, &record, SHIM_LOG, buf);
}

static void on_starter_ended(void *arg)
{
	starter_forget(arg);
}

const char *agent_hook_failure(const struct agent *agent)
{
	int failure = agent->hook ? agent->hook->failure : 0;

	if (failure == -EKEYREJECTED)
		return "the key that shows who started it was lost with the directory of jobs; "
		       "start the agent anew";
	return failure ? strerrordesc_np(-failure) : NULL;
}

/* A key that was lost does not come back. */
static void start_failed(const struct agent *agent, int rc)
{
	struct agent_hook *hook = agent->hook;

	close_fd(&hook->fd);
	if (rc == -EKEYREJECTED)
		hook->again_ns = UINT64_MAX;
	if (rc != hook->failure)
		log_event(LOG_WARNING, "agent.hook_not_started id=%s error=\"%s\"", agent->id,
			  strerrordesc_np(-rc));
	hook->failure = rc;
}

static void on_program(void *arg, int rc, const void *reply, int *fd)
{
	struct agent *agent = arg;
	struct agent_hook *hook = agent->hook;
	struct process_id process;

	hook->asked = 0;
	rc = shim_of_answer(rc, reply, *fd, &process);
	if (rc == 0 && fcntl(*fd, F_SETFL, O_NONBLOCK) < 0)
		rc = -errno;
	if (rc < 0) {
		start_failed(agent, rc);
		return;
	}
	hook->fd = steal_fd(fd);
	hook->failure = 0;
	starter_forget(hook);
	hook->starter = process.pid;
	if (process_watch_start(agent->queues->host.sessions->loop, process, on_starter_ended, hook,
				&hook->watch) < 0)
		starter_forget(hook);
	agent->queues->owes = true;
}

/* False: it does not run yet. */
static bool hook_runs(struct agent *agent)
{
	struct agent_hook *hook = agent->hook;

	if (hook->fd >= 0 || hook->asked || now_monotonic_ns() < hook->again_ns)
		return hook->fd >= 0;
	hook->again_ns = now_monotonic_ns() + HOOK_AGAIN_NS;
	hook->agent = agent;
	const struct shim_owner owner = hook_owner(agent);
	struct shim_head head = {.kind = SHIM_TASK_HOOK,
				 .run = {.index = -1, .attempt = owner.attempt}};
	if (hook->warrant)
		head.warrant = *hook->warrant;
	cleanup_close int spec = shim_spec_memfd(&head, hook->text, NULL);
	int rc = spec < 0 ? spec
			  : shim_launch(agent->queues, &owner, spec, on_program, agent,
					&hook->asked);
	if (rc < 0)
		start_failed(agent, rc);
	return hook->fd >= 0;
}

/* ---- its answers -------------------------------------------------------------------------- */

static bool concerns(const struct agent *agent, uid_t uid, const char *queue)
{
	return agent_runs_for(agent, uid) && agent_queue_position(agent, queue) >= 0;
}

bool agent_hooks_hear(const struct job *job)
{
	for (const struct agent *agent = job->queues->agents; agent; agent = agent->next)
		if (agent->hook && concerns(agent, job->record.uid, job->record.queue))
			return true;
	return false;
}

/* Its program is gone: the next one hears of what this one did not deal with. */
static void program_lost(struct agent_hook *hook)
{
	close_fd(&hook->fd);
	for (; hook->line_count; hook->line_count--)
		hook_pending_return(
			&hook->pending,
			hook->line[(hook->line_first + hook->line_count - 1) % HOOK_LINES].event);
	hook->written = 0;
}

/* Changes of others come after what is in the pipe: a slow program has few lines there. A quick one
 * has twice as many as it dealt with in the last second, and so never waits long for more. */
static void pace_look(struct agent_hook *hook)
{
	uint64_t now = now_monotonic_ns(), took = now - hook->paced_ns;

	if (took < HOOK_PACE_NS)
		return;
	uint64_t rate = hook->dealt * HOOK_PACE_NS / took;
	hook->lines_most = (uint32_t)MAX(MIN(2 * rate, HOOK_LINES), HOOK_LINES_LEAST);
	hook->dealt = 0;
	hook->paced_ns = now;
}

/* Notes how far the program is by now. */
static void program_hear(struct agent_hook *hook)
{
	struct pollfd gone = {.fd = hook->fd};
	int left = 0;

	if (hook->fd >= 0 && hook->line_count && ioctl(hook->fd, FIONREAD, &left) < 0)
		return;
	for (; hook->line_count; hook->line_count--, hook->line_first++) {
		const struct hook_line *line = &hook->line[hook->line_first % HOOK_LINES];

		if (line->end > hook->written - (uint64_t)left)
			break;
		free(line->event);
		hook->dealt++;
	}
	pace_look(hook);
	if (hook->line_count && poll(&gone, 1, 0) > 0 && gone.revents & POLLERR)
		program_lost(hook);
}

/* The first change of the user whose turn it is. A line is shorter than what a pipe takes whole or
 * not at all. 0; -EAGAIN: later. */
static int event_write(struct agent_hook *hook)
{
	const struct hook_user *user = hook->pending.first;
	json_t *object = queue_event_json(&user->first->event);

	if (user->dropped_untold)
		json_object_set_new(object, "dropped",
				    json_integer((json_int_t)user->dropped_untold));
	cleanup_free char *text = json_dumps(object, JSON_COMPACT);
	char line[PIPE_BUF];

	json_decref(object);
	int length = snprintf(line, sizeof(line), "%s\n", text ? text : "{}");
	if (length >= (int)sizeof(line)) {
		free(hook_pending_take(&hook->pending));
		return 0;
	}
	if (write(hook->fd, line, (size_t)length) < 0)
		return -errno;
	hook->written += (uint64_t)length;
	hook->line[(hook->line_first + hook->line_count++) % HOOK_LINES] =
		(struct hook_line){hook->written, hook_pending_take(&hook->pending)};
	return 0;
}

/* ---- its messages ------------------------------------------------------------------------- */

static struct queue_event event_of(const struct job_record *record)
{
	struct queue_event event = {
		.id = record->id,
		.array = record->array,
		.index = record->index,
		.uid = record->uid,
		.state = record->state,
		.at = record->ended,
		.attempt = record->attempt,
		.change = record->change,
	};

	snprintf(event.queue, sizeof(event.queue), "%s", record->queue);
	return event;
}

/* Among what is to be told. 0 or -ENOMEM. */
static int event_take(struct agent *agent, const struct queue_event *event)
{
	struct agent_hook *hook = agent->hook;
	struct hook_user *user;

	/* Others were read from the disk. */
	if (concerns(agent, event->uid, event->queue) &&
	    (!event->change || event->change > hook->passed)) {
		int rc = hook_pending_add(&hook->pending, event, false, &user);

		if (rc < 0)
			return rc;
		if (rc && user->dropped == 1)
			log_event(LOG_WARNING, "agent.hook_behind id=%s user=%u", agent->id,
				  user->owner);
	}
	hook->passed = MAX(hook->passed, event->change);
	return 0;
}

static int owed_take_one(void *arg, const struct job_record *record)
{
	const struct queue_event event = event_of(record);

	return event_take(arg, &event);
}

/* Ends that are on disk alone, until `end`. True: all. Most may be of other agents' jobs. */
static bool owed_take(struct queues *q, struct agent *agent, uint64_t end)
{
	struct agent_hook *hook = agent->hook;

	while (hook->passed < hook->owed) {
		int64_t before = hook->passed;

		if (now_monotonic_ns() >= end) {
			q->owes = true;
			return false;
		}

		if (job_store_each_changed(q->store, before, OWED_PART, owed_take_one, agent) < 0)
			return false;
		if (hook->passed == before)
			hook->passed = hook->owed;
	}
	return true;
}

static void skip_forgotten(const struct queues *q, const struct agent *agent)
{
	uint64_t first = q->events > QUEUE_EVENTS ? q->events - QUEUE_EVENTS : 0;

	if (agent->hook->seen >= first)
		return;
	if (!agent->hook->behind)
		log_event(LOG_WARNING, "agent.hook_behind id=%s changes=%llu", agent->id,
			  (unsigned long long)(first - agent->hook->seen));
	agent->hook->behind = true;
	agent->hook->seen = first;
	agent->hook->owed = q->changes;
}

static void changes_take(struct queues *q, struct agent *agent, uint64_t end)
{
	struct agent_hook *hook = agent->hook;

	skip_forgotten(q, agent);
	if (!owed_take(q, agent, end))
		return;
	for (; hook->seen < q->events; hook->seen++)
		if (event_take(agent, &q->event[(hook->seen + 1) % QUEUE_EVENTS]) < 0)
			return;
	hook->behind = false;
}

/* ---- telling ------------------------------------------------------------------------------ */

struct reading {
	struct agent *agent;
	struct hook_user *user;
};

static int user_read_one(void *arg, const struct job_record *record)
{
	const struct reading *r = arg;
	const struct queue_event event = event_of(record);
	struct hook_user *user;

	if (record->change > r->user->owed_to)
		return -EAGAIN;
	/* The ranges of subordinate IDs may have become known since. */
	if ((record->uid == r->user->owner || owner_of(record->uid) == r->user->owner) &&
	    concerns(r->agent, record->uid, record->queue) &&
	    hook_pending_add(&r->agent->hook->pending, &event, true, &user) < 0)
		return -ENOMEM;
	r->user->owed_from = record->change;
	return 0;
}

/* Reads ends of this user's from the disk where none are here, until `end`. True: there are some,
 * or none at all. */
static bool user_read(struct queues *q, struct agent *agent, struct hook_user *user, uint64_t end)
{
	struct reading reading = {agent, user};

	while (!user->first && user->owed_to) {
		int64_t before = user->owed_from;

		if (now_monotonic_ns() >= end) {
			q->owes = true;
			return false;
		}
		int rc = job_store_each_changed(q->store, before, OWED_PART, user_read_one,
						&reading);
		if (rc < 0 && rc != -EAGAIN)
			return false;
		if (user->owed_from == before || user->owed_from == user->owed_to)
			user->owed_from = user->owed_to = 0;
	}
	return true;
}

static void user_told(const struct agent *agent)
{
	struct hook_pending *pending = &agent->hook->pending;

	if (pending->first->dropped)
		log_event(LOG_WARNING, "agent.hook_dropped id=%s user=%u changes=%llu", agent->id,
			  pending->first->owner, (unsigned long long)pending->first->dropped);
	hook_pending_forget(pending);
}

/* False: none can be told now. */
static bool one_tell(struct agent *agent)
{
	struct agent_hook *hook = agent->hook;

	if (!hook_runs(agent))
		return false;
	int rc = event_write(hook);
	if (rc < 0 && rc != -EAGAIN)
		program_lost(hook);
	return rc == 0;
}

static void hook_tell(struct queues *q, struct agent *agent, uint64_t end)
{
	struct agent_hook *hook = agent->hook;
	const struct hook_pending *pending = &hook->pending;

	/* Nobody hears any more. */
	if (hook->again_ns == UINT64_MAX) {
		hook_pending_clear(&hook->pending);
		hook->seen = q->events;
		hook->passed = q->changes;
		return;
	}
	changes_take(q, agent, end);
	while (pending->first && hook->line_count < hook->lines_most) {
		if (!user_read(q, agent, pending->first, end))
			return;
		if (!pending->first->first)
			user_told(agent);
		else if (!one_tell(agent))
			return;
	}
}

void agent_hooks_tell(struct queues *q)
{
	uint64_t end = now_monotonic_ns() + FAIR_STEP_NS;

	q->owes = false;
	for (struct agent *agent = q->agents; agent; agent = agent->next)
		if (agent->hook) {
			program_hear(agent->hook);
			hook_tell(q, agent, end);
		}
}
