/* The user's own daemon, which the shim outlives. Its supervisor starts it again. */
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
#include "base/simulated_host.h"
#include "shim/shim.h"

/* Where no daemon is there, its simulated host may have ended. */
#define LOOK_EVERY_NS 3000000000ull

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

void shim_daemon_look(struct shim *shim)
{
	pid_t pid = daemon_pid(shim);

	if (pid == 0 && simulated_host_is_gone() && shim->stage == STAGE_RUNNING) {
		shim->why = "cancelled";
		shim_stage_next(shim, now_monotonic_ns());
	}

	shim->look_ns = UINT64_MAX;
	shim->daemon = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	if (shim->daemon < 0)
		shim->look_ns = now_monotonic_ns() + LOOK_EVERY_NS;
}

void shim_daemon_ended(struct shim *shim)
{
	close_fd(&shim->daemon);
	shim->look_ns = now_monotonic_ns() + LOOK_EVERY_NS;
}
