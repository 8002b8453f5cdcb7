#include "host/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"

#define PARENT "/tmp"
#define PREFIX "simgpu-"
#define LOCK_NAME "lock"
#define LOCK_NEW_NAME "lock.new"
/* One without a lock is being made, unless it is older than this (seconds). */
#define UNLOCKED_AGE_MAX 60
/* Others may be writing into it while it is removed. */
#define REMOVE_ATTEMPTS 5

static int lock_open(const char *path, const char *name, int flags)
{
	char lock[PATH_MAX + sizeof(LOCK_NEW_NAME)];

	snprintf(lock, sizeof(lock), "%s/%s", path, name);
	int fd = open(lock, flags | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
	return fd < 0 ? -errno : fd;
}

/* The lock gets its name when it is held: another host's sweep would take one that isn't for a dead
 * host's. */
static int lock_make(const char *path)
{
	char from[PATH_MAX + sizeof(LOCK_NEW_NAME)], to[PATH_MAX + sizeof(LOCK_NAME)];
	cleanup_close int fd = lock_open(path, LOCK_NEW_NAME, O_CREAT | O_EXCL);

	if (fd < 0)
		return fd;
	snprintf(from, sizeof(from), "%s/" LOCK_NEW_NAME, path);
	snprintf(to, sizeof(to), "%s/" LOCK_NAME, path);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0 || rename(from, to) < 0)
		return -errno;
	return steal_fd(&fd);
}

int directory_make(struct directory *ret)
{
	snprintf(ret->path, sizeof(ret->path), "%s/%sXXXXXX", PARENT, PREFIX);
	if (!mkdtemp(ret->path))
		return -errno;
	ret->lock_fd = lock_make(ret->path);
	if (ret->lock_fd < 0) {
		directory_remove(ret->path);
		return ret->lock_fd;
	}
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	remove(path); /* a file that stays is tried again */
	return 0;
}

static int open_up_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	if (type == FTW_D || type == FTW_DNR)
		chmod(path, 0700);
	return 0;
}

int directory_remove(const char *path)
{
	for (int i = 0; i < REMOVE_ATTEMPTS; i++) {
		nftw(path, open_up_one, 16, FTW_PHYS);
		nftw(path, remove_one, 16, FTW_PHYS | FTW_DEPTH);
		if (access(path, F_OK) < 0)
			return 0;
	}
	return -ENOTEMPTY;
}

static bool directory_dead(const char *path)
{
	struct stat st;

	if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid())
		return false;
	cleanup_close int fd = lock_open(path, LOCK_NAME, 0);
	if (fd < 0)
		return time(NULL) - st.st_mtime > UNLOCKED_AGE_MAX;
	return flock(fd, LOCK_EX | LOCK_NB) == 0;
}

void directory_sweep(void)
{
	DIR *parent = opendir(PARENT);
	struct dirent *entry;
	char path[PATH_MAX];

	if (!parent)
		return;
	while ((entry = readdir(parent))) {
		if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s", PARENT, entry->d_name);
		if (directory_dead(path))
			directory_remove(path);
	}
	closedir(parent);
}
