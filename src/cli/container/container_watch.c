#include "cli/container/container_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/process.h"
#include "base/process_share.h"
#include "cli/container/container_dir.h"
#include "cli/session/session_grant.h"
#include "client/client.h"
#include "client/sessions.h"
#include "container/container_args.h"
#include "proto/attach.h"
#include "slice/slice_register.h"

#define CID_SIZE 80
/* How often the file of the container's ID is looked at while its client lives. */
#define CID_EVERY_MS 200
/* A runtime's command that runs beside its client makes the client slow: it is let end first. */
#define CLIENT_START_MS 1000
#define CLIENT_END_MS 5000
/* From the waiter to the watcher, which is the one that the daemon knows. */
#define SIGNAL_STOPPED SIGUSR1
#define SIGNAL_STARTED SIGUSR2
/* How long, and how often, a process of a container is looked for while its client starts it. */
#define ADMIT_LOOKS 500
#define ADMIT_EVERY_MS 20
/* A daemon that is away when a container is told to it: a minute, asked every 0.2 s. */
#define ADMIT_TRIES 300
#define ADMIT_PAUSE_MS 200
/* A container between two runs is looked at after twice this time, then ever later. */
#define BETWEEN_MS 50
#define BETWEEN_MOST_MS 2000
/* A container that was restarted by its policy is seen running within these looks. */
#define ENDED_LOOKS 4
#define ENDED_EVERY_MS 1000
/* A runtime's daemon that does not answer is asked this many times while the container's first
 * process is gone: its policy may start it again when the daemon is back. */
#define UNKNOWN_LOOKS 600

struct question {
	char **command;
	int out;
	int stream; /* the stream that is read: standard output or standard error */
};

/* A failure is an answer, too. */
static int command_become(void *arg)
{
	const struct question *question = arg;
	int null = open("/dev/null", O_WRONLY);

	dup2(question->out, question->stream);
	if (null >= 0)
		dup2(null, question->stream == STDOUT_FILENO ? STDERR_FILENO : STDOUT_FILENO);
	execvp(question->command[0], question->command);
	return 127;
}

static void command_make(const struct runtime *runtime, const char *const *arguments,
			 struct words *ret)
{
	words_add(ret, "%s", runtime->program);
	for (char *const *option = runtime->options; option && *option; option++)
		words_add(ret, "%s", *option);
	for (; *arguments; arguments++)
		words_add(ret, "%s", *arguments);
}

