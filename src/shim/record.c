#include "shim/record.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

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
	return file_replace(path, temporary, text, strlen(text), 0644);
}

bool record_exists(const struct record_place *place, const char *suffix)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%s/%s%s", place->dir, place->name, suffix) <
		       PATH_MAX &&
	       access(path, F_OK) == 0;
}
