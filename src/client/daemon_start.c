#include "client/daemon_start.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/trust.h"
#include "client/service_defaults.h"
#include "proto/runtime.h"
#include "slice/isolation.h"
#include "slice/places.h"
#include "slice/runtime_dir.h"
#include "slice/slice_env.h"

#define START_TIMEOUT_MS 10000
/* A daemon that was killed while it started is no reason to give up at once. */
#define START_TRIES 3
#define RETRY_MS 20
/* Seconds without sessions and requests after which the daemon goes away by itself. */
#define IDLE_EXIT_SECONDS "60"

/* Every option that a daemon may have been started with, and NULL. */
#define ARGUMENTS_MAX 20

/* How the daemon was started that served the directory and did not end in order: the next one has
 * its settings. */
struct successor {
	bool system, is_known;
	char config[PATH_MAX], state_dir[PATH_MAX], user[64], idle_exit[24]; /* "": none */
};

/* The value of a line such as "config /etc/carve.json". False: the line is another's. */
static bool line_take(const char *line, const char *name, char *buf, size_t size)
{
	size_t length = strlen(name);

	return !strncmp(line, name, length) && line[length] == ' ' &&
	       snprintf(buf, size, "%s", line + length + 1) < (int)size;
}

static void lines_take(char *text, struct successor *ret)
{
	char *rest = NULL;

	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		ret->system |= !strcmp(line, "system");
		(void)(line_take(line, "config", ret->config, sizeof(ret->config)) ||
		       line_take(line, "state-dir", ret->state_dir, sizeof(ret->state_dir)) ||
		       line_take(line, "user", ret->user, sizeof(ret->user)) ||
		       line_take(line, "idle-exit", ret->idle_exit, sizeof(ret->idle_exit)));
	}
}

/* The daemon's file of its options. False: there is none, or it is not this user's. */
static bool start_read(const char *dir, char *text, size_t size)
{
	char path[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "%s/" RUNTIME_START_FILE, dir);
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	ssize_t n = -1;
	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && trust_uid_is_own(st.st_uid) &&
	    !(st.st_mode & 022))
		n = read_all(fd, text, size - 1);
	text[n < 0 ? 0 : n] = '\0';
	return n >= 0 && (size_t)n < size - 1;
}

/* The lock's file is empty where the daemon ended in order. A system daemon's file is open to the
 * user that it became. So its words count only for daemons that have no other file. */
static void successor_read(const char *dir, struct successor *ret)
{
	char path[PATH_MAX], lock[PATH_MAX + 64], start[3 * PATH_MAX];

	*ret = (struct successor){0};
	snprintf(path, sizeof(path), "%s/lock", dir);
	if (file_read(path, lock, sizeof(lock)) <= 0)
		return;
	ret->is_known = start_read(dir, start, sizeof(start));
	lines_take(ret->is_known ? start : lock, ret);
}

static void argument_add(char **arguments, const char *option, char *value)
{
	size_t count = 0;

	while (arguments[count])
		count++;
	if (!*value)
		return;
	arguments[count] = (char *)option;
	arguments[count + 1] = value;
}

/* The daemon's arguments. One that no other was killed before goes when nobody needs it. */
static void arguments_make(char *arguments[static ARGUMENTS_MAX], const char *dir, char *ready,
			   struct successor *successor)
{
	arguments[0] = (char *)"carved";
	if (successor->system)
		arguments[1] = (char *)"--system";
	argument_add(arguments, "--runtime-dir", (char *)dir);
	argument_add(arguments, "--ready-fd", ready);
	if (!successor->is_known)
		snprintf(successor->idle_exit, sizeof(successor->idle_exit), IDLE_EXIT_SECONDS);
	argument_add(arguments, "--idle-exit", successor->idle_exit);
	argument_add(arguments, "--config", successor->config);
	argument_add(arguments, "--state-dir", successor->state_dir);
	argument_add(arguments, "--user", successor->user);
}

/* In the grandchild: becomes the daemon, with its words going to `out`. */
_Noreturn static void daemon_become(const struct places *places, const char *dir, int out,
				    int ready_fd)
{
	struct successor successor;
	char number[16];

	successor_read(dir, &successor);
	snprintf(number, sizeof(number), "%d", ready_fd);
	int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (in < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
		_exit(1);
	/* Descriptors of the caller (a pipe somebody waits on) must not live as long as the daemon.
	 */
	close_range(3, (unsigned)ready_fd - 1, 0);
	close_range((unsigned)ready_fd + 1, ~0u, 0);
	slice_env_leave(places);
	// NOLINTNEXTLINE(concurrency-mt-unsafe): a child of one thread
	unsetenv("LD_PRELOAD");
	// NOLINTNEXTLINE(concurrency-mt-unsafe): likewise
	unsetenv("CARVE_HOST");
	service_defaults_restore();
	if (chdir("/") < 0)
		_exit(1);
	char *arguments[ARGUMENTS_MAX] = {0};
	arguments_make(arguments, dir, number, &successor);
	execv(places->daemon, arguments);
	fprintf(stderr, "carved: cannot start %s: %s\n", places->daemon, strerrordesc_np(errno));
	_exit(127);
}

/* Starts it as nobody's child, so that nobody has to wait for it. */
static int daemon_spawn(const struct places *places, const char *dir, int out, int ready_fd)
{
	pid_t child = fork();
	int status;

	if (child < 0)
		return -errno;
	if (child == 0) {
		setsid();
		pid_t daemon = fork();

		if (daemon == 0)
			daemon_become(places, dir, out, ready_fd);
		_exit(daemon < 0);
	}
	while (waitpid(child, &status, 0) < 0) {
		/* A program that uses libcarve may ignore SIGCHLD: then there is no status. */
		if (errno == ECHILD)
			return 0;
		if (errno != EINTR)
			return -errno;
	}
	return status ? -EAGAIN : 0;
}

static int start_error(const char *why, const char *dir, struct error *err)
{
	error_set(err, EXIT_CODE_UNREACHABLE, "cannot start carved%s%.400s", *why ? ": " : "", why);
	error_hint(err, "its log is %.200s/carved.log", dir);
	return -EXIT_CODE_UNREACHABLE;
}

/* Waits until the daemon says that it listens, or ends without. */
static void ready_wait(int fd)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};

	poll(&ready, 1, START_TIMEOUT_MS);
}

