#include "cli/events/cursor.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "cli/user_dir.h"

/* The file always has as many bytes, so that it is written in place: within one sector of a disk,
 * which is old or new as a whole. A file that is put in its place would not be the locked one. */
#define CURSOR_BYTES 160

static int path_choose(const char *path, const char *name, char ret[static PATH_MAX],
		       struct error *err)
{
	char dir[PATH_MAX];

	if (path) {
		snprintf(ret, PATH_MAX, "%s", path);
		return 0;
	}
	int rc = user_dir_state("", dir);
	if (rc < 0) {
		error_set(err, EXIT_CODE_FAILED, "%s: %s",
			  *dir ? dir : "the user's state directory", user_dir_why(rc));
		error_hint(err, "name a file by --cursor-file FILE");
		return -EXIT_CODE_FAILED;
	}
	snprintf(ret, PATH_MAX, "%.*s%s", PATH_MAX - 32, dir, name);
	return 0;
}

static int failed(const struct cursor *cursor, int rc, struct error *err)
{
	return error_set(err, EXIT_CODE_FAILED, "the cursor file %.300s: %s", cursor->path,
			 strerrordesc_np(-rc));
}

static int in_use(const struct cursor *cursor, struct error *err)
{
	error_set(err, EXIT_CODE_FAILED, "another `carve %s` uses the cursor file %.300s",
		  cursor->verb, cursor->path);
	error_hint(err, "give this one a file of its own: --cursor-file FILE");
	return -EXIT_CODE_FAILED;
}

static int foreign(const struct cursor *cursor, struct error *err)
{
	error_set(err, EXIT_CODE_FAILED, "%.300s is no cursor file of `carve %s`", cursor->path,
		  cursor->verb);
	error_hint(err, "name another file by --cursor-file FILE, or remove this one");
	return -EXIT_CODE_FAILED;
}

/* The name of a new file is on the disk before its contents: else a power cut takes the cursor, and
 * the next reader begins with later ends. */
static int name_sync(const struct cursor *cursor)
{
	char dir[PATH_MAX];
	const char *slash = strrchr(cursor->path, '/');

	snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - cursor->path) : 1,
		 slash ? cursor->path : ".");
	return directory_sync(*dir ? dir : "/");
}

/* An empty file is a new one: a file that was written is never empty. */
static int cursor_read(struct cursor *cursor, struct error *err)
{
	char text[CURSOR_BYTES + 1];
	ssize_t n = read_all(cursor->fd, text, sizeof(text));

	if (n == 0)
		n = name_sync(cursor);
	if (n <= 0)
		return n < 0 ? failed(cursor, (int)n, err) : 0;
	json_t *object = json_loadb(text, (size_t)n, 0, NULL);
	const char *database = json_string_value(json_object_get(object, "database"));
	const json_t *next = json_object_get(object, "next");
	bool is_cursor = n == CURSOR_BYTES && database && *database && json_is_integer(next) &&
			 json_integer_value(next) > 0 &&
			 strlen(database) < sizeof(cursor->database);

	if (is_cursor) {
		memcpy(cursor->database, database, strlen(database) + 1);
		cursor->next = (uint64_t)json_integer_value(next);
	}
	json_decref(object);
	return is_cursor ? 0 : foreign(cursor, err);
}

int cursor_open(struct cursor *ret, const char *verb, const char *path, const char *name,
		struct error *err)
{
	*ret = (struct cursor){.verb = verb, .fd = -1};
	int rc = path_choose(path, name, ret->path, err);

	if (rc < 0)
		return rc;
	cleanup_close int fd = open(ret->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
	if (fd < 0)
		return failed(ret, -errno, err);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? in_use(ret, err) : failed(ret, -errno, err);
	ret->fd = steal_fd(&fd);
	return cursor_read(ret, err);
}

int cursor_save(const struct cursor *cursor, struct error *err)
{
	char text[CURSOR_BYTES + 1];

	if (cursor->fd < 0)
		return 0;
	int n = snprintf(text, sizeof(text), "{\"database\": \"%s\", \"next\": %llu}",
			 cursor->database, (unsigned long long)cursor->next);
	memset(text + n, ' ', CURSOR_BYTES - (size_t)n);
	text[CURSOR_BYTES - 1] = '\n';
	ssize_t written = pwrite(cursor->fd, text, CURSOR_BYTES, 0);
	int rc = written < 0 || fdatasync(cursor->fd) < 0 ? -errno : 0;
	if (rc == 0 && written < CURSOR_BYTES)
		rc = -ENOSPC;
	return rc < 0 ? failed(cursor, rc, err) : 0;
}
