#include "shim/record.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

static int sync_directory(const char *dir)
{
	cleanup_close int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

static int content_write(const char *path, const char *text)
{
	cleanup_close int fd =
		open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);

	if (fd < 0)
		return -errno;
	int rc = write_all(fd, text, strlen(text));
	if (rc == 0 && fsync(fd) < 0)
		rc = -errno;
	return rc;
}

int record_write(const struct record_place *place, const char *suffix, json_t *object)
{
	char path[PATH_MAX], temporary[PATH_MAX];
	cleanup_free char *text = json_dumps(object, JSON_COMPACT);

	json_decref(object);
	if (!text)
		return -ENOMEM;
	if (snprintf(path, sizeof(path), "%s/%s%s", place->dir, place->name, suffix) >= PATH_MAX ||
	    snprintf(temporary, sizeof(temporary), "%s/%s%s.%d", place->dir, place->name, suffix,
		     (int)getpid()) >= PATH_MAX)
		return -ENAMETOOLONG;
	int rc = content_write(temporary, text);
	if (rc == 0 && rename(temporary, path) < 0)
		rc = -errno;
	if (rc < 0)
		(void)unlink(temporary);
	return rc < 0 ? rc : sync_directory(place->dir);
}

bool record_exists(const struct record_place *place, const char *suffix)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%s/%s%s", place->dir, place->name, suffix) <
		       PATH_MAX &&
	       access(path, F_OK) == 0;
}
