#include "backend/cgroup_look.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static int process_put(struct process_id process, const char *path)
{
	char text[32];
	cleanup_close int pidfd = process_open(process);
	if (pidfd < 0)
		return pidfd;
	snprintf(text, sizeof(text), "%d", (int)process.pid);
	return cgroup_write(path, "cgroup.procs", text);
}

int cgroup_session_enter(struct process_id process, const char *session)
{
	char path[LIMITS_PATH_SIZE], name[64];
	int rc = cgroup_of_process(process, path);

	if (rc < 0)
		return rc;
	size_t length = strlen(path),
	       added = (size_t)snprintf(name, sizeof(name), "/carve-%s", session);
	const char *own = strrchr(path, '/');
	if (own && !strcmp(own, name))
		return 0;
	if (length + added >= sizeof(path))
		return -ENAMETOOLONG;
	memcpy(path + length, name, added + 1);
	bool made = mkdir(path, 0755) == 0;
	if (!made && errno != EEXIST)
		return -errno;
	rc = process_put(process, path);
	if (rc < 0 && made)
		(void)rmdir(path);
	return rc;
}
