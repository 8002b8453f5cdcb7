/* Which program a guard may become: only one that its worker cannot have put there. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "guard/guard.h"

#define NAME "carved"

static bool is_trusted(const struct stat *st, uid_t owner)
{
	return st->st_uid == 0 || st->st_uid == owner;
}

/* Nobody else may write to it, or replace what is in it. In a directory with the sticky bit, as
 * /tmp, a user may replace only files of that user. */
static bool directory_is_safe(const struct stat *st, uid_t owner)
{
	return S_ISDIR(st->st_mode) && is_trusted(st, owner) &&
	       (!(st->st_mode & (S_IWGRP | S_IWOTH)) || st->st_mode & S_ISVTX);
}

/* All directories above, and that no part of the path is a link: each part is opened in the one
 * before. The file itself, or -errno. */
static int path_open(const char *path, uid_t owner)
{
	char part[NAME_MAX + 1];
	struct stat st;
	cleanup_close int at = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	while (at >= 0) {
		path += strspn(path, "/");
		size_t length = strcspn(path, "/");

		if (fstat(at, &st) < 0 || !directory_is_safe(&st, owner) || !length ||
		    length > NAME_MAX)
			return -EPERM;
		snprintf(part, sizeof(part), "%.*s", (int)length, path);
		path += length;
		int next = openat(at, part, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		if (!*path)
			return next < 0 ? -errno : next;
		close_fd(&at);
		at = next;
	}
	return -errno;
}

static bool is_called_carved(const char *path)
{
	const char *name = strrchr(path, '/');

	return name && !strcmp(name + 1, NAME);
}

int guard_program_open(pid_t worker)
{
	char link[64], path[PATH_MAX];
	struct stat own, its, found;

	snprintf(link, sizeof(link), "/proc/%d/exe", (int)worker);
	ssize_t n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0 || stat(link, &its) < 0 || stat("/proc/self/exe", &own) < 0)
		return -errno;
	path[n] = '\0';
	if (!is_called_carved(path))
		return -EPERM;
	cleanup_close int fd = path_open(path, own.st_uid);
	if (fd < 0)
		return fd;
	/* The file that lies there now is the one that the worker runs, and only root (or the owner
	 * of this program) may write to it. */
	if (fstat(fd, &found) < 0 || found.st_dev != its.st_dev || found.st_ino != its.st_ino ||
	    !S_ISREG(found.st_mode) || !is_trusted(&found, own.st_uid) ||
	    found.st_mode & (S_IWGRP | S_IWOTH))
		return -EPERM;
	return steal_fd(&fd);
}
