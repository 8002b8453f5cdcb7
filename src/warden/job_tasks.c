/* The limit of tasks of each job: a job that forks without end fills its own cgroup alone. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/file.h"
#include "base/macros.h"
#include "warden/jobs.h"

/* The percentage of the tasks that the machine can have; the same as systemd's DefaultTasksMax. */
#define SHARE_PERCENT 33

/* The text of a cgroup's file. False: it has no such file. */
static bool text_read(const char *cgroup, const char *file, char *ret, size_t size)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%s/%s", cgroup, file) < (int)sizeof(path) &&
	       file_read(path, ret, size) >= 0;
}

/* Children of this cgroup have the controller. */
static bool is_enabled(const char *cgroup)
{
	char text[1024], *rest = text, *word;

	if (!text_read(cgroup, "cgroup.subtree_control", text, sizeof(text)))
		return false;
	while ((word = strsep(&rest, " \n")))
		if (!strcmp(word, "pids"))
			return true;
	return false;
}

/* A cgroup with processes whose children get this controller becomes one of threads, and no process
 * is born in its children any more. Only the root, which has no type, may have both. */
static bool may_enable(const char *cgroup)
{
	char text[64];

	return !text_read(cgroup, "cgroup.type", text, sizeof(text)) ||
	       (text_read(cgroup, "cgroup.procs", text, sizeof(text)) && !*text);
}

static bool enable(const char *cgroup)
{
	return is_enabled(cgroup) ||
	       (may_enable(cgroup) && cgroup_write(cgroup, "cgroup.subtree_control", "+pids") == 0);
}

static uint64_t number_or(const char *text, uint64_t otherwise)
{
	char *end;
	unsigned long long number = strtoull(text, &end, 10);

	return end == text ? otherwise : number;
}

static uint64_t kernel_most(const char *path)
{
	char text[64];

	return file_read(path, text, sizeof(text)) < 0 ? UINT64_MAX : number_or(text, UINT64_MAX);
}

/* The lowest limit of a cgroup and those around it. The root has none. */
static uint64_t around_most(const char *cgroup)
{
	char path[PATH_MAX], text[64];
	uint64_t most = UINT64_MAX;

	snprintf(path, sizeof(path), "%s", cgroup);
	for (char *slash;
	     (slash = strrchr(path, '/')) && text_read(path, "pids.max", text, sizeof(text));
	     *slash = '\0')
		most = MIN(most, number_or(text, UINT64_MAX));
	return most;
}

static uint64_t limit_choose(const struct jobs_place *place, const char *parent)
{
	if (place->tasks_wanted)
		return place->tasks_wanted;
	uint64_t most = around_most(parent);
	most = MIN(most, kernel_most("/proc/sys/kernel/pid_max"));
	most = MIN(most, kernel_most("/proc/sys/kernel/threads-max"));
	return MAX(most / 100 * SHARE_PERCENT + most % 100 * SHARE_PERCENT / 100, 1);
}

/* Version 1, in the launcher's own cgroup there, which may have processes. */
static bool begin_1(struct jobs_place *place, const char *name, char parent[static PATH_MAX])
{
	return cgroup_of_1("pids", parent, PATH_MAX) == 0 &&
	       cgroup_make(parent, name, place->tasks_cgroup) == 0 &&
	       chmod(place->tasks_cgroup, JOBS_CGROUP_MODE) == 0;
}

void jobs_tasks_begin(struct jobs_place *place)
{
	char parent[PATH_MAX], name[JOBS_CGROUP_NAME_SIZE];
	bool has = jobs_cgroup_place(place, parent, name) == 0 && *place->cgroup &&
		   enable(parent) && enable(place->cgroup);

	place->tasks_cgroup[0] = '\0';
	/* A cgroup of version 2 that has processes gives its children no controller, and systemd
	 * before 254 has the launcher in the one that jobs are below. */
	place->tasks =
		has || begin_1(place, name, parent) ? WARDEN_TASKS_OF_JOB : WARDEN_TASKS_OF_USER;
	place->tasks_max = limit_choose(place, parent);
}

rlim_t jobs_tasks_of_user(const struct jobs_place *place)
{
	return place->tasks == WARDEN_TASKS_OF_USER ? (rlim_t)place->tasks_max : RLIM_INFINITY;
}

void jobs_tasks_limit(const struct jobs_place *place, const char *name, const char *cgroup,
		      char ret[static PATH_MAX])
{
	char number[24];

	ret[0] = '\0';
	if (place->tasks != WARDEN_TASKS_OF_JOB)
		return;
	snprintf(number, sizeof(number), "%" PRIu64, place->tasks_max);
	if (!*place->tasks_cgroup) {
		if (*cgroup)
			(void)cgroup_write(cgroup, "pids.max", number);
	} else if (cgroup_make(place->tasks_cgroup, name, ret) == 0) {
		(void)chmod(ret, JOBS_CGROUP_MODE);
		(void)cgroup_write(ret, "pids.max", number);
	}
}