static bool stream_ask(const struct runtime *runtime, int stream, char *buf, size_t size,
		       const char *const *arguments)
{
	struct words command = {0};
	int fds[2], status = 0;

	buf[0] = '\0';
	if (pipe2(fds, O_CLOEXEC) < 0)
		return false;
	cleanup_close int in = fds[0], out = fds[1];
	command_make(runtime, arguments, &command);
	struct question question = {.command = command.list, .out = out, .stream = stream};
	pid_t child = process_share(command_become, &question, true);
	words_free(&command);
	close_fd(&out);
	size_t used = 0;
	ssize_t n;
	while ((n = read(in, buf + used, size - 1 - used)) > 0 || (n < 0 && errno == EINTR))
		used += n > 0 ? (size_t)n : 0;
	buf[used] = '\0';
	while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool runtime_ask_all(const struct runtime *runtime, char *buf, size_t size,
		     const char *const *arguments)
{
	return stream_ask(runtime, STDOUT_FILENO, buf, size, arguments);
}

bool runtime_ask_error(const struct runtime *runtime, char *buf, size_t size,
		       const char *const *arguments)
{
	bool done = stream_ask(runtime, STDERR_FILENO, buf, size, arguments);

	buf[strcspn(buf, "\n")] = '\0';
	return done;
}

bool runtime_ask(const struct runtime *runtime, char *buf, size_t size,
		 const char *const *arguments)
{
	bool done = runtime_ask_all(runtime, buf, size, arguments);

	buf[strcspn(buf, "\n")] = '\0';
	return done;
}

/* Unknown: the runtime's daemon does not answer, as it is being restarted. */
enum container_state { CONTAINER_GONE, CONTAINER_STOPPED, CONTAINER_RUNNING, CONTAINER_UNKNOWN };

/* Whether it is gone only a list says: an inspection fails, too, while the runtime's daemon is
 * away.
 */
static enum container_state list_ask(const struct container_watch *w, const char *cid)
{
	static const char *const running[] = {"Up", "Restarting", "Paused", "Created"};
	char filter[CID_SIZE + 8], said[128];
	const char *const list[] = {"ps",       "--all",       "--filter", filter,
				    "--format", "{{.Status}}", NULL};

	snprintf(filter, sizeof(filter), "id=%s", cid);
	if (!runtime_ask(&w->runtime, said, sizeof(said), list))
		return CONTAINER_UNKNOWN;
	for (size_t i = 0; i < ARRAY_SIZE(running); i++)
		if (!strncasecmp(said, running[i], strlen(running[i])))
			return CONTAINER_RUNNING;
	return *said ? CONTAINER_STOPPED : CONTAINER_GONE;
}

/* One that is between two runs counts as running. *pid: its first process, as far as it is known.
 */
static enum container_state state_ask(const struct container_watch *w, const char *cid, pid_t *pid)
{
	const char *const inspect[] = {"container",      "inspect", "--format",
				       "{{.State.Pid}}", cid,       NULL};
	enum container_state state = list_ask(w, cid);
	char said[128];

	if (state == CONTAINER_RUNNING && runtime_ask(&w->runtime, said, sizeof(said), inspect))
		*pid = (pid_t)strtol(said, NULL, 10);
	return state;
}

static bool cid_read(const struct container_watch *w, char cid[static CID_SIZE])
{
	cleanup_close int fd = !w->cid_file ? -1 : open(w->cid_file, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, cid, CID_SIZE - 1);

	cid[n > 0 ? n : 0] = '\0';
	cid[strspn(cid, "0123456789abcdef")] = '\0';
	return strlen(cid) >= 12;
}

/* Waits until there is a container, or none can come any more as the client has ended. */
static bool container_appears(const struct container_watch *w, int client,
			      char cid[static CID_SIZE])
{
	struct pollfd ended = {.fd = client, .events = POLLIN};

	while (!cid_read(w, cid))
		if (poll(&ended, 1, w->cid_file ? CID_EVERY_MS : -1) > 0)
			return cid_read(w, cid);
	return true;
}

static bool process_lives(pid_t pid)
{
	return pid > 0 && (kill(pid, 0) == 0 || errno == EPERM);
}

/* A session that stays may be released while its container is stopped. */
static void stopped_tell(const struct container_watch *w, bool stopped)
{
	static bool told;

	if (!w->one_off && stopped != told)
		(void)kill(getppid(), stopped ? SIGNAL_STOPPED : SIGNAL_STARTED);
	told = stopped;
}

/* Looks again while the runtime does not answer. */
static enum container_state state_wait(const struct container_watch *w, const char *cid, pid_t *pid)
{
	enum container_state state = state_ask(w, cid, pid);

	for (int i = 0; state == CONTAINER_UNKNOWN && i < UNKNOWN_LOOKS;) {
		poll(NULL, 0, ENDED_EVERY_MS);
		i = process_lives(*pid) ? 0 : i + 1;
		state = state_ask(w, cid, pid);
	}
	return state;
}

static pid_t pid_read(const char *path)
{
	char text[32];

	return path && file_read(path, text, sizeof(text)) > 0 ? (pid_t)strtol(text, NULL, 10) : 0;
}

static bool client_ends(int client, int timeout_ms)
{
	struct pollfd ended = {.fd = client, .events = POLLIN};

	return poll(&ended, 1, timeout_ms) > 0;
}

/* A process of the container, by its cgroup, which root's runtimes name after the container; PID 0:
 * there is none yet. Faster than to ask docker, whose client is slow. */
static struct process_id process_find(const char *cid)
{
	glob_t files = {0};
	char text[4096];
	struct process_id found = {0}, process;

	if (glob("/proc/[0-9]*/cgroup", GLOB_NOSORT, NULL, &files) != 0)
		return found;
	for (size_t i = 0; i < files.gl_pathc && !found.pid; i++) {
		pid_t pid = (pid_t)strtol(files.gl_pathv[i] + strlen("/proc/"), NULL, 10);

		/* Any user may read the ID, and give a cgroup that name. The PID may be another's a
		 * moment later. */
		if (file_read(files.gl_pathv[i], text, sizeof(text)) > 0 && strstr(text, cid) &&
		    process_identify(pid, &process) == 0 && cgroup_is_named_by_root(pid, cid))
			found = process;
	}
	globfree(&files);
	return found;
}

/* The container's first process as its runtime writes it down; 0: it does not. */
static pid_t process_appears(const struct container_watch *w, int client)
{
	pid_t pid = 0;

	while (w->pid_file && !(pid = pid_read(w->pid_file)))
		if (client_ends(client, CID_EVERY_MS))
			return pid_read(w->pid_file);
	return pid;
}

/* `error`: the client's standard error. One that nobody reads at present is not waited for. */
static void line_tell(int error, const char *text)
{
	struct pollfd writable = {.fd = error, .events = POLLOUT};

	if (poll(&writable, 1, 0) == 1 && writable.revents == POLLOUT)
		/* A terminal's line may begin anywhere, as its client has it in raw mode. */
		(void)dprintf(error, isatty(error) ? "\r\n%s\r\n" : "%s\n", text);
}

/* A release by force ends all that is in the session: this process, as far as the daemon knows.
 */
static void container_stop(const struct container_watch *w)
{
	char cid[CID_SIZE], said[128];
	const char *const stop[] = {"stop", "-t", "0", cid, NULL};

	if (cid_read(w, cid))
		(void)runtime_ask(&w->runtime, said, sizeof(said), stop);
}

/* Users in a container of root's are in its slice as they are in the container's mount namespace:
 * the daemon is told of a process there. With podman carve-hook tells it, too, before anything
 * runs. With docker a program waits for it (front/attach.c). */
static int users_admit(const struct container_watch *w, struct process_id process,
		       struct error *err)
{
	json_t *body = json_pack("{s:s, s:i, s:I, s:s}", "session", w->session, "pid",
				 (int)process.pid, "birth", (json_int_t)process.birth, "stamp",
				 session_text(w->before, "stamp"));

	int rc = client_call(w->client, "POST", "/v1/commands", body, NULL, NULL, err);

	json_decref(body);
	return rc;
}

/* A container that the daemon does not take has no limit of the driver's, and is stopped. A daemon
 * that is away is waited for while the container lives. `error` is the client's standard error. */
static void users_admit_or_stop(const struct container_watch *w, struct process_id process,
				int error)
{
	struct error err = {0};
	struct process_id now;
	char text[sizeof(err.message) + 64];
	int rc = users_admit(w, process, &err);

	for (int i = 0; i < ADMIT_TRIES && rc == -EXIT_CODE_UNREACHABLE; i++) {
		poll(NULL, 0, ADMIT_PAUSE_MS);
		rc = users_admit(w, process, &err);
	}
	if (rc == 0 || process_identify(process.pid, &now) < 0 || now.birth != process.birth)
		return;
	snprintf(text, sizeof(text), "carve: the container is stopped: %s", err.message);
	if (error >= 0)
		line_tell(error, text);
	container_stop(w);
}

/* docker's client says nothing of the process until it is asked, which would be too late. */
static void users_admit_early(const struct container_watch *w, int client, const char *cid,
			      int error)
{
	struct process_id process = {0};

	for (int i = 0; i < ADMIT_LOOKS && !process.pid; i++)
		if (!(process = process_find(cid)).pid && client_ends(client, ADMIT_EVERY_MS))
			break;
	if (process.pid)
		users_admit_or_stop(w, process, error);
}

/* False: it is gone already, or nobody knows it. */
static bool process_wait(pid_t pid)
{
	cleanup_close int fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	struct pollfd ended = {.fd = fd, .events = POLLIN};

	while (fd >= 0 && poll(&ended, 1, -1) < 0 && errno == EINTR)
		;
	return fd >= 0;
}

/* Stopped: it stays so, and is not being started again. */
static enum container_state state_settled(const struct container_watch *w, const char *cid,
					  pid_t *pid)
{
	enum container_state state = state_wait(w, cid, pid);

	if (state == CONTAINER_STOPPED)
		stopped_tell(w, true);
	for (int i = 1; i < ENDED_LOOKS && state == CONTAINER_STOPPED; i++) {
		poll(NULL, 0, ENDED_EVERY_MS);
		state = state_wait(w, cid, pid);
	}
	return state;
}

/* Until it is gone, or has stopped and its policy does not restart it: returns which. *error, the
 * client's standard error, is closed once the daemon has taken the container. */
static enum container_state container_wait(const struct container_watch *w, int client,
					   const char *cid, int *error)
{
	enum container_state state = CONTAINER_RUNNING;
	int between_ms = BETWEEN_MS;
	pid_t pid = process_appears(w, client);

	if (!pid && geteuid() == 0)
		users_admit_early(w, client, cid, *error);
	if (!pid) {
		(void)client_ends(client, CLIENT_START_MS);
		state = state_settled(w, cid, &pid);
	}
	while (state == CONTAINER_RUNNING) {
		struct process_id process;

		stopped_tell(w, false);
		if (geteuid() == 0 && pid > 0 && process_identify(pid, &process) == 0)
			users_admit_or_stop(w, process, *error);
		close_fd(error);
		/* Between two runs docker names the process that has ended, or none. Its `wait`
		 * would last as long as the next process, which nobody would tell the daemon of. */
		between_ms = process_wait(pid) ? BETWEEN_MS : MIN(2 * between_ms, BETWEEN_MOST_MS);
		if (between_ms > BETWEEN_MS)
			(void)poll(NULL, 0, between_ms);
		stopped_tell(w, true);
		(void)client_ends(client, CLIENT_END_MS);
		state = state_settled(w, cid, &pid);
	}
	return state;
}

static void session_give(const struct container_watch *w)
{
	if (w->one_off)
		session_give_back(w->client, w->session);
}

/* A client says nothing of why its container was stopped, or which of its processes were ended. */
static void end_tell(const struct container_watch *w, int error)
{
	char end[SESSION_END_SIZE], killed[SESSION_KILLED_SIZE];
	json_t *session = NULL;
	struct error ignored;

	if (error < 0 || session_get(w->client, w->session, &session, &ignored) < 0)
		return;
	if (session_end_text(session, end))
		line_tell(error, end);
	if (session_killed_text(w->before, session, killed))
		line_tell(error, killed);
	json_decref(session);
}

/* The signals that watch_until_end() reads. */
static int signals_open(sigset_t *before)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGNAL_STOPPED);
	sigaddset(&set, SIGNAL_STARTED);
	/* The reader of the client's standard error may have gone. */
	sigaddset(&set, SIGPIPE);
	sigprocmask(SIG_BLOCK, &set, before);
	return signalfd(-1, &set, SFD_CLOEXEC);
}

