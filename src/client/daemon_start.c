#include "client/daemon_start.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "client/service_like.h"
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

/* How the daemon was started that served the directory and did not end in order: the next one has
 * its settings. */
struct successor {
	bool system;
	char config[PATH_MAX]; /* "": none */
};

static void successor_read(const char *dir, struct successor *ret)
{
	char path[PATH_MAX], text[PATH_MAX + 64], *rest = NULL;

	*ret = (struct successor){0};
	snprintf(path, sizeof(path), "%s/lock", dir);
	if (file_read(path, text, sizeof(text)) <= 0)
		return;
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		if (!strcmp(line, "system"))
			ret->system = true;
		if (!strncmp(line, "config ", strlen("config ")))
			snprintf(ret->config, sizeof(ret->config), "%s", line + strlen("config "));
	}
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
	service_like_begin();
	if (chdir("/") < 0)
		_exit(1);
	char *arguments[] = {"carved",      "--runtime-dir",   (char *)dir, "--ready-fd", number,
			     "--idle-exit", IDLE_EXIT_SECONDS, NULL,        NULL,         NULL,
			     NULL};
	size_t count = 7;
	if (successor.system)
		arguments[count++] = "--system";
	if (*successor.config) {
		arguments[count++] = "--config";
		arguments[count++] = successor.config;
	}
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
	/* Whatever the umask is. */
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
