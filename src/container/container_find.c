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
	static const char *const runtimes[] = {"podman", "docker"};

	for (size_t i = 0; i < ARRAY_SIZE(runtimes); i++)
		if (is_there(runtimes[i]))
			return runtimes[i];
	error_set(err, EXIT_CODE_NOT_FOUND, "no container runtime is here");
	error_hint(err, "install podman or docker, or do without --docker");
	return NULL;
}
