#include "backend/cgroup_look.h"

#include <errno.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

/* Of /proc/PID/cgroup: a line for each hierarchy of cgroup v1, and that of v2. */
#define TEXT_SIZE 16384u
/* Of cgroup.events. */
#define EVENTS_SIZE 256u

int cgroup_root(char ret[static LIMITS_PATH_SIZE])
{
	char text[4096];
	struct mntent entry;
	FILE *mounts = setmntent("/proc/self/mounts", "re");
	int rc = mounts ? -ENOENT : -errno;

	while (rc == -ENOENT && getmntent_r(mounts, &entry, text, sizeof(text)))
		if (!strcmp(entry.mnt_type, "cgroup2") &&
		    strlen(entry.mnt_dir) < LIMITS_PATH_SIZE) {
			snprintf(ret, LIMITS_PATH_SIZE, "%s", entry.mnt_dir);
			rc = 0;
		}
	if (mounts)
		endmntent(mounts);
	return rc;
}

int cgroup_of(struct process_id process, char ret[static LIMITS_PATH_SIZE])
{
	char path[64], text[TEXT_SIZE] = "\n", root[LIMITS_PATH_SIZE];
	int rc = cgroup_root(root);

	if (rc < 0)
		return rc;
	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)process.pid);
	ssize_t n = file_read(path, text + 1, sizeof(text) - 1);
	if (n < 0)
		return (int)n;
	/* It had the PID before and has it still: what was read is its own. */
	if (!process_alive(process))
		return -ESRCH;
	char *line = strstr(text, "\n0::/");
	if (!line)
		return -ENOENT;
	line += strlen("\n0::");
	line[strcspn(line, "\n")] = '\0';
	/* Outside of what this daemon sees of cgroups, or removed. */
	if (strstr(line, "/../") || strstr(line, " (deleted)"))
		return -ENOENT;
	if (strlen(root) + strlen(line) >= LIMITS_PATH_SIZE)
		return -ENAMETOOLONG;
	memcpy(ret, root, strlen(root) + 1);
	if (strcmp(line, "/") != 0)
		memcpy(ret + strlen(root), line, strlen(line) + 1);
	return 0;
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

bool cgroup_is_empty(const char *cgroup)
{
	char path[LIMITS_PATH_SIZE + 32], text[EVENTS_SIZE];

	if (file_of(cgroup, "cgroup.events", path) < 0)
		return false;
	ssize_t n = file_read(path, text, sizeof(text));
	return n < 0 ? n == -ENOENT || n == -ENODEV : strstr(text, "populated 0") != NULL;
}
