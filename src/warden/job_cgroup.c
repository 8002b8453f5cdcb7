/* The cgroups of shims, which hold what a job leaves behind. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/fnv.h"
#include "proto/warden_jobs.h"
#include "warden/jobs.h"

/* The DelegateSubgroup of systemd/carve-generator: systemd from 254 on starts the warden in a
 * cgroup of this name. So the cgroup above, which is the warden's too, has no processes and may
 * have controllers. */
#define OWN_NAME "/carve-warden"
/* The number of cgroups that a job may have below its own, for containers and the like. Removing
 * one takes about 0.1 ms (job_left.c). */
#define CGROUPS_MOST "64"

int jobs_cgroup_place(const struct jobs_place *place, char parent[static PATH_MAX],
		      char name[static JOBS_CGROUP_NAME_SIZE])
{
	/* The directory itself may be made anew: its path stays. */
	snprintf(name, JOBS_CGROUP_NAME_SIZE, CGROUP_JOBS "%" PRIx64,
		 fnv_add(FNV_BASIS, place->jobs_path, strlen(place->jobs_path)));
	int rc = cgroup_of(0, parent, PATH_MAX);
	char *slash = rc == 0 ? strrchr(parent, '/') : NULL;
	if (slash && !strcmp(slash, OWN_NAME))
		*slash = '\0';
	return rc;
}

void jobs_shims_begin(struct jobs_place *place)
{
	char parent[PATH_MAX], name[JOBS_CGROUP_NAME_SIZE];

	place->cgroup[0] = '\0';
	if (jobs_cgroup_place(place, parent, name) == 0 &&
	    cgroup_make(parent, name, place->cgroup) == 0)
		(void)chmod(place->cgroup, JOBS_CGROUP_MODE);
	jobs_tasks_begin(place);
	jobs_left_begin(place);
}

/* The owner of both may make cgroups in it, and move its processes there. */
static int owner_set(const char *path, uid_t uid, gid_t gid)
{
	char procs[PATH_MAX];

	if (snprintf(procs, sizeof(procs), "%s/cgroup.procs", path) >= (int)sizeof(procs))
		return -ENAMETOOLONG;
	return chown(path, uid, gid) < 0 || chown(procs, uid, gid) < 0 ? -errno : 0;
}

void jobs_cgroup_make(const struct jobs_place *place, const char *name, char ret[static PATH_MAX])
{
	char depth[16];

	ret[0] = '\0';
	if (!*place->cgroup || cgroup_make(place->cgroup, name, ret) < 0)
		return;
	snprintf(depth, sizeof(depth), "%d", CGROUP_DEPTH_MAX);
	/* It may be there from a start that failed: then it is the user's. */
	if (owner_set(ret, 0, 0) < 0 ||
	    cgroup_write(ret, "cgroup.max.descendants", CGROUPS_MOST) < 0 ||
	    cgroup_write(ret, "cgroup.max.depth", depth) < 0)
		ret[0] = '\0';
}

void jobs_cgroup_give(const char *path, const struct warrant *warrant)
{
	if (!*path || !warrant->uid)
		return;
	(void)chmod(path, JOBS_CGROUP_MODE);
	(void)owner_set(path, warrant->uid, warrant->gid);
}
