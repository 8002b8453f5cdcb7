#include "shim/record.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "proto/shim.h"

static bool file_name(const struct record_place *place, const char *suffix,
		      char ret[static NAME_MAX])
{
	return snprintf(ret, NAME_MAX, "%s%s", place->name, suffix) < NAME_MAX;
}

/* A file of this user's that has no other name. */
static bool is_own(int fd)
{
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	       st.st_nlink == 1;
}

static int file_make(const struct record_place *place, const char *name, mode_t mode)
{
	int fd = openat(place->dir_fd, name,
			O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);

	return fd < 0 ? -errno : fd;
}

int record_file_open(const struct record_place *place, const char *suffix, mode_t mode)
{
	char name[NAME_MAX];

	if (!file_name(place, suffix, name))
		return -ENAMETOOLONG;
	int rc = file_make(place, name, mode);
	if (rc != -EEXIST)
		return rc;
	cleanup_close int fd = openat(place->dir_fd, name,
				      O_RDWR | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	int error = fd < 0 ? errno : EPERM;
	if (is_own(fd))
		return steal_fd(&fd);
	return unlinkat(place->dir_fd, name, 0) < 0 ? -error : file_make(place, name, mode);
}

void record_file_remove(const struct record_place *place, const char *suffix)
{
	char name[NAME_MAX];

	if (file_name(place, suffix, name))
		(void)unlinkat(place->dir_fd, name, 0);
}

int record_directory_renew(struct record_place *place)
{
	struct stat st;

	(void)mkdir(place->dir, 0700);
	cleanup_close int fd = open(place->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	/* The launcher has made it, and has not given it to the user yet. */
	if (st.st_uid != geteuid())
		return -ENOENT;
	/* The number stays: descriptors that this process had from its start are known. */
	return dup3(fd, place->dir_fd, O_CLOEXEC) < 0 ? -errno : 0;
}

int record_open(const struct record_place *place)
{
	record_file_remove(place, SHIM_RECORD);
	return record_file_open(place, SHIM_RECORD, 0644);
}

int record_look(struct record_place *place, int *fd)
{
	char text[4096];
	struct stat st;
	ssize_t n;
	off_t at = 0;

	if (fstat(*fd, &st) < 0 || st.st_nlink)
		return 0;
	int rc = record_open(place);
	if (rc == -ENOENT && (rc = record_directory_renew(place)) == 0)
		rc = record_open(place);
	cleanup_close int fresh = rc;
	for (; rc >= 0 && (n = pread(*fd, text, sizeof(text), at)) > 0; at += n)
		rc = write_all(fresh, text, (size_t)n);
	if (rc < 0)
		return rc;
	close_fd(fd);
	*fd = steal_fd(&fresh);
	return 0;
}

int record_add(int fd, json_t *object, bool synced)
{
	cleanup_free char *text = json_dumps(object, JSON_COMPACT), *line = NULL;
	struct stat before;

	json_decref(object);
	/* A line that is not whole, of a disk that was full, ends where this one begins. */
	if (!text || asprintf(&line, "\n%s\n", text) < 0)
		return -ENOMEM;
	if (fstat(fd, &before) < 0)
		return -errno;
	int rc = write_all(fd, line, strlen(line));
	if (rc == 0 && synced && fdatasync(fd) < 0)
		rc = -errno;
	if (rc < 0)
		(void)!ftruncate(fd, before.st_size);
	return rc;
}

void record_clear(int fd)
{
	if (ftruncate(fd, 0) == 0)
		(void)fdatasync(fd);
}

void record_give_up(const struct record_place *place, int rc)
{
	char name[NAME_MAX], text[16];

	snprintf(text, sizeof(text), "%d", -rc);
	if (file_name(place, SHIM_GIVEN_UP, name))
		(void)!symlinkat(text, place->dir_fd, name);
}

/* After the file itself, whose making is on the disk by then on most file systems: no wait more. */
int record_sync_name(const struct record_place *place)
{
	return fsync(place->dir_fd) < 0 ? -errno : 0;
}
