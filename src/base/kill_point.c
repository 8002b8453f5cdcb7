#include "base/kill_point.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VARIABLE "CARVE_KILL_POINT"

void kill_point(const char *name)
{
	const char *wanted = secure_getenv(VARIABLE); // NOLINT(concurrency-mt-unsafe): never set
	size_t length = strlen(name);

	if (wanted && !strncmp(wanted, name, length) && wanted[length] == ':' &&
	    unlink(wanted + length + 1) == 0)
		kill(getpid(), SIGKILL);
}
