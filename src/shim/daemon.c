/* The user's own daemon, which the shim outlives, and starts anew where it was killed. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "shim/shim.h"

/* From one start of a daemon to the next: one that ends so often has a reason. */
#define REVIVE_EVERY_NS 3000000000ull
/* Shims of one daemon look one after the other, so that one starts it and the others find it. */
#define REVIVE_APART_NS 5000000ull
#define REVIVE_PLACES 20

static void runtime_of(const struct shim *shim, char buf[static PATH_MAX])
{
	const char *slash = strrchr(shim->spec.attach, '/');

	snprintf(buf, PATH_MAX, "%.*s", slash ? (int)(slash - shim->spec.attach) : 0,
		 shim->spec.attach);
}

bool shim_runtime_is_mine(const struct shim *shim)
{
	char runtime[PATH_MAX];
	struct stat st;

	runtime_of(shim, runtime);
	return stat(runtime, &st) == 0 && st.st_uid == geteuid();
}

void shim_daemon_revive(const struct shim *shim)
{
	char dir[PATH_MAX], carve[PATH_MAX + 8], runtime[PATH_MAX];

	runtime_of(shim, runtime);
	if (!shim_runtime_is_mine(shim))
		return;
	pid_t child = executable_dir(dir, sizeof(dir)) == 0 ? fork() : -1;

	if (child != 0) {
		while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
			;
		return;
	}
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int fd = 0; fd < 3; fd++)
		(void)dup2(null, fd);
	pthread_sigmask(SIG_SETMASK, &shim->mask, NULL);
	// NOLINTNEXTLINE(concurrency-mt-unsafe): a child of one thread
	setenv("CARVE_RUNTIME_DIR", runtime, 1);
	snprintf(carve, sizeof(carve), "%s/carve", dir);
	execl(carve, "carve", "queue", "list", NULL);
	execlp("carve", "carve", "queue", "list", NULL);
	_exit(EXIT_CODE_FAILED);
}

/* The process that serves the attach socket; 0: none does; -1: not known. */
static pid_t daemon_ask(const struct shim *shim)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	cleanup_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (fd < 0 || strlen(shim->spec.attach) >= sizeof(address.sun_path))
		return -1;
	memcpy(address.sun_path, shim->spec.attach, strlen(shim->spec.attach));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return errno == EAGAIN ? -1 : 0;
	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : -1;
}

/* Likewise. The daemon whose child this process is need not be asked. */
static pid_t daemon_pid(const struct shim *shim)
{
	bool parent = shim->spec.run.daemon > 1 && shim->spec.run.daemon == getppid();

	return parent ? shim->spec.run.daemon : daemon_ask(shim);
}

bool shim_daemon_is_unreachable(const struct shim *shim)
{
	return daemon_pid(shim) == 0;
}

/* One that ends in order leaves its lock's file empty: somebody wants it so. One that is only about
 * to serve has the lock. */
static bool daemon_was_killed(const struct shim *shim)
{
	char runtime[PATH_MAX], lock[PATH_MAX + 8];
	struct stat st;

	runtime_of(shim, runtime);
	snprintf(lock, sizeof(lock), "%s/lock", runtime);
	cleanup_close int fd = open(lock, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0 &&
	       flock(fd, LOCK_SH | LOCK_NB) == 0;
}

bool shim_host_is_gone(void)
{
	const char *host = secure_getenv("SIMGPU_HOST");

	return host && access(host, F_OK) < 0 && errno == ENOENT;
}

void shim_daemon_look(struct shim *shim)
{
	pid_t pid = daemon_pid(shim);

	if (pid == 0 && shim_host_is_gone() && shim->stage == STAGE_RUNNING) {
		shim->why = "cancelled";
		shim_stage_next(shim, now_monotonic_ns());
	}

	shim->revive_ns = UINT64_MAX;
	if (pid == 0 && daemon_was_killed(shim)) {
		shim_daemon_revive(shim);
		pid = daemon_pid(shim);
	}
	shim->daemon = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	if (shim->daemon < 0)
		shim->revive_ns = now_monotonic_ns() + REVIVE_EVERY_NS;
}

void shim_daemon_ended(struct shim *shim)
{
	close_fd(&shim->daemon);
	shim->revive_ns =
		now_monotonic_ns() + (uint64_t)(getpid() % REVIVE_PLACES) * REVIVE_APART_NS;
}
