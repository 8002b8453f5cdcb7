#include "front/slice_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/file.h"
#include "front/lock.h"
#include "proto/attach.h"

static struct lock lock;
static bool is_read;
/* Lines, each ended by NUL; an empty one ends the last. */
static char lines[ATTACH_SLICE_FILE_SIZE + 1];

static void file_load(void)
{
	if (file_read(ATTACH_SLICE_FILE, lines, sizeof(lines) - 1) < 0)
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
