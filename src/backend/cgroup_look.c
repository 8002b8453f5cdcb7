#include "backend/cgroup_look.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cgroup.h"
#include "base/file.h"

int cgroup_of_process(struct process_id process, char ret[static LIMITS_PATH_SIZE])
{
	int rc = cgroup_of(process.pid, ret, LIMITS_PATH_SIZE);

	/* It had the PID before and has it still: what was read is its own. */
	return rc == 0 && !process_alive(process) ? -ESRCH : rc;
}

static int file_of(const char *cgroup, const char *name, char ret[static LIMITS_PATH_SIZE + 32])
{
	int n = snprintf(ret, LIMITS_PATH_SIZE + 32, "%s/%s", cgroup, name);

	return n < (int)LIMITS_PATH_SIZE + 32 ? 0 : -ENAMETOOLONG;
}

int cgroup_processes(const char *cgroup, pid_t *list, size_t max, size_t *ret_count)
{
	char path[LIMITS_PATH_SIZE + 32];
	int rc = file_of(cgroup, "cgroup.procs", path), pid;
	FILE *file = rc < 0 ? NULL : fopen(path, "re");

	if (!file)
		return rc < 0 ? rc : -errno;
	*ret_count = 0;
	// NOLINTNEXTLINE(cert-err34-c): the kernel's numbers
	while (rc == 0 && fscanf(file, "%d", &pid) == 1) {
		if (*ret_count == max)
			rc = -E2BIG;
		else
			list[(*ret_count)++] = pid;
	}
	fclose(file);
	return rc;
}
