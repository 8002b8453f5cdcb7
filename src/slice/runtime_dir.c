#include "slice/runtime_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
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
#include "base/trust.h"

/* A daemon that does not come to accepting holds nobody up for longer. */
#define CONNECT_TIMEOUT_S 5

/* A user's name, or the number of one without. Returns buf or the entry's own text. */
static const char *user_name(uid_t uid, char buf[static 16])
{
	const struct passwd *user = getpwuid(uid); // NOLINT(concurrency-mt-unsafe): one thread

	snprintf(buf, 16, "%u", (unsigned)uid);
	return user ? user->pw_name : buf;
}

/* Returns -EPERM. */
static int foreign_hint(struct error *err)
{
	if (secure_getenv("SIMGPU_HOST"))
		error_hint(err, "a simulated host is its owner's, unless started with carve sim "
				"--shared: join that one with carve sim --join DIR -- CMD");
	else
		error_hint(err, "unset CARVE_HOST and CARVE_RUNTIME_DIR, or set the latter to a "
				"directory of your own; a simulated host of your own: carve sim");
	return -EPERM;
}

/* The directory, or what it would be in, is another user's. */
static int foreign_error(const char *dir, uid_t owner, struct error *err)
{
	char number[16];

	error_set(err, EXIT_CODE_NOT_PERMITTED,
		  "the daemon's directory %.200s belongs to user %.64s: you cannot use it", dir,
		  user_name(owner, number));
	return foreign_hint(err);
}

/* The server cannot be told from those of other users here. */
static int unknown_error(const char *path, struct error *err)
{
	error_set(
		err, EXIT_CODE_NOT_PERMITTED,
		"nobody can tell in this user namespace whose daemon is at %.200s: carve believes "
		"one at " RUNTIME_DIR_SYSTEM " only",
		path);
	error_hint(err, "run it outside of the namespace, or unset CARVE_HOST and "
			"CARVE_RUNTIME_DIR");
	return -EPERM;
}

/* ---- connecting -------------------------------------------------------------------------- */

void runtime_silent_hint(const char *path, struct error *err)
{
	static const char system[] = RUNTIME_DIR_SYSTEM "/";

	if (strncmp(path, system, sizeof(system) - 1) != 0)
		error_hint(err, "is carved running there? `carve check` looks");
	else
		error_hint(err,
			   "as root: systemctl start carved.service; journalctl -u carved says "
			   "why it ended; without systemd: carved --system");
}

static int connect_error(const char *path, int error, struct error *err)
{
	error_set(err, EXIT_CODE_UNREACHABLE, "no daemon answers at %.200s%s%s", path,
		  error == ECONNREFUSED || error == ENOENT ? "" : ": ",
		  error == ECONNREFUSED || error == ENOENT ? "" : strerrordesc_np(error));
	runtime_silent_hint(path, err);
	return -error;
}

/* Looks at the directory, before a connection is made. 0, or negative with *err set. */
static int runtime_check_place(const char *path, struct error *err)
{
	char dir[PATH_MAX];
	uid_t uid = 0;

	int rc = server_directory_check(path, 0, &uid);
	if (rc == -SERVER_UNKNOWN)
		return unknown_error(path, err);
	if (rc != -EPERM)
		return 0;
	snprintf(dir, sizeof(dir), "%s", path);
	// NOLINTNEXTLINE(concurrency-mt-unsafe): glibc's dirname() changes the caller's text alone
	return foreign_error(dirname(dir), uid, err);
}

/* Looks at who listens. 0, or negative with *err set. */
static int runtime_check_server(int fd, const char *path, struct error *err)
{
	char number[16];
	uid_t uid = 0;
	int rc = server_check(fd, path, 0, &uid);

	if (rc == 0)
		return 0;
	if (rc == -SERVER_UNKNOWN)
		return unknown_error(path, err);
	if (rc != -EPERM)
		return connect_error(path, -rc, err);
	error_set(err, EXIT_CODE_NOT_PERMITTED,
		  "the daemon at %.200s is user %.64s's: carve believes root's and your own only",
		  path, user_name(uid, number));
	return foreign_hint(err);
}

int runtime_connect(const char *path, int type, struct error *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct timeval patience = {.tv_sec = CONNECT_TIMEOUT_S};
	cleanup_close int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return connect_error(path, errno, err);
	if (snprintf(address.sun_path, sizeof(address.sun_path), "%s", path) >=
	    (int)sizeof(address.sun_path))
		return connect_error(path, ENAMETOOLONG, err);
	int rc = runtime_check_place(path, err);
	if (rc < 0)
		return rc;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return connect_error(path, errno, err);
	patience.tv_sec = 0;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	rc = runtime_check_server(fd, path, err);
	return rc < 0 ? rc : steal_fd(&fd);
}

bool runtime_socket_answers(const char *path)
{
	struct error ignored;
	cleanup_close int fd = runtime_connect(path, SOCK_STREAM, &ignored);

	return fd >= 0;
}

pid_t runtime_socket_pid(const char *path)
{
	struct error ignored;
	cleanup_close int fd = runtime_connect(path, SOCK_STREAM, &ignored);
	struct ucred peer = {0};
	socklen_t size = sizeof(peer);

	if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return 0;
	return peer.pid;
}

/* ---- the directory ----------------------------------------------------------------------- */

int runtime_dir_choose(char *buf, size_t size, struct error *err)
{
	const char *named = secure_getenv("CARVE_RUNTIME_DIR");
	int rc = 0;

	/* Each working directory would have a daemon of its own. */
	if (named && *named && *named != '/') {
		error_set(err, EXIT_CODE_USAGE, "CARVE_RUNTIME_DIR: %.200s is no absolute path",
			  named);
		error_hint(err, "for example: CARVE_RUNTIME_DIR=/tmp/carve-mine, or unset it");
		return -EXIT_CODE_USAGE;
	}
	if (named && *named)
		rc = snprintf(buf, size, "%s", named) < (int)size ? 0 : -ENAMETOOLONG;
	else if (runtime_socket_answers(RUNTIME_DIR_SYSTEM "/" RUNTIME_SOCKET))
		rc = snprintf(buf, size, "%s", RUNTIME_DIR_SYSTEM) < (int)size ? 0 : -ENAMETOOLONG;
	else if (installed_for_all())
		rc = -EHOSTDOWN;
	else
		rc = installed_user_dir(buf, size);
	if (rc == 0)
		return 0;
	if (rc == -EHOSTDOWN) {
		error_set(err, EXIT_CODE_UNREACHABLE,
			  "the system daemon, which has this host's GPUs, does not answer "
			  "at " RUNTIME_DIR_SYSTEM "/" RUNTIME_SOCKET);
		runtime_silent_hint(RUNTIME_DIR_SYSTEM "/" RUNTIME_SOCKET, err);
		return -EXIT_CODE_UNREACHABLE;
	}
	error_set(err, EXIT_CODE_FAILED, "the runtime directory's path is too long for a socket");
	error_hint(err, "set CARVE_RUNTIME_DIR to a shorter one");
	return -EXIT_CODE_FAILED;
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
	bool made = mkdir(dir, 0700) == 0;
	int error = made || errno == EEXIST ? 0 : errno;
	/* The mode does not depend on the umask. */
	if (made)
		(void)fchmodat(AT_FDCWD, dir, 0700, AT_SYMLINK_NOFOLLOW);
	int rc = nearest_stat(dir, &st);

	if ((error == EACCES || !error) && rc == 0 && !trust_uid_is_own(st.st_uid))
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
