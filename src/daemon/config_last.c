#include "daemon/config_last.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
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
