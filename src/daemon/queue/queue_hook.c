/* Hooks of agents: a program of the agent's owner, which hears of each change of the agent's jobs.
 * A shim starts it, as it starts jobs, so that it runs as the owner; its words come through a pipe
 * that never blocks. Where it is slow it hears late.
 *
 * It hears of a job's end at least once. The end has a number, written to disk with the job. The
 * program leaves a line in the pipe until it has dealt with it, so the bytes that are left there
 * say how far it is; the number of the last end that it dealt with goes to disk each second. Ends
 * behind that number are told again, from the disk, where the program or the daemon was killed, or
 * where more changes came than are remembered.
 *
 * Of other changes it hears at most once where the daemon is killed: they are not on disk, as each
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
#include "daemon/queue/queue_private.h"
#include "proto/shim.h"

/* One that ends, or cannot be started, is started again after so long. */
#define HOOK_AGAIN_NS 5000000000ull

/* A pipe holds fewer. */
#define HOOK_LINES 1024u
/* Jobs that are read from the disk at a time. */
#define OWED_PART 64u

/* One that the program has not dealt with. */
struct hook_line {
	uint64_t end;    /* bytes written up to its end */
	uint64_t number; /* of the change; 0: it was read from the disk */
	int64_t change;
};

struct agent_hook {
	char *text;
	struct warrant *warrant;     /* NULL: it is the daemon's own user's */
	int fd;                      /* its standard input; -1: it does not run */
	pid_t starter;               /* this process's child that started it, and ends at once */
	struct process_watch *watch; /* of that */
	uint64_t told;               /* the number of the last change that it was told of */
	struct hook_line line[HOOK_LINES];
	uint32_t line_first, line_count;
	uint64_t written; /* bytes, to this process */
	/* Numbers of ends, each up to that one: it has dealt with them; that is on disk; they are
	 * in the pipe, or none of the agent's; and they are to be read from the disk first. */
	int64_t heard, saved, passed, owed;
	uint64_t again_ns; /* it is not started before */
	int failure;       /* -errno of the last start; 0: it succeeded */
	bool behind;       /* it missed changes, and the log says so */
};

struct agent_hook *agent_hook_new(char *text, struct warrant *warrant)
{
	struct agent_hook *hook = malloc(sizeof(*hook));

	if (hook)
		*hook = (struct agent_hook){.text = text, .warrant = warrant, .fd = -1};
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
	close_fd(&hook->fd);
	explicit_bzero(hook->text, strlen(hook->text));
	free(hook->text);
	free(hook->warrant);
	free(hook);
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
	hook->told = agent->queues->events;
	hook->heard = hook->passed = agent->queues->changes;
	hook->saved = -1;
}

void agent_hook_resume(struct agent *agent)
{
	struct agent_hook *hook = agent->hook;

	/* Of one that a daemon before told, nobody knows how far it is. */
	if (!hook || job_store_told_get(agent->queues->store, agent->id, &hook->saved) < 0) {
		agent_hook_begin(agent);
		return;
	}
	hook->heard = hook->passed = hook->saved;
	hook->owed = agent->queues->changes;
}

void agent_hooks_save(struct queues *q)
{
	for (struct agent *agent = q->agents; agent; agent = agent->next) {
		struct agent_hook *hook = agent->hook;

		if (hook && hook->heard != hook->saved &&
		    job_store_told_put(q->store, agent->id, hook->heard) == 0)
			hook->saved = hook->heard;
	}
}

/* ---- its process -------------------------------------------------------------------------- */

/* Its files are called as those of a job 0, whose attempt is the agent's number: no job has that
 * ID. */
static struct shim_owner owner_of(const struct agent *agent)
{
	return (struct shim_owner){agent->uid, 0,
				   (uint32_t)strtoul(agent->id + strlen("a-"), NULL, 10)};
}

