/* The directory of jobs' files, and those of users in it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/trust.h"
#include "proto/shim.h"
#include "proto/warden_jobs.h"
#include "warden/jobs.h"

/* The directory above, where root alone decides what is called how on the whole way. */
static int above_open(const char *path, char name[static NAME_MAX])
{
	const char *slash = strrchr(path, '/');
	char above[PATH_MAX];

	if (!slash || slash == path || strlen(slash + 1) >= NAME_MAX ||
	    snprintf(above, sizeof(above), "%.*s", (int)(slash - path), path) >= (int)sizeof(above))
		return -EINVAL;
	snprintf(name, NAME_MAX, "%s", slash + 1);
	/* No other user can put something else there. */
	if (!trust_path_is_own(above))
		return -EPERM;
	cleanup_close int fd = open(above, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	return steal_fd(&fd);
}

/* Until this version the directory was in the state directory. A directory of root's alone is there
 * by root's doing: the worker cannot move such a directory to another one. */
static void old_adopt(int above_fd, const char *name, const char *old)
{
	struct stat st;

	if (fstatat(above_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT &&
	    lstat(old, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == 0)
		(void)renameat(AT_FDCWD, old, above_fd, name);
}

int jobs_open(const char *path, const char *old, gid_t gid)
{
	char name[NAME_MAX];
	struct stat st;
	cleanup_close int above = above_open(path, name);

	if (above < 0)
		return above;
	if (old)
		old_adopt(above, name, old);
	if (mkdirat(above, name, 0700) < 0 && errno != EEXIST)
		return -errno;
	cleanup_close int fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_uid != 0 || st.st_mode & (S_IWGRP | S_IWOTH))
		return -EPERM;
	if (fchown(fd, 0, gid) < 0 || fchmod(fd, 0751) < 0)
		return -errno;
	return steal_fd(&fd);
}

/* The worker reads there and no more: what it put there would be the user's shim's to open. */
int jobs_user_directory(const struct jobs_place *place, uid_t uid, char *path, size_t size)
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
	if ((st.st_mode & 07777) != 0750 && fchmod(fd, 0750) < 0)
		return -errno;
	return steal_fd(&fd);
}

int jobs_files_remove(const struct jobs_place *place, uid_t uid, const char *name, uint32_t files)
{
	char user[16];

	snprintf(user, sizeof(user), "%u", uid);
	cleanup_close int fd = open_beneath(place->jobs_fd, user, O_PATH | O_DIRECTORY);
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	shim_files_remove(fd, name, files);
	return 0;
}

int jobs_secrets_open(struct jobs_place *place)
{
	bool fresh = false;
	int rc = rights_open(&place->rights, place->jobs_fd, &fresh);

	if (rc == 0 && fresh)
		rc = warrant_key_forget(place->jobs_fd);
	return rc < 0 ? rc : warrant_key_get(place->jobs_fd, &place->key);
}

int jobs_files_make(struct jobs_place *place, uid_t uid)
{
	char path[PATH_MAX];

	if (!file_is_at(place->jobs_fd, place->jobs_path)) {
		int fd = jobs_open(place->jobs_path, NULL, place->worker_gid);

		if (fd < 0)
			return fd;
		close_fd(&place->jobs_fd);
		place->jobs_fd = fd;
	}
	int rc = rights_keep(&place->rights, place->jobs_fd);
	if (rc == 0)
		rc = warrant_key_keep(place->jobs_fd, &place->key);
	if (rc < 0 || uid == WARDEN_NOBODY)
		return rc;
	cleanup_close int fd = jobs_user_directory(place, uid, path, sizeof(path));
	return fd < 0 ? fd : 0;
}
