#include "container/json_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"

static int file_error(const char *verb, const char *path, int error, struct error *err)
{
	error_set(err, EXIT_CODE_FAILED, "cannot %s %.300s: %s", verb, path,
		  strerrordesc_np(error));
	return -error;
}

static int path_make(char path[static PATH_MAX], const char *dir, const char *prefix,
		     const char *name, const char *suffix, struct error *err)
{
	if (snprintf(path, PATH_MAX, "%s/%s%s%s", dir, prefix, name, suffix) >= PATH_MAX)
		return file_error("name", dir, ENAMETOOLONG, err);
	return 0;
}

int json_file_write(const char *dir, const char *name, const json_t *json, mode_t mode,
		    struct error *err)
{
	char path[PATH_MAX], temporary[PATH_MAX];
	cleanup_free char *text = json_dumps(json, JSON_INDENT(1));
	int rc = path_make(path, dir, "", name, ".json", err);

	/* Readers of these directories take *.json. */
	if (rc == 0)
		rc = path_make(temporary, dir, ".", name, ".new", err);
	if (rc < 0)
		return rc;
	rc = text ? file_replace(path, temporary, text, strlen(text), mode) : -ENOMEM;
	return rc < 0 ? file_error("write", path, -rc, err) : 0;
}

int json_file_make(const char *dir, const char *name, const json_t *json, mode_t mode,
		   struct error *err)
{
	char path[PATH_MAX];
	cleanup_free char *text = json_dumps(json, JSON_COMPACT);
	int rc = path_make(path, dir, "", name, ".json", err);

	if (rc < 0)
		return rc;
	cleanup_close int fd =
		open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
	rc = fd < 0 ? -errno : text ? write_all(fd, text, strlen(text)) : -ENOMEM;
	return rc < 0 ? file_error("write", path, -rc, err) : 0;
}

struct reading {
	int fd;
	size_t left;
};

static size_t part_read(void *buf, size_t size, void *arg)
{
	struct reading *reading = arg;
	ssize_t n = read_all(reading->fd, buf, size);

	if (n < 0 || (size_t)n > reading->left)
		return (size_t)-1;
	reading->left -= (size_t)n;
	return (size_t)n;
}

json_t *json_fd_load(int fd, size_t most, size_t flags)
{
	struct reading reading = {fd, most};

	return json_load_callback(part_read, &reading, flags, NULL);
}

int json_file_read(const char *dir, const char *name, json_t **ret, struct error *err)
{
	char path[PATH_MAX];
	int rc = path_make(path, dir, "", name, ".json", err);

	if (rc < 0)
		return rc;
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 && errno == ENOENT)
		return -ENOENT;
	if (fd < 0)
		return file_error("read", path, errno, err);
	*ret = json_fd_load(fd, JSON_FILE_MAX, 0);
	return *ret ? 0 : file_error("read", path, EINVAL, err);
}

int json_file_remove(const char *dir, const char *name, struct error *err)
{
	char path[PATH_MAX];
	int rc = path_make(path, dir, "", name, ".json", err);

	if (rc < 0)
		return rc;
	return unlink(path) == 0 || errno == ENOENT ? 0 : file_error("remove", path, errno, err);
}
