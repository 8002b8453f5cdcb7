#include "cli/job/job_paths.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/macros.h"

static const char *text_of(const json_t *body, const char *key)
{
	const char *text = json_string_value(json_object_get(body, key));

	return text ? text : "";
}

/* In the job's directory. False: it is not known yet. */
static bool path_make(const json_t *body, const char *path, char ret[static PATH_MAX])
{
	const char *cwd = text_of(body, "cwd");

	if (!*path || strchr(path, '%') || (*path != '/' && !*cwd))
		return false;
	int length = *path == '/' ? snprintf(ret, PATH_MAX, "%s", path)
				  : snprintf(ret, PATH_MAX, "%s/%s", cwd, path);
	return length < PATH_MAX;
}

/* A directory has other rights than a file: it can be read, but not as input. */
static int file_look(const char *path, int mode)
{
	struct stat st;

	if (faccessat(AT_FDCWD, path, mode, AT_EACCESS) < 0 || stat(path, &st) < 0)
		return -errno;
	return S_ISDIR(st.st_mode) ? -EISDIR : 0;
}

/* A file that can be written, or a directory in which it can be made. */
static int output_look(char *path)
{
	int rc = file_look(path, W_OK);
	char *slash = strrchr(path, '/');

	if (rc != -ENOENT || !slash)
		return rc;
	slash[slash == path] = '\0';
	return faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) < 0 ? -errno : 0;
}

/* The directory of a file whose name the job's ID is in: that is known, unless it is in the
 * directory's name, too. */
static int output_directory_look(const json_t *body, const char *pattern)
{
	const char *slash = strrchr(pattern, '/');
	char dir[PATH_MAX], path[PATH_MAX];

	if (!slash || slash > strchr(pattern, '%') || slash - pattern >= PATH_MAX)
		return 0;
	snprintf(dir, sizeof(dir), "%.*s", (int)(slash - pattern) + 1, pattern);
	if (!path_make(body, dir, path))
		return 0;
	return faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) < 0 ? -errno : 0;
}

static int refuse(const char *option, const char *path, int rc, struct error *err)
{
	return error_set(err, EXIT_CODE_USAGE, "--%s: %.200s: %s", option, path,
			 strerrordesc_np(-rc));
}

static bool begins_later(const json_t *body)
{
	return json_array_size(json_object_get(body, "after")) || json_object_get(body, "begin") ||
	       json_is_true(json_object_get(body, "hold"));
}

/* Patterns of other batch systems would become a part of the file's name. */
static int pattern_check(const char *option, const char *pattern, struct error *err)
{
	for (const char *at = strchr(pattern, '%'); at; at = strchr(at + 2, '%')) {
		if (at[1] && !isalpha((unsigned char)at[1]))
			continue;
		if (at[1] && strchr("jax", at[1]))
			continue;
		if (!at[1])
			break;
		error_set(err, EXIT_CODE_USAGE, "--%s: '%.200s' has %%%c in it", option, pattern,
			  at[1]);
		error_hint(err, "%%j is the job, %%a its index, %%x its name, and %%%% a %%");
		return -EXIT_CODE_USAGE;
	}
	return 0;
}

int job_paths_check(const json_t *body, struct error *err)
{
	static const char *const outputs[][2] = {{"out", "output"}, {"err", "error"}};
	const char *in = text_of(body, "in");
	char path[PATH_MAX];
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(outputs); i++)
		rc = pattern_check(outputs[i][1], text_of(body, outputs[i][0]), err);
	if (rc < 0 || begins_later(body))
		return rc;
	if (path_make(body, in, path) && (rc = file_look(path, R_OK)) < 0) {
		refuse("input", in, rc, err);
		if (rc == -ENOENT)
			error_hint(err, "if another job makes it, name that one: --after ok:JOB");
		return -EXIT_CODE_USAGE;
	}
	for (size_t i = 0; i < ARRAY_SIZE(outputs); i++) {
		const char *out = text_of(body, outputs[i][0]);

		if (strchr(out, '%'))
			rc = output_directory_look(body, out);
		else if (path_make(body, out, path))
			rc = output_look(path);
		if (rc < 0)
			return refuse(outputs[i][1], out, rc, err);
	}
	return 0;
}
