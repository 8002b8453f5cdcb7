#include "daemon/host/sole.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/fnv.h"

#define BACKLOG 16
/* A daemon that does not look at its files within this time has the directory all the same. */
#define LOOK_PATIENCE_MS 5000
/* Another user who took the name and accepts nobody costs a start this much. */
#define CONNECT_PATIENCE_S 1
/* A daemon that looked at its files may end there and then; one that was killed may be about to. */
#define TRIES 20
#define PAUSE_NS 10000000L

/* By the directory above, which stays: the same path is another directory in another mount
 * namespace and below another root. 0 or -errno. */
static int name_make(const char *dir, struct sockaddr_un *ret, socklen_t *ret_size)
{
	char path[PATH_MAX];
	struct stat above;

	if (!realpath(dir, path))
		return -errno;
	char *last = strrchr(path, '/');
	/* A directory's name may be longer than a socket's. */
	uint64_t hash = fnv_add(FNV_BASIS, last, strlen(last));

	last[last == path] = '\0';
	if (stat(path, &above) < 0)
		return -errno;
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	int length = snprintf(ret->sun_path + 1, sizeof(ret->sun_path) - 1,
			      "carve-directory-%u-%jx.%jx-%016" PRIx64, (unsigned)geteuid(),
			      (uintmax_t)above.st_dev, (uintmax_t)above.st_ino, hash);
	*ret_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
	return 0;
}

static bool is_trusted(int fd, struct ucred *ret)
{
	socklen_t size = sizeof(*ret);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret, &size) == 0 &&
	       (ret->uid == 0 || ret->uid == geteuid());
}

enum holder { HOLDER_NONE, HOLDER_DAEMON, HOLDER_FOREIGN };

/* Asks the process that has the name to look at its files, and waits until it has. */
static enum holder holder_ask(const struct sockaddr_un *name, socklen_t size, pid_t *ret_pid)
{
	struct timeval patience = {.tv_sec = CONNECT_PATIENCE_S};
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct pollfd looked = {.fd = fd, .events = POLLIN};
	struct ucred peer;

	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(fd, (const struct sockaddr *)name, size) < 0)
		return errno == ECONNREFUSED ? HOLDER_NONE : HOLDER_FOREIGN;
	if (!is_trusted(fd, &peer))
		return HOLDER_FOREIGN;
	*ret_pid = peer.pid;
	(void)poll(&looked, 1, LOOK_PATIENCE_MS);
	return HOLDER_DAEMON;
}

/* A listening descriptor, or -errno. */
static int name_bind(const struct sockaddr_un *name, socklen_t size)
{
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0 || bind(fd, (const struct sockaddr *)name, size) < 0 || listen(fd, BACKLOG) < 0)
		return -errno;
	return steal_fd(&fd);
}

int sole_take(const char *dir, int *ret_fd, struct error *err)
{
	struct sockaddr_un name;
	socklen_t size = 0;
	pid_t pid = 0;
	bool asked = false;

	*ret_fd = -1;
	if (name_make(dir, &name, &size) < 0)
		return 0;
	for (int tries = 0; tries < TRIES; tries++) {
		int fd = name_bind(&name, size);

		if (fd >= 0)
			*ret_fd = fd;
		if (fd != -EADDRINUSE)
			return 0;
		if (!asked) {
			enum holder holder = holder_ask(&name, size, &pid);

			if (holder == HOLDER_FOREIGN)
				return 0;
			asked = holder == HOLDER_DAEMON;
		}
		nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
	}
	return error_set(err, EXIT_CODE_FAILED, "a carved (pid %d) serves %.300s already", (int)pid,
			 dir);
}

int sole_accept(int fd)
{
	cleanup_close int other = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct ucred peer;

	return other >= 0 && is_trusted(other, &peer) ? steal_fd(&other) : -1;
}
