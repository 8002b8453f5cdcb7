#include "cli/slice_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "cli/driver_find.h"
#include "cli/isolation.h"
#include "cli/places.h"
#include "proto/attach.h"

/* What ld.so splits LD_PRELOAD at. */
#define PRELOAD_SEPARATORS " :"

const char *slice_env_session(void)
{
	const char *id = getenv(ATTACH_ENV_SESSION);

	return id && *id ? id : NULL;
}

/* The user's own LD_PRELOAD: without our libraries, entries joined by ':'. Owned by the caller;
 * NULL where memory ran out. */
static char *preload_of_user(const struct places *places)
{
	const char *now = getenv("LD_PRELOAD");
	char *text = strdup(now ? now : ""), *end = text, *state;

	if (!text)
		return NULL;
	/* Kept entries move to the front of the same text: `end` never passes what is still to
	 * read. */
	for (char *entry = strtok_r(text, PRELOAD_SEPARATORS, &state); entry;
	     entry = strtok_r(NULL, PRELOAD_SEPARATORS, &state)) {
		size_t length = strlen(entry);

		if (!strcmp(entry, places->front_cuda) || !strcmp(entry, places->front_nvml) ||
		    isolation_is_front(entry))
			continue;
		if (end != text)
			*end++ = ':';
		memmove(end, entry, length);
		end += length;
	}
	*end = '\0';
	return text;
}

static int preload_enter(const struct places *places, struct error *err)
{
	cleanup_free char *value = NULL;

	/* ld.so would only warn, and the command would run without a limit. */
	if (access(places->front_cuda, R_OK) < 0 || access(places->front_nvml, R_OK) < 0)
		return error_set(err, EXIT_CODE_FAILED, "carve's own library %s is not there",
				 places->front_cuda);
	if (strpbrk(places->front_cuda, PRELOAD_SEPARATORS "$")) {
		error_set(err, EXIT_CODE_FAILED,
			  "%s cannot be preloaded: its path has a space, ':' or '$' in it",
			  places->front_cuda);
		error_hint(err, "move carve to a directory without those");
		return -EXIT_CODE_FAILED;
	}
	char *user = preload_of_user(places);
	int n = !user ? -1
		      : asprintf(&value, "%s:%s%s%s", places->front_cuda, places->front_nvml,
				 *user ? ":" : "", user);
	free(user);
	if (n < 0)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	setenv("LD_PRELOAD", value, 1);
	return 0;
}

static void set_or_unset(const char *name, const char *value)
{
	if (*value)
		setenv(name, value, 1);
	else
		unsetenv(name);
}

int slice_env_enter(const char *id, const char *attach, const struct places *places,
		    const struct driver_libs *driver, struct error *err)
{
	int rc = preload_enter(places, err);

	if (rc < 0)
		return rc;
	setenv(ATTACH_ENV_SESSION, id, 1);
	setenv(ATTACH_ENV_SOCKET, attach, 1);
	set_or_unset(ATTACH_ENV_CUDA, driver->cuda);
	set_or_unset(ATTACH_ENV_NVML, driver->nvml);
	return 0;
}

void slice_env_leave(const struct places *places)
{
	char *user = preload_of_user(places);

	unsetenv(ATTACH_ENV_SESSION);
	unsetenv(ATTACH_ENV_SOCKET);
	unsetenv(ATTACH_ENV_CUDA);
	unsetenv(ATTACH_ENV_NVML);
	set_or_unset("LD_PRELOAD", user ? user : "");
	free(user);
}
