#include "cli/runtime_dir.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
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

/* The directory, or what it would be in, is another user's. */
static int foreign_error(const char *dir, uid_t owner, struct error *err)
{
	const struct passwd *user = getpwuid(owner); // NOLINT(concurrency-mt-unsafe): one thread
	char number[16];

	snprintf(number, sizeof(number), "%u", (unsigned)owner);
	error_set(err, EXIT_CODE_NOT_PERMITTED,
		  "the daemon's directory %.200s belongs to user %.64s: you cannot use it", dir,
		  user ? user->pw_name : number);
	if (getenv("SIMGPU_HOST"))
		error_hint(err, "a simulated host is its owner's, unless started with carve sim "
				"--shared: join that one with carve sim --join DIR -- CMD");
	else
		error_hint(err, "unset CARVE_RUNTIME_DIR, or set it to a directory of your own; a "
				"simulated host of your own: carve sim");
	return -EXIT_CODE_NOT_PERMITTED;
}

/* Looks at the directory, or at the nearest one above it that this user may look at. */
static int nearest_stat(const char *dir, struct stat *ret)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s", dir) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	while (lstat(path, ret) < 0) {
		char *slash = strrchr(path, '/');

		if (errno != EACCES || !slash || slash == path)
			return -errno;
		*slash = '\0';
	}
	return 0;
}

int runtime_dir_make(const char *dir, struct error *err)
{
	struct stat st;
	int error = mkdir(dir, 0700) < 0 && errno != EEXIST ? errno : 0;
	int rc = nearest_stat(dir, &st);

	if ((error == EACCES || !error) && rc == 0 && st.st_uid != geteuid())
		return foreign_error(dir, st.st_uid, err);
	if (error)
		return error_set(err, EXIT_CODE_UNREACHABLE, "cannot make %s: %s", dir,
				 strerrordesc_np(error));
	if (rc < 0)
		return error_set(err, EXIT_CODE_UNREACHABLE, "cannot look at %s: %s", dir,
				 strerrordesc_np(-rc));
	if (S_ISDIR(st.st_mode) && !(st.st_mode & (S_IWGRP | S_IWOTH)))
		return 0;
	error_set(err, EXIT_CODE_NOT_PERMITTED, "%s is not a directory of yours alone", dir);
	if (S_ISDIR(st.st_mode))
		error_hint(err, "chmod 700 it, or set CARVE_RUNTIME_DIR to another one");
	else
		error_hint(err, "remove it, or set CARVE_RUNTIME_DIR to another one");
	return -EXIT_CODE_NOT_PERMITTED;
}
