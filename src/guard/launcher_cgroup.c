/* The cgroups of shims, which hold what a job leaves behind. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/fnv.h"
#include "guard/launcher.h"
#include "proto/launcher.h"

/* Users pass through to their own. */
#define CGROUP_MODE 0711
/* So many a job may have below its own, for containers and the like. The daemon waits while they
 * are removed, about 0.1 ms each. */
#define CGROUPS_MOST "64"
/* All running jobs' are looked at: so often at most while requests come. */
#define SWEEP_NS 1000000000ull

void launcher_shims_begin(struct launcher_place *place)
{
	char own[PATH_MAX], name[64];

	place->cgroup[0] = '\0';
	place->left = true;
	if (cgroup_of(0, own, sizeof(own)) < 0)
		return;
	/* The directory itself may be made anew: its path stays. */
	snprintf(name, sizeof(name), "carve-jobs-%" PRIx64,
		 fnv_add(FNV_BASIS, place->jobs_path, strlen(place->jobs_path)));
	if (cgroup_make(own, name, place->cgroup) == 0)
		(void)chmod(place->cgroup, CGROUP_MODE);
}

/* The owner of both may make cgroups in it, and move its processes there. */
static int owner_set(const char *path, uid_t uid, gid_t gid)
{
	char procs[PATH_MAX];

	if (snprintf(procs, sizeof(procs), "%s/cgroup.procs", path) >= (int)sizeof(procs))
		return -ENAMETOOLONG;
	return chown(path, uid, gid) < 0 || chown(procs, uid, gid) < 0 ? -errno : 0;
}

void launcher_cgroup_make(const struct launcher_place *place, const char *name,
			  char ret[static PATH_MAX])
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

void launcher_cgroup_give(const char *path, const struct warrant *warrant)
{
	if (!*path || !warrant->uid)
		return;
	(void)chmod(path, CGROUP_MODE);
	(void)owner_set(path, warrant->uid, warrant->gid);
}

void launcher_shims_sweep(struct launcher_place *place)
{
	DIR *dir = *place->cgroup ? opendir(place->cgroup) : NULL;
	const struct dirent *entry;
	char path[PATH_MAX];

	// NOLINTNEXTLINE(concurrency-mt-unsafe): its own list
	while (dir && (entry = readdir(dir)))
		/* A job that runs may just have made one, which is empty still. */
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.' &&
		    snprintf(path, sizeof(path), "%s/%s", place->cgroup, entry->d_name) <
			    (int)sizeof(path) &&
		    cgroup_is_empty(path))
			(void)cgroup_remove(path);
	if (dir)
		closedir(dir);
	place->left = false;
	place->swept_ns = now_monotonic_ns();
}

void launcher_shim_end(struct launcher_place *place, const char *name)
{
	char path[PATH_MAX];

	if (!*place->cgroup ||
	    snprintf(path, sizeof(path), "%s/%s", place->cgroup, name) >= (int)sizeof(path))
		return;
	if (place->left && now_monotonic_ns() - place->swept_ns > SWEEP_NS)
		launcher_shims_sweep(place);
	(void)cgroup_kill(path);
	if (cgroup_remove(path) == -EBUSY)
		place->left = true;
}
