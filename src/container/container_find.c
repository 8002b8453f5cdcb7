#include "container/container_find.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/macros.h"

static bool is_there(const char *program)
{
	const char *path = secure_getenv("PATH");
	char name[PATH_MAX];

	for (path = path ? path : "/usr/bin:/bin"; *path; path += *path == ':') {
		size_t length = strcspn(path, ":");

		if (length &&
		    snprintf(name, sizeof(name), "%.*s/%s", (int)length, path, program) <
			    (int)sizeof(name) &&
		    access(name, X_OK) == 0)
			return true;
		path += length;
	}
	return false;
}

const char *container_runtime_find(struct error *err)
{
	static const char *const runtimes[] = {"podman", "docker", "apptainer"};
	const char *named = secure_getenv(CONTAINER_RUNTIME_ENV);

	named = named && *named ? named : NULL;
	for (size_t i = 0; i < ARRAY_SIZE(runtimes); i++)
		if ((!named || !strcmp(named, runtimes[i])) && is_there(runtimes[i]))
			return runtimes[i];
	if (named) {
		error_set(err, EXIT_CODE_NOT_FOUND,
			  CONTAINER_RUNTIME_ENV " names '%.32s', which is not here", named);
		error_hint(err, "it takes podman, docker or apptainer");
		return NULL;
	}
	error_set(err, EXIT_CODE_NOT_FOUND, "no container runtime is here");
	error_hint(err, "install podman, docker or apptainer, or do without --docker");
	return NULL;
}
