#include "front/slice_file.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"
#include "front/lock.h"
#include "proto/attach.h"

static const char *const directories[] = {ATTACH_SLICE_DIRS};

static struct lock lock;
static bool is_read;
/* Lines, each ended by NUL; an empty one ends the last. */
static char lines[ATTACH_SLICE_FILE_SIZE + 1];

/* In /run nobody but root makes files. In the other places, which an administrator may have given
 * to others, it has to be root's or this user's own. */
static bool is_trusted(const char *path, bool in_run)
{
	struct statx st;

	return in_run || (statx(AT_FDCWD, path, 0, STATX_UID, &st) == 0 &&
			  (st.stx_uid == 0 || st.stx_uid == geteuid()));
}

static void file_load(void)
{
	char path[ATTACH_SLICE_PATH_SIZE];
	ssize_t n = -1;

	for (size_t i = 0; i < ARRAY_SIZE(directories) && n < 0; i++) {
		snprintf(path, sizeof(path), "%s/" ATTACH_SLICE_FILE, directories[i]);
		if (is_trusted(path, i == 0))
			n = file_read(path, lines, sizeof(lines) - 1);
	}
	if (n < 0)
		lines[0] = '\0';
	for (char *end = lines; (end = strchr(end, '\n')); end++)
		*end = '\0';
	is_read = true;
}

const char *slice_file_get(const char *name)
{
	size_t length = strlen(name);

	lock_acquire(&lock);
	if (!is_read)
		file_load();
	lock_release(&lock);
	for (const char *line = lines; *line; line += strlen(line) + 1)
		if (strncmp(line, name, length) == 0 && line[length] == '=')
			return line + length + 1;
	return NULL;
}
