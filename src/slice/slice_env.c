#include "slice/slice_env.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "proto/attach.h"
#include "slice/driver_find.h"
#include "slice/isolation.h"
#include "slice/places.h"

// NOLINTBEGIN(concurrency-mt-unsafe): a program's environment is set before it is executed, by one
// thread.

/* The separators at which ld.so splits LD_PRELOAD. */
#define PRELOAD_SEPARATORS " :"
/* And LD_LIBRARY_PATH. */
#define PATH_SEPARATORS ":;"

const char *slice_env_session(void)
{
	const char *id = secure_getenv(ATTACH_ENV_SESSION);

	return id && *id ? id : NULL;
}

static bool is_our_library(const struct places *places, const char *entry)
{
	return !strcmp(entry, places->front_cuda) || !strcmp(entry, places->front_nvml) ||
	       isolation_is_front(entry);
}

/* Where our libraries are, with the names by which programs look for the driver's. */
static bool is_our_directory(const struct places *places, const char *entry)
{
	size_t length = strlen(entry);

	return !strncmp(entry, places->front_cuda, length) && length &&
	       places->front_cuda[length] == '/' && !strchr(places->front_cuda + length + 1, '/');
}

/* A list of the user's own in the environment: without what is ours, entries joined by ':'. Owned
 * by the caller; NULL where memory ran out. */
static char *list_of_user(const char *name, const char *separators, const struct places *places,
			  bool (*is_ours)(const struct places *places, const char *entry))
{
	const char *now = secure_getenv(name);
	char *text = strdup(now ? now : ""), *end = text, *state;

	if (!text)
		return NULL;
	/* Kept entries move to the front of the same text: `end` never passes what is still to
	 * read. */
	for (char *entry = strtok_r(text, separators, &state); entry;
	     entry = strtok_r(NULL, separators, &state)) {
		size_t length = strlen(entry);

		if (is_ours(places, entry))
			continue;
		if (end != text)
			*end++ = ':';
		memmove(end, entry, length);
		end += length;
	}
	*end = '\0';
	return text;
}

static char *preload_of_user(const struct places *places)
{
	return list_of_user("LD_PRELOAD", PRELOAD_SEPARATORS, places, is_our_library);
}

static char *paths_of_user(const struct places *places)
{
	return list_of_user("LD_LIBRARY_PATH", PATH_SEPARATORS, places, is_our_directory);
}

/* A program that was started with another LD_PRELOAD, as scripts do for an allocator, finds our
 * libraries by their names. */
static int paths_enter(const struct places *places, struct error *err)
{
	size_t length = (size_t)(strrchr(places->front_cuda, '/') - places->front_cuda);
	cleanup_free char *user = paths_of_user(places), *value = NULL;

	if (!user || asprintf(&value, "%.*s%s%s", (int)length, places->front_cuda, *user ? ":" : "",
			      user) < 0)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	setenv("LD_LIBRARY_PATH", value, 1);
	return 0;
}

/* Programs with GCC's AddressSanitizer end where anything was preloaded, but by this. Our libraries
 * define nothing that it replaces. */
#define ASAN "ASAN_OPTIONS"
#define ASAN_OPTION "verify_asan_link_order"
#define ASAN_SETTING ASAN_OPTION "=0"

static int asan_enter(struct error *err)
{
	const char *user = secure_getenv(ASAN);
	cleanup_free char *value = NULL;

	if (user && strstr(user, ASAN_OPTION))
		return 0;
	if (asprintf(&value, "%s%s" ASAN_SETTING, user ? user : "", user && *user ? ":" : "") < 0)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	setenv(ASAN, value, 1);
	return 0;
}

static void set_or_unset(const char *name, const char *value)
{
	if (*value)
		setenv(name, value, 1);
	else
		unsetenv(name);
}

static void asan_leave(void)
{
	const char *now = secure_getenv(ASAN);
	size_t length = now ? strlen(now) : 0;

	if (length < strlen(ASAN_SETTING) ||
	    strcmp(now + length - strlen(ASAN_SETTING), ASAN_SETTING) != 0)
		return;
	length -= strlen(ASAN_SETTING);
	char *user = strndup(now, length && now[length - 1] == ':' ? length - 1 : length);
	if (user)
		set_or_unset(ASAN, user);
	free(user);
}

static int preload_enter(const struct places *places, struct error *err)
{
	cleanup_free char *value = NULL;

	/* ld.so would only warn, and the command would run without a limit. */
	if (access(places->front_cuda, R_OK) < 0 || access(places->front_nvml, R_OK) < 0)
		return error_set(err, EXIT_CODE_FAILED, "carve's own library %s is not there",
				 places->front_cuda);
	int rc = places_check(places, err);

	if (rc < 0)
		return rc;
	char *user = preload_of_user(places);
	int n = !user ? -1
		      : asprintf(&value, "%s:%s%s%s", places->front_cuda, places->front_nvml,
				 *user ? ":" : "", user);
	free(user);
	if (n < 0)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	setenv("LD_PRELOAD", value, 1);
	return asan_enter(err);
}

int slice_env_enter(const char *id, const char *stamp, const char *attach,
		    const struct places *places, const struct driver_libs *driver,
		    struct error *err)
{
	int rc = preload_enter(places, err);

	if (rc == 0)
		rc = paths_enter(places, err);
	if (rc < 0)
		return rc;
	setenv(ATTACH_ENV_SESSION, id, 1);
	setenv(ATTACH_ENV_SOCKET, attach, 1);
	set_or_unset(ATTACH_ENV_STAMP, stamp);
	set_or_unset(ATTACH_ENV_CUDA, driver->cuda);
	set_or_unset(ATTACH_ENV_NVML, driver->nvml);
	return 0;
}

void slice_env_leave(const struct places *places)
{
	char *user = preload_of_user(places), *paths = paths_of_user(places);

	unsetenv(ATTACH_ENV_SESSION);
	unsetenv(ATTACH_ENV_SOCKET);
	unsetenv(ATTACH_ENV_STAMP);
	unsetenv(ATTACH_ENV_CUDA);
	unsetenv(ATTACH_ENV_NVML);
	set_or_unset("LD_PRELOAD", user ? user : "");
	asan_leave();
	set_or_unset("LD_LIBRARY_PATH", paths ? paths : "");
	free(user);
	free(paths);
}

// NOLINTEND(concurrency-mt-unsafe)
