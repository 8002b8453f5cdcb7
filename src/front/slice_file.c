#include "front/slice_file.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"
#include "base/trust.h"
#include "front/lock.h"
#include "proto/attach.h"

static const char *const directories[] = {ATTACH_SLICE_DIRS};

static struct lock lock;
static bool is_read, exists;
/* Lines, each ended by NUL; an empty one ends the last. */
static char lines[ATTACH_SLICE_FILE_SIZE + 1];

/* False: it cannot be read, or does not fit. */
static bool file_take(int fd)
{
	size_t length = 0;
	ssize_t n;

	do {
		n = read(fd, lines + length, sizeof(lines) - 1 - length);
		length += n > 0 ? (size_t)n : 0;
	} while ((n > 0 && length < sizeof(lines) - 1) || (n < 0 && errno == EINTR));
	lines[n == 0 ? length : 0] = '\0';
	return n == 0;
}

static void file_load(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(directories) && !exists; i++) {
		cleanup_close int fd = file_open_trusted(directories[i], ATTACH_SLICE_FILE);

		exists = fd >= 0 && file_take(fd);
	}
	for (char *end = lines; (end = strchr(end, '\n')); end++)
		*end = '\0';
	is_read = true;
}

bool slice_file_exists(void)
{
	lock_acquire(&lock);
	if (!is_read)
		file_load();
	lock_release(&lock);
	return exists;
}

const char *slice_file_get(const char *name)
{
	size_t length = strlen(name);

	if (!slice_file_exists())
		return NULL;
	for (const char *line = lines; *line; line += strlen(line) + 1)
		if (strncmp(line, name, length) == 0 && line[length] == '=')
			return line + length + 1;
	return NULL;
}
