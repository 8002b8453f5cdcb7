#include "daemon/config_last.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/config.h"

#define LAST_NAME "carved.json.last"

int config_last_keep(const char *path, const char *dir)
{
	char last[PATH_MAX], temporary[PATH_MAX];
	struct config config;
	struct error ignored;
	cleanup_free char *text = malloc(CONFIG_SIZE_MAX);
	cleanup_free char *before = malloc(CONFIG_SIZE_MAX);
	ssize_t size = text && before ? file_read(path, text, CONFIG_SIZE_MAX) : -ENOMEM;

	if (size < 0)
		return (int)size; // NOLINT(clang-analyzer-unix.Malloc): freed by their cleanup
	if (config_parse(text, (size_t)size, &config, &ignored) < 0)
		return -EINVAL;
	snprintf(last, sizeof(last), "%s/" LAST_NAME, dir);
	snprintf(temporary, sizeof(temporary), "%s/" LAST_NAME ".new", dir);
	if (file_read(last, before, CONFIG_SIZE_MAX) == size && !memcmp(before, text, (size_t)size))
		return 0;
	return file_replace(last, temporary, text, (size_t)size, 0600);
}

static char *text_read(const char *path)
{
	cleanup_free char *text = malloc(CONFIG_SIZE_MAX);

	return text && file_read(path, text, CONFIG_SIZE_MAX) >= 0 ? steal_ptr(&text) : NULL;
}

char *config_last_text(const char *dir)
{
	char last[PATH_MAX];

	snprintf(last, sizeof(last), "%s/" LAST_NAME, dir);
	return text_read(last);
}

/* The values of `of` for keys that are others in `than`. */
static void differing_text(json_t *of, const json_t *than, char ret[static CONFIG_CHANGE_SIZE])
{
	json_t *found = json_object(), *value;
	const char *key;

	json_object_foreach(of, key, value)
	{
		if (!json_equal(value, json_object_get(than, key)))
			json_object_set(found, key, value);
	}
	char *text = json_dumps(found, JSON_SORT_KEYS);
	snprintf(ret, CONFIG_CHANGE_SIZE, "%s", text && json_object_size(found) ? text : "");
	free(text);
	json_decref(found);
}

void config_change_text(const char *before, const char *path,
			char ret_before[static CONFIG_CHANGE_SIZE],
			char ret_after[static CONFIG_CHANGE_SIZE])
{
	cleanup_free char *after = text_read(path);
	json_t *old = before ? json_loads(before, 0, NULL) : NULL;
	json_t *new = after ? json_loads(after, 0, NULL) : NULL;

	differing_text(old, new, ret_before);
	differing_text(new, old, ret_after);
	json_decref(old);
	json_decref(new);
}

bool config_last_missing(bool kept, const char *dir)
{
	char last[PATH_MAX];

	snprintf(last, sizeof(last), "%s/" LAST_NAME, dir);
	return kept && access(last, F_OK) < 0;
}

static int last_read(const char *last, struct config *ret, struct stat *st)
{
	struct error ignored;

	return lstat(last, st) == 0 && S_ISREG(st->st_mode) ? config_read(last, ret, &ignored)
							    : -ENOENT;
}

int config_last_read(const char *dir, struct config *ret)
{
	char last[PATH_MAX];
	struct stat st;

	snprintf(last, sizeof(last), "%s/" LAST_NAME, dir);
	int rc = last_read(last, ret, &st);
	if (rc == 0 && st.st_uid != geteuid())
		snprintf(ret->state_dir, sizeof(ret->state_dir), "%s", config_default.state_dir);
	return rc;
}

int config_last_find(const char *state_dir, const char *runtime_dir, struct config *ret)
{
	int rc = config_last_read(state_dir, ret);

	return rc < 0 ? config_last_read(runtime_dir, ret) : rc;
}
