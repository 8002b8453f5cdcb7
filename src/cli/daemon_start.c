#include "cli/daemon_start.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "cli/isolation.h"
#include "cli/places.h"
#include "cli/runtime_dir.h"
#include "cli/slice_env.h"

#define START_TIMEOUT_MS 10000
/* How long a daemon that was started at the same time may take to listen after ours gave way. */
#define RIVAL_TIMEOUT_MS 3000
#define RETRY_MS 20
/* Seconds without sessions and requests after which the daemon goes away by itself. */
#define IDLE_EXIT_SECONDS "60"

static long long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* In the grandchild: becomes the daemon. */
_Noreturn static void daemon_become(const struct places *places, const char *dir, int ready_fd)
{
	char log[PATH_MAX], number[16];
	sigset_t none;

	snprintf(log, sizeof(log), "%s/carved.log", dir);
	snprintf(number, sizeof(number), "%d", ready_fd);
	int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
	int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (in < 0 || out < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
		_exit(1);
	/* Descriptors of the caller (a pipe somebody waits on) must not live as long as the daemon.
	 */
	close_range(3, (unsigned)ready_fd - 1, 0);
	close_range((unsigned)ready_fd + 1, ~0u, 0);
	slice_env_leave(places);
	unsetenv("LD_PRELOAD");
	unsetenv("CARVE_HOST");
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (chdir("/") < 0)
		_exit(1);
	execl(places->daemon, "carved", "--runtime-dir", dir, "--ready-fd", number, "--idle-exit",
	      IDLE_EXIT_SECONDS, (char *)NULL);
	fprintf(stderr, "carved: cannot start %s: %s\n", places->daemon, strerrordesc_np(errno));
	_exit(127);
}

/* Starts it as nobody's child, so that nobody has to wait for it. */
static int daemon_spawn(const struct places *places, const char *dir, int ready_fd)
{
	pid_t child = fork();
	int status;

	if (child < 0)
		return -errno;
	if (child == 0) {
		setsid();
		pid_t daemon = fork();

		if (daemon == 0)
			daemon_become(places, dir, ready_fd);
		_exit(daemon < 0);
	}
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return status ? -EAGAIN : 0;
}

/* Whether the daemon said that it listens; false when it ended (or took too long) without. */
static bool ready_wait(int fd)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	char byte;

	return poll(&ready, 1, START_TIMEOUT_MS) > 0 && read(fd, &byte, 1) == 1;
}

static int start_error(const char *dir, struct error *err)
{
	char path[PATH_MAX], text[4096] = "";

	snprintf(path, sizeof(path), "%s/carved.log", dir);
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
	off_t from = size > (off_t)sizeof(text) - 1 ? size - (off_t)sizeof(text) + 1 : 0;
	ssize_t n = fd < 0 ? 0 : pread(fd, text, sizeof(text) - 1, from);
	while (n > 0 && text[n - 1] == '\n')
		text[--n] = '\0';
	const char *last = strrchr(text, '\n');
	last = last ? last + 1 : text;
	if (!strncmp(last, "carved: ", 8))
		last += 8;
	error_set(err, EXIT_CODE_UNREACHABLE, "cannot start carved%s%.400s", *last ? ": " : "",
		  last);
	error_hint(err, "its log is %.200s", path);
	return -EXIT_CODE_UNREACHABLE;
}

int daemon_start(const char *dir, const char *socket, struct error *err)
{
	struct places places;
	int pipe_fds[2];
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
	if (pipe(pipe_fds) < 0)
		return error_set(err, EXIT_CODE_UNREACHABLE, "cannot start carved: %s",
				 strerrordesc_np(errno));
	cleanup_close int ready = pipe_fds[0];
	rc = daemon_spawn(&places, dir, pipe_fds[1]);
	close(pipe_fds[1]);
	if (rc < 0)
		return error_set(err, EXIT_CODE_UNREACHABLE, "cannot start carved: %s",
				 strerrordesc_np(-rc));
	long long deadline = now_ms() + (ready_wait(ready) ? START_TIMEOUT_MS : RIVAL_TIMEOUT_MS);
	while (!runtime_socket_answers(socket)) {
		if (now_ms() > deadline)
			return start_error(dir, err);
		nanosleep(&(struct timespec){.tv_nsec = RETRY_MS * 1000000L}, NULL);
	}
	return 0;
}