/* Whether the daemon that the lock names lives: ours, or one that was started at the same time. */
static bool daemon_lives(const char *dir)
{
	char path[PATH_MAX], text[32];

	snprintf(path, sizeof(path), "%s/lock", dir);
	pid_t pid = file_read(path, text, sizeof(text)) > 0 ? (pid_t)strtol(text, NULL, 10) : 0;
	cleanup_close int fd = pid > 0 ? pidfd_open(pid, 0) : -1;
	struct pollfd end = {.fd = fd, .events = POLLIN};
	/* Ended, but waited for by nobody, is ended too. */
	return fd >= 0 && poll(&end, 1, 0) == 0;
}

/* One daemon is started, and some daemon waited for. True: `socket` answers. */
static bool start_try(const struct places *places, const char *dir, const char *socket, int log,
		      int *ret_rc)
{
	int pipe_fds[2];
	long long deadline = now_monotonic_ms() + START_TIMEOUT_MS;

	*ret_rc = pipe(pipe_fds) < 0 ? -errno : 0;
	if (*ret_rc < 0)
		return false;
	cleanup_close int ready = pipe_fds[0];
	*ret_rc = daemon_spawn(places, dir, log, pipe_fds[1]);
	close(pipe_fds[1]);
	if (*ret_rc < 0)
		return false;
	ready_wait(ready);
	while (!runtime_socket_answers(socket)) {
		if (!daemon_lives(dir))
			return false;
		*ret_rc = now_monotonic_ms() > deadline ? -ETIMEDOUT : 0;
		if (*ret_rc < 0)
			return false;
		nanosleep(&(struct timespec){.tv_nsec = RETRY_MS * 1000000L}, NULL);
	}
	return true;
}

/* The daemon's last words since `from` in its log; "" where it had none. */
static const char *last_words(const char *dir, off_t from, char *buf, size_t size)
{
	static const char mark[] = "carved: ";
	char path[PATH_MAX], *state;
	const char *words = "";

	snprintf(path, sizeof(path), "%s/carved.log", dir);
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	off_t end = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
	if (end < from) /* a full log was put away meanwhile */
		from = 0;
	if (end - from > (off_t)size - 1)
		from = end - (off_t)size + 1;
	ssize_t n = fd < 0 ? 0 : pread(fd, buf, size - 1, from);
	buf[n > 0 ? n : 0] = '\0';
	for (char *line = strtok_r(buf, "\n", &state); line; line = strtok_r(NULL, "\n", &state))
		if (!strncmp(line, mark, sizeof(mark) - 1))
			words = line + sizeof(mark) - 1;
	return words;
}

/* Starts daemons until one answers. */
static int start(const struct places *places, const char *dir, const char *socket,
		 struct error *err)
{
	char path[PATH_MAX], text[4096];
	int rc = 0;

	snprintf(path, sizeof(path), "%s/carved.log", dir);
	cleanup_close int log =
		open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (log < 0) {
		error_set(err, EXIT_CODE_UNREACHABLE,
			  "cannot start carved: cannot write %.300s: %s", path,
			  strerrordesc_np(errno));
		error_hint(err, "set CARVE_RUNTIME_DIR to a directory for it");
		return -EXIT_CODE_UNREACHABLE;
	}
	/* The mode does not depend on the umask. */
	(void)fchmod(log, 0600);
	off_t from = lseek(log, 0, SEEK_END);
	for (int tries = 0; tries < START_TRIES && rc == 0; tries++)
		if (start_try(places, dir, socket, log, &rc))
			return 0;
	if (rc == -ETIMEDOUT)
		return start_error("it does not listen after 10 s", dir, err);
	if (rc < 0)
		return start_error(strerrordesc_np(-rc), dir, err);
	const char *why = last_words(dir, from, text, sizeof(text));
	return start_error(*why ? why : "it ended while it started", dir, err);
}

bool daemon_was_killed(const char *dir)
{
	char path[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "%s/lock", dir);
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	return fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0 &&
	       flock(fd, LOCK_SH | LOCK_NB) == 0;
}

int daemon_start(const char *dir, const char *socket, struct error *err)
{
	struct places places;
	int rc = places_find(&places, err);

	/* There the driver is our own front, and the daemon would see the slice as its GPU. */
	if (isolation_mounted()) {
		error_set(err, EXIT_CODE_UNREACHABLE,
			  "no daemon answers, and none can be started from inside a slice");
		error_hint(err, "run any carve command outside of it");
		return -EXIT_CODE_UNREACHABLE;
	}
	if (rc < 0 || (rc = runtime_dir_make(dir, err)) < 0)
		return rc;
	if (access(places.daemon, X_OK) < 0)
		return error_set(err, EXIT_CODE_UNREACHABLE, "no daemon runs, and there is no %s",
				 places.daemon);
	return start(&places, dir, socket, err);
}
