#include "daemon/host/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"
#include "base/socket.h"

// NOLINTBEGIN(concurrency-mt-unsafe): the environment is read before there are threads.

#define LISTEN_FDS_FIRST 3
#define NAME_SIZE 256 /* systemd's own bound is 255 */

static struct {
	int count;   /* descriptors from LISTEN_FDS_FIRST on */
	char *names; /* theirs, with ':' between */
	pid_t parent;
	bool keeps;    /* it has room for descriptors of the daemon */
	char *address; /* NULL: it is not told anything */
	int fd;        /* connected to that; -1: not */
} supervisor = {.fd = -1};

/* Connected once, while the process may: a daemon gives its rights up, and the file of the socket
 * may be removed. */
static void address_connect(void)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	const char *path = supervisor.address;
	size_t length = path ? strlen(path) : 0;

	close_fd(&supervisor.fd);
	if (!length || (*path != '/' && *path != '@') || length >= sizeof(to.sun_path))
		return;
	cleanup_close int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	memcpy(to.sun_path, path, length);
	if (*path == '@')
		to.sun_path[0] = '\0';
	socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
	if (fd >= 0 && connect(fd, (const struct sockaddr *)&to, size) == 0)
		supervisor.fd = steal_fd(&fd);
}

void supervisor_begin(void)
{
	const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
	const char *names = getenv("LISTEN_FDNAMES"), *most = getenv("FDSTORE");
	const char *address = getenv("NOTIFY_SOCKET");
	/* Otherwise they are meant for a process that this one was forked from. */
	bool meant_for_us = pid && count && names && strtol(pid, NULL, 10) == getpid();

	supervisor.parent = getppid();
	supervisor.names = meant_for_us ? strdup(names) : NULL;
	supervisor.count = supervisor.names ? (int)strtol(count, NULL, 10) : 0;
	supervisor.address = address ? strdup(address) : NULL;
	address_connect();
	supervisor.keeps = meant_for_us && supervisor.fd >= 0 && most && strtol(most, NULL, 10) > 0;
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
	unsetenv("FDSTORE");
	unsetenv("NOTIFY_SOCKET");
	for (int i = 0; i < supervisor.count; i++)
		(void)fcntl(LISTEN_FDS_FIRST + i, F_SETFD, FD_CLOEXEC);
}

bool supervisor_is_own(void)
{
	return supervisor.keeps && supervisor_socket(SUPERVISOR_LOCK) >= 0;
}

void supervisor_follow(void)
{
	if (!supervisor_is_own())
		return;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() != supervisor.parent)
		_exit(EXIT_FAILURE); /* it has ended meanwhile */
}

const char *supervisor_address(void)
{
	return supervisor.address;
}

bool supervisor_keeps(void)
{
	return supervisor.keeps;
}

void supervisor_descriptors(void (*cb)(void *arg, const char *name, int fd), void *arg)
{
	const char *names = supervisor.names ? supervisor.names : "";
	char name[NAME_SIZE];

	for (int i = 0; i < supervisor.count && *names; i++) {
		size_t length = strcspn(names, ":");

		snprintf(name, sizeof(name), "%.*s", (int)MIN(length, sizeof(name) - 1), names);
		if (fcntl(LISTEN_FDS_FIRST + i, F_GETFD) >= 0)
			cb(arg, name, LISTEN_FDS_FIRST + i);
		names += length + (names[length] == ':');
	}
}

struct wanted {
	const char *name;
	int fd;
};

static void wanted_take(void *arg, const char *name, int fd)
{
	struct wanted *wanted = arg;

	if (wanted->fd < 0 && !strcmp(name, wanted->name) && fcntl(fd, F_SETFL, O_NONBLOCK) == 0)
		wanted->fd = fd;
}

int supervisor_socket(const char *name)
{
	struct wanted wanted = {.name = name, .fd = -1};

	supervisor_descriptors(wanted_take, &wanted);
	return wanted.fd;
}

int supervisor_tell_with(const char *state, int fd)
{
	if (supervisor.fd < 0)
		return -ENOENT;
	int rc = descriptors_send(supervisor.fd, state, strlen(state), &fd, fd >= 0);
	if (rc != -ECONNREFUSED)
		return rc;
	/* systemd made its socket anew. */
	address_connect();
	return supervisor.fd < 0
		       ? rc
		       : descriptors_send(supervisor.fd, state, strlen(state), &fd, fd >= 0);
}

void supervisor_tell(const char *state)
{
	(void)supervisor_tell_with(state, -1);
}

int supervisor_fd(void)
{
	return supervisor.fd;
}

// NOLINTEND(concurrency-mt-unsafe)
