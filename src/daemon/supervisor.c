#include "daemon/supervisor.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"

// NOLINTBEGIN(concurrency-mt-unsafe): the environment is read by the one thread and never changed.

#define LISTEN_FDS_FIRST 3

/* Whether the descriptors are meant for this process, and not for one that it was forked from. */
static bool meant_for_us(void)
{
	const char *text = getenv("LISTEN_PID");

	return text && strtol(text, NULL, 10) == getpid();
}

int supervisor_socket(const char *name)
{
	const char *count = getenv("LISTEN_FDS"), *names = getenv("LISTEN_FDNAMES");

	if (!count || !names || !meant_for_us())
		return -1;
	for (long i = 0; i < strtol(count, NULL, 10) && *names; i++) {
		size_t length = strcspn(names, ":");

		if (length == strlen(name) && !strncmp(names, name, length)) {
			int fd = LISTEN_FDS_FIRST + (int)i;

			if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 ||
			    fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
				return -1;
			return fd;
		}
		names += length + (names[length] == ':');
	}
	return -1;
}

void supervisor_tell(const char *state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *path = getenv("NOTIFY_SOCKET");

	if (!path || (*path != '/' && *path != '@') || strlen(path) >= sizeof(address.sun_path))
		return;
	cleanup_close int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	memcpy(address.sun_path, path, strlen(path));
	if (*path == '@')
		address.sun_path[0] = '\0';
	(void)sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT,
		     (struct sockaddr *)&address,
		     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path)));
}

// NOLINTEND(concurrency-mt-unsafe)