void agent_hook_log(const struct agent *agent, char buf[static PATH_MAX])
{
	const struct shim_owner owner = owner_of(agent);
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

static int process_start(const struct agent *agent, int *ret_fd, struct process_id *ret)
{
	struct queues *q = agent->queues;
	const struct shim_owner owner = owner_of(agent);
	cleanup_close int spec =
		shim_spec_memfd(agent->hook->warrant, agent->hook->text, SHIM_RUN_HOOK, NULL);
	int rc = spec < 0 ? spec : shim_launch(q, &owner, spec, ret_fd, ret);

	if (rc == 0 && fcntl(*ret_fd, F_SETFL, O_NONBLOCK) < 0)
		rc = -errno;
	return rc;
}

/* False: it does not run. */
static bool hook_runs(struct agent *agent)
{
	struct agent_hook *hook = agent->hook;
	struct process_id process = {0};

	if (hook->fd >= 0)
		return true;
	if (now_monotonic_ns() < hook->again_ns)
		return false;
	hook->again_ns = now_monotonic_ns() + HOOK_AGAIN_NS;
	int rc = process_start(agent, &hook->fd, &process);
	if (rc < 0) {
		start_failed(agent, rc);
		return false;
	}
	hook->failure = 0;
	starter_forget(hook);
	hook->starter = process.pid;
	if (process_watch_start(agent->queues->host.sessions->loop, process, on_starter_ended, hook,
				&hook->watch) < 0)
		starter_forget(hook);
	return true;
}

/* ---- what it hears ------------------------------------------------------------------------ */

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
	for (; hook->line_count; hook->line_count--) {
		const struct hook_line *line =
			&hook->line[(hook->line_first + hook->line_count - 1) % HOOK_LINES];

		if (line->number)
			hook->told = line->number - 1;
		else
			hook->owed = MAX(hook->owed, line->change);
	}
	hook->passed = hook->heard;
	hook->written = 0;
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
		hook->heard = MAX(hook->heard, line->change);
	}
	if (!hook->line_count)
		hook->heard = hook->passed;
	else if (poll(&gone, 1, 0) > 0 && gone.revents & POLLERR)
		program_lost(hook);
}

/* A line is shorter than what a pipe takes whole or not at all. 0; -EAGAIN: later. */
static int event_write(struct agent_hook *hook, const struct queue_event *event)
{
	json_t *object = queue_event_json(event);
	cleanup_free char *text = json_dumps(object, JSON_COMPACT);
	char line[PIPE_BUF];

	json_decref(object);
	int length = snprintf(line, sizeof(line), "%s\n", text ? text : "{}");
	if (length >= (int)sizeof(line))
		return 0;
	if (hook->line_count == HOOK_LINES)
		return -EAGAIN;
	if (write(hook->fd, line, (size_t)length) < 0)
		return -errno;
	hook->written += (uint64_t)length;
	hook->line[(hook->line_first + hook->line_count++) % HOOK_LINES] =
		(struct hook_line){hook->written, event->number, event->change};
	return 0;
}

/* True: it was told, or need not be. */
static bool event_tell(struct agent *agent, const struct queue_event *event)
{
	struct agent_hook *hook = agent->hook;

	/* Others were read from the disk. */
	if (concerns(agent, event->uid, event->queue) &&
	    (!event->change || event->change > hook->passed)) {
		if (!hook_runs(agent))
			return false;
		int rc = event_write(hook, event);
		if (rc < 0 && rc != -EAGAIN)
			program_lost(hook);
		if (rc < 0)
			return false;
	}
	hook->passed = MAX(hook->passed, event->change);
	return true;
}

static int owed_tell_one(void *arg, const struct job_record *record)
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
	return event_tell(arg, &event) ? 0 : -EAGAIN;
}

/* Of ends that are on disk alone, until `end`. True: of all. Most may be of other agents' jobs. */
static bool owed_tell(struct queues *q, struct agent *agent, uint64_t end)
{
	struct agent_hook *hook = agent->hook;

	while (hook->passed < hook->owed) {
		int64_t before = hook->passed;

		if (now_monotonic_ns() >= end) {
			q->owes = true;
			return false;
		}

		if (job_store_each_changed(q->store, before, OWED_PART, owed_tell_one, agent) < 0)
			return false;
		if (hook->passed == before)
			hook->passed = hook->owed;
	}
	return true;
}

static void skip_forgotten(const struct queues *q, const struct agent *agent)
{
	uint64_t first = q->events > QUEUE_EVENTS ? q->events - QUEUE_EVENTS : 0;

	if (agent->hook->told >= first)
		return;
	if (!agent->hook->behind)
		log_event(LOG_WARNING, "agent.hook_behind id=%s changes=%llu", agent->id,
			  (unsigned long long)(first - agent->hook->told));
	agent->hook->behind = true;
	agent->hook->told = first;
	agent->hook->owed = q->changes;
}

static void hook_tell(struct queues *q, struct agent *agent, uint64_t end)
{
	struct agent_hook *hook = agent->hook;

	/* Nobody hears any more. */
	if (hook->again_ns == UINT64_MAX) {
		hook->told = q->events;
		hook->passed = q->changes;
	}
	skip_forgotten(q, agent);
	if (!owed_tell(q, agent, end))
		return;
	for (; hook->told < q->events; hook->told++)
		if (!event_tell(agent, &q->event[(hook->told + 1) % QUEUE_EVENTS]))
			return;
	hook->behind = false;
}

void agent_hooks_tell(struct queues *q)
{
	uint64_t end = now_monotonic_ns() + QUEUE_PART_NS;

	q->owes = false;
	for (struct agent *agent = q->agents; agent; agent = agent->next)
		if (agent->hook) {
			program_hear(agent->hook);
			hook_tell(q, agent, end);
		}
	if (q->owes)
		queue_parts_wake(q);
}
