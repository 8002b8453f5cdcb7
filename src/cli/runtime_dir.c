#include "cli/runtime_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"

/* A connection, or -errno. */
static int socket_connect(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (snprintf(address.sun_path, sizeof(address.sun_path), "%s", path) >=
	    (int)sizeof(address.sun_path))
		return -ENAMETOOLONG;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	return steal_fd(&fd);
}

bool runtime_socket_answers(const char *path)
{
	cleanup_close int fd = socket_connect(path);

	return fd >= 0;
}

pid_t runtime_socket_pid(const char *path)
{
	cleanup_close int fd = socket_connect(path);
	struct ucred peer = {0};
	socklen_t size = sizeof(peer);

	if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return 0;
	return peer.pid;
}

int runtime_dir_choose(char *buf, size_t size, struct error *err)
{
	const char *named = getenv("CARVE_RUNTIME_DIR"), *user = getenv("XDG_RUNTIME_DIR");
	int n;

	if (named && *named)
		n = snprintf(buf, size, "%s", named);
	else if (runtime_socket_answers(RUNTIME_DIR_SYSTEM "/" RUNTIME_SOCKET))
		n = snprintf(buf, size, "%s", RUNTIME_DIR_SYSTEM);
	else if (user && *user)
		n = snprintf(buf, size, "%s/carve", user);
	else
		n = snprintf(buf, size, "/tmp/carve-%u", (unsigned)getuid());
	if (n >= 0 && (size_t)n < size)
		return 0;
	error_set(err, EXIT_CODE_FAILED, "the runtime directory's path is too long for a socket");
	error_hint(err, "set CARVE_RUNTIME_DIR to a shorter one");
	return -EXIT_CODE_FAILED;
}

int runtime_dir_make(const char *dir, struct error *err)
{
	struct stat st;

	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return error_set(err, EXIT_CODE_UNREACHABLE, "cannot make %s: %s", dir,
				 strerrordesc_np(errno));
	if (lstat(dir, &st) < 0)
		return error_set(err, EXIT_CODE_UNREACHABLE, "cannot look at %s: %s", dir,
				 strerrordesc_np(errno));
	if (S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & (S_IWGRP | S_IWOTH)))
		return 0;
	error_set(err, EXIT_CODE_NOT_PERMITTED, "%s is not a directory of yours alone", dir);
	error_hint(err, "remove it, or set CARVE_RUNTIME_DIR to another one");
	return -EXIT_CODE_NOT_PERMITTED;
}
