#include "daemon/host/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"
#include "base/socket.h"

// NOLINTBEGIN(concurrency-mt-unsafe): the environment is read by the one thread and never changed.

#define LISTEN_FDS_FIRST 3
#define NAME_SIZE 256 /* systemd's own bound is 255 */

/* Whether the descriptors are meant for this process, and not for one that it was forked from. */
static bool meant_for_us(void)
{
	const char *text = getenv("LISTEN_PID");

	return text && strtol(text, NULL, 10) == getpid();
}

void supervisor_descriptors(void (*cb)(void *arg, const char *name, int fd), void *arg)
{
	const char *count = getenv("LISTEN_FDS"), *names = getenv("LISTEN_FDNAMES");
	char name[NAME_SIZE];

	if (!count || !names || !meant_for_us())
		return;
	for (long i = 0; i < strtol(count, NULL, 10) && *names; i++) {
		size_t length = strcspn(names, ":");
		int fd = LISTEN_FDS_FIRST + (int)i;

		snprintf(name, sizeof(name), "%.*s", (int)MIN(length, sizeof(name) - 1), names);
		if (fcntl(fd, F_SETFD, FD_CLOEXEC) == 0)
			cb(arg, name, fd);
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
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *path = getenv("NOTIFY_SOCKET");

	if (!path || (*path != '/' && *path != '@') || strlen(path) >= sizeof(address.sun_path))
		return -ENOENT;
	cleanup_close int notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (notify < 0)
		return -errno;
	memcpy(address.sun_path, path, strlen(path));
	if (*path == '@')
		address.sun_path[0] = '\0';
	return descriptors_send_to(
		notify, &address,
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path)), state,
		strlen(state), &fd, fd >= 0);
}

void supervisor_tell(const char *state)
{
	(void)supervisor_tell_with(state, -1);
}

bool supervisor_keeps(void)
{
	const char *most = getenv("FDSTORE");

	return getenv("NOTIFY_SOCKET") && most && strtol(most, NULL, 10) > 0;
}

// NOLINTEND(concurrency-mt-unsafe)