/* Until `waiter` has ended, or somebody ends this. Returns the waiter's status; -1: not known.
 * The client's standard error, `error`, is closed when
 * the client has ended: who reads it waits for its end. */
static int watch_until_end(const struct container_watch *w, int signals, pid_t waiter, int client,
			   int error)
{
	int status = -1;
	struct signalfd_siginfo info;
	struct attach_reply reply;

	while (waitpid(waiter, &status, WNOHANG) == 0) {
		struct pollfd fds[] = {{.fd = signals, .events = POLLIN},
				       {.fd = error < 0 ? -1 : client, .events = POLLIN}};

		(void)poll(fds, ARRAY_SIZE(fds), -1);
		if (fds[1].revents && !fds[0].revents) {
			end_tell(w, error);
			close_fd(&error);
		}
		if (!fds[0].revents || read(signals, &info, sizeof(info)) != sizeof(info))
			continue;
		if (info.ssi_signo == SIGNAL_STOPPED || info.ssi_signo == SIGNAL_STARTED)
			(void)slice_register(
				w->client->attach, w->session,
				info.ssi_signo == SIGNAL_STOPPED ? ATTACH_FLAG_STOPPED : 0, &reply);
		if (info.ssi_signo == SIGTERM) {
			kill(waiter, SIGKILL);
			end_tell(w, error);
			container_stop(w);
			break;
		}
	}
	close_fd(&error);
	return status;
}

