#include "base/simulated_host.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

bool simulated_host_is_gone(void)
{
	const char *host = secure_getenv("SIMGPU_HOST");

	return host && access(host, F_OK) < 0 && errno == ENOENT;
}
