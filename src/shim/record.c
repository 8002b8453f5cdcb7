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

int record_open(const struct record_place *place)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/%s" SHIM_RECORD, place->dir, place->name) >= PATH_MAX)
		return -ENAMETOOLONG;
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
	return fd < 0 ? -errno : fd;
}

int record_look(const struct record_place *place, int *fd)
{
	char text[4096];
	struct stat st;
	ssize_t n;
	off_t at = 0;

	if (fstat(*fd, &st) < 0 || st.st_nlink)
		return 0;
	(void)mkdir(place->dir, 0700);
	cleanup_close int fresh = record_open(place);
	int rc = fresh < 0 ? fresh : 0;
	for (; rc == 0 && (n = pread(*fd, text, sizeof(text), at)) > 0; at += n)
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
	char path[PATH_MAX], text[16];

	snprintf(text, sizeof(text), "%d", -rc);
	if (snprintf(path, sizeof(path), "%s/%s" SHIM_GIVEN_UP, place->dir, place->name) < PATH_MAX)
		(void)!symlink(text, path);
}

/* After the file itself, whose making is on the disk by then on most file systems: no wait more. */
int record_sync_name(const struct record_place *place)
{
	return directory_sync(place->dir);
}