_Noreturn static void watch(const struct container_watch *w, int client, int error)
{
	char cid[CID_SIZE];
	sigset_t before;
	cleanup_close int signals = signals_open(&before);

	container_dir_hold(w->dir);
	pid_t waiter = fork();

	if (waiter == 0) {
		enum container_state state = CONTAINER_GONE;

		sigprocmask(SIG_SETMASK, &before, NULL);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (container_appears(w, client, cid)) {
			/* For the case that nobody is left to do so at its end. */
			container_dir_keep(w->dir, &w->runtime, cid);
			state = container_wait(w, client, cid, &error);
		}
		_exit(state == CONTAINER_GONE ? EXIT_CODE_OK : EXIT_CODE_FAILED);
	}
	int status = waiter > 0 ? watch_until_end(w, signals, waiter, client, error) : -1;
	session_give(w);
	container_dirs_collect(&w->runtime);
	/* A runtime's command takes its time: it is not asked what is known. */
	if (status != 0 && cid_read(w, cid) && list_ask(w, cid) != CONTAINER_GONE)
		container_dir_keep(w->dir, &w->runtime, cid);
	else
		container_dir_remove(w->dir);
	_exit(EXIT_CODE_OK);
}

/* How it went to tell the daemon of the watcher: rc 0, or a negative errno, and then the daemon's
 * own words, if it answered. */
