#include "daemon/store/state_jobs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"
#include "proto/warden_jobs.h"

#define JOBS_DIR "jobs"

/* The log of what is not in the database yet belongs to it. Without the shared memory file, which
 * is made anew. */
static const char *const files[] = {"queue.db-wal", "queue.db"};

static int path_of(char path[static PATH_MAX], const char *dir, const char *name)
{
	return snprintf(path, PATH_MAX, "%s/%s", dir, name) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int contents_copy(int from, int to)
{
	char block[65536];
	ssize_t n;
	int rc = 0;

	while (rc == 0 && (n = read(from, block, sizeof(block))) != 0)
		rc = n < 0 ? (errno == EINTR ? 0 : -errno) : write_all(to, block, (size_t)n);
	return rc == 0 && fsync(to) < 0 ? -errno : rc;
}

/* One that is not there is not there afterwards either. */
static int file_copy(const char *from_dir, const char *to_dir, const char *name)
{
	char from_path[PATH_MAX], to_path[PATH_MAX];
	int rc = path_of(from_path, from_dir, name);

	if (rc == 0)
		rc = path_of(to_path, to_dir, name);
	if (rc < 0)
		return rc;
	if (unlink(to_path) < 0 && errno != ENOENT)
		return -errno;
	cleanup_close int from = open(from_path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (from < 0)
		return errno == ENOENT ? 0 : -errno;
	cleanup_close int to =
		open(to_path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	return to < 0 ? -errno : contents_copy(from, to);
}

static int jobs_find(const char *from_dir, const char *to_dir)
{
	char from[PATH_MAX], to[PATH_MAX];
	struct stat st;

	if (path_of(from, from_dir, JOBS_DIR) < 0 || path_of(to, to_dir, JOBS_DIR) < 0)
		return -ENAMETOOLONG;
	if (lstat(from, &st) < 0 || lstat(to, &st) == 0)
		return 0; /* there are none, or they were there before */
	return symlink(from, to) < 0 ? -errno : 0;
}

int state_jobs_move_users(const char *from_dir, const char *to_dir)
{
	char from[PATH_MAX], to[PATH_MAX];
	struct stat st;

	if (snprintf(from, sizeof(from), "%s" WARDEN_JOBS, from_dir) >= (int)sizeof(from) ||
	    snprintf(to, sizeof(to), "%s" WARDEN_JOBS, to_dir) >= (int)sizeof(to))
		return -ENAMETOOLONG;
	if (lstat(from, &st) < 0 || lstat(to, &st) == 0)
		return 0; /* there are none, or they were there before */
	return rename(from, to) < 0 ? -errno : 0;
}

int state_jobs_copy(const char *from, const char *to)
{
	char path[PATH_MAX];
	int rc = path_of(path, from, files[1]);

	/* None here: what the other one has is its own. */
	if (rc == 0 && access(path, F_OK) < 0)
		return 0;
	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(files); i++)
		rc = file_copy(from, to, files[i]);
	if (rc == 0)
		rc = jobs_find(from, to);
	return rc < 0 ? rc : directory_sync(to);
}

void state_jobs_leave(const char *from)
{
	static const char *const all[] = {"queue.db", "queue.db-wal", "queue.db-shm"};
	char path[PATH_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (path_of(path, from, all[i]) == 0)
			(void)unlink(path);
}
