/* The directory of jobs' files, and those of users in it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "guard/launcher.h"
#include "proto/launcher.h"

/* Users may pass: the state directory is the worker's. */
static int above_let_pass(int fd)
{
	struct stat st;
	cleanup_close int above = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (above < 0 || fstat(above, &st) < 0 || fchmod(above, (st.st_mode & 07777) | 0011) < 0)
		return -errno;
	return 0;
}

int launcher_jobs_open(const char *path, gid_t gid)
{
	struct stat st;

	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return -errno;
	cleanup_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_uid != 0 || st.st_mode & (S_IWGRP | S_IWOTH))
		return -EPERM;
	if (fchown(fd, 0, gid) < 0 || fchmod(fd, 0751) < 0)
		return -errno;
	int rc = above_let_pass(fd);
	return rc < 0 ? rc : steal_fd(&fd);
}

int launcher_user_directory(const struct launcher_place *place, uid_t uid, char *path, size_t size)
{
	char name[16];
	struct stat st;

	snprintf(name, sizeof(name), "%u", uid);
	if ((size_t)snprintf(path, size, "%s/%s", place->jobs_path, name) >= size)
		return -ENAMETOOLONG;
	if (mkdirat(place->jobs_fd, name, 0700) < 0 && errno != EEXIST)
		return -errno;
	cleanup_close int fd = open_beneath(place->jobs_fd, name, O_RDONLY | O_DIRECTORY);
	if (fd < 0 || fstat(fd, &st) < 0)
		return fd < 0 ? fd : -errno;
	if (st.st_uid != uid && st.st_uid != 0)
		return -EPERM;
	if ((st.st_uid != uid || st.st_gid != place->worker_gid) &&
	    fchown(fd, uid, place->worker_gid) < 0)
		return -errno;
	if ((st.st_mode & 07777) != 0770 && fchmod(fd, 0770) < 0)
		return -errno;
	return 0;
}

int launcher_files_make(struct launcher_place *place, uid_t uid)
{
	char path[PATH_MAX];

	if (!file_is_at(place->jobs_fd, place->jobs_path)) {
		int fd = launcher_jobs_open(place->jobs_path, place->worker_gid);

		if (fd < 0)
			return fd;
		close_fd(&place->jobs_fd);
		place->jobs_fd = fd;
	}
	int rc = warrant_key_keep(place->jobs_fd, &place->key);
	if (rc == 0 && uid != LAUNCHER_NOBODY)
		rc = launcher_user_directory(place, uid, path, sizeof(path));
	return rc;
}