struct registration {
	int rc;
	char why[sizeof(((struct attach_reply *)0)->message)];
};

static struct registration watcher_register(const struct container_watch *w)
{
	struct attach_reply reply = {0};
	struct registration done = {.rc = slice_register(w->client->attach, w->session, 0, &reply)};

	if (done.rc == 0 && reply.status != ATTACH_OK)
		done.rc = -EPERM;
	if (done.rc < 0)
		snprintf(done.why, sizeof(done.why), "%.*s", (int)sizeof(reply.message) - 1,
			 *reply.message ? reply.message : strerrordesc_np(-done.rc));
	return done;
}

/* Nothing of the terminal's: its end and its signals are the client's. Returns the client's
 * standard error. */
static int detach(void)
{
	int null = open("/dev/null", O_RDWR);
	int error = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);

	setsid();
	for (int fd = 0; fd < 3 && null >= 0; fd++)
		dup2(null, fd);
	return error;
}

struct start {
	const struct container_watch *watch;
	int client, out; /* a pidfd, and where the outcome of the registration is told */
};

_Noreturn static void watcher_run(const struct start *start)
{
	int error = detach(), out = start->out;
	struct registration done = watcher_register(start->watch);

	(void)write_all(out, &done, sizeof(done));
	close_fd(&out);
	if (done.rc < 0)
		_exit(EXIT_CODE_FAILED);
	watch(start->watch, start->client, error);
}

/* The runtime's client is to have no child of carve's: the watcher's parent ends at once. */
static int watcher_fork(void *arg)
{
	pid_t watcher = _Fork();

	if (watcher == 0)
		watcher_run(arg);
	return watcher < 0 ? EXIT_CODE_FAILED : EXIT_CODE_OK;
}

int container_watch_start(const struct container_watch *w, struct error *err)
{
	struct registration done;
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return error_set(err, EXIT_CODE_RUN_FAILED, "cannot start a watcher: %s",
				 strerrordesc_np(errno));
	cleanup_close int in = fds[0], out = fds[1];
	cleanup_close int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
	struct start start = {.watch = w, .client = self, .out = out};
	pid_t child = process_share(watcher_fork, &start, true);

	close_fd(&out);
	if (child > 0)
		(void)waitpid(child, NULL, 0);
	if (child < 0 || read(in, &done, sizeof(done)) != sizeof(done))
		return error_set(err, EXIT_CODE_RUN_FAILED, "the container's watcher has ended");
	if (done.rc < 0)
		return error_set(err, EXIT_CODE_RUN_FAILED,
				 "the daemon does not take the container up: %s", done.why);
	return 0;
}
