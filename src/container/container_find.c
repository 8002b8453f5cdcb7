#include "container/container_find.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/program.h"

const char *container_runtime_find(struct error *err)
{
	static const char *const runtimes[] = {"podman", "docker", "apptainer"};
	const char *named = secure_getenv(CONTAINER_RUNTIME_ENV);

	named = named && *named ? named : NULL;
	for (size_t i = 0; i < ARRAY_SIZE(runtimes); i++)
		if ((!named || !strcmp(named, runtimes[i])) && program_is_there(runtimes[i]))
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
