#include "daemon/settle/cgroup_order.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "backend/cgroup_limits.h"
#include "backend/cgroup_look.h"
#include "base/cgroup.h"
#include "base/kill_point.h"

/* ---- questions of the kernel ----------------------------------------------------------- */

static int reader_identify(void *context, pid_t pid, struct process_id *ret)
{
	(void)context;
	return process_identify(pid, ret);
}

static bool reader_parent(void *context, struct process_id process, struct process_id *ret)
{
	(void)context;
	return process_parent_find(process, ret);
}

/* 0: there is no such cgroup. */
static uint64_t number_of(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? st.st_ino : 0;
}

/* Whether strangers are in the order's cgroup. A cgroup with more processes than are looked at may
 * still be known to be shared. */
static enum leaf_company company_of(const struct order *o)
{
	const struct leaf_reader reader = {.identify = reader_identify, .parent = reader_parent};
	pid_t list[LEAF_PROCESSES_MAX];
	size_t count = 0;
	int rc = cgroup_processes(o->path, list, LEAF_PROCESSES_MAX, &count);

	if (rc < 0 && rc != -E2BIG)
		return LEAF_UNKNOWN;
	enum leaf_company company = leaf_company(list, count, o->roots, o->root_count, &reader);
	return company == LEAF_ALONE && rc == -E2BIG ? LEAF_UNKNOWN : company;
}

/* Whether the cgroup carries a limit other than the session's. */
static bool is_limited(const struct order *o)
{
	uint64_t bytes;

	for (uint32_t i = 0; i < o->gpu_count; i++)
		if (limits_get(o->driver, o->gpu[i].index, o->path, &bytes) == 0 &&
		    bytes != LIMIT_NO_BYTES && bytes != o->gpu[i].bytes)
			return true;
	return false;
}

/* ---- steps ----------------------------------------------------------------------------- */

static void step_probe(struct order *o)
{
	struct statvfs fs;

	o->rc = limits_probe(o->driver);
	if (o->rc == 0)
		o->rc = cgroup_mount(o->path, sizeof(o->path));
	o->fixed = o->rc == 0 && statvfs(o->path, &fs) == 0 && fs.f_flag & ST_RDONLY;
}

/* The part of the path that names the cgroup that a launcher made for a job; 0: there is none. All
 * in there are the job's user's. */
static size_t job_length(pid_t pid, const char *path)
{
	const char *jobs = strstr(path, "/" CGROUP_JOBS);
	const char *job = jobs ? strchr(jobs + 1, '/') : NULL;

	if (!job || !job[1] || !cgroup_is_named_by_root(pid, "/" CGROUP_JOBS))
		return 0;
	return (size_t)(job - path) + 1 + strcspn(job + 1, "/");
}

static void step_place(struct order *o)
{
	char path[LIMITS_PATH_SIZE];

	o->rc = cgroup_of_process(o->process, o->path);
	o->level_count = 0;
	if (o->rc < 0)
		return;
	o->job_length = o->asker == LEAF_COMMAND ? job_length(o->process.pid, o->path) : 0;
	memcpy(path, o->path, sizeof(path));
	for (char *end = path + strlen(path); end > path && o->level_count < ORDER_LEVELS_MAX;
	     end = strrchr(path, '/')) {
		*end = '\0';
		o->level[o->level_count++] = (struct order_level){
			.length = (size_t)(end - path),
			.number = number_of(path),
		};
	}
}

int order_leaf_name(const char *session, char ret[static STORE_ID_SIZE + 16])
{
	return snprintf(ret, STORE_ID_SIZE + 16, "carve-%s", session);
}

static void step_look(struct order *o)
{
	char root[LIMITS_PATH_SIZE], name[STORE_ID_SIZE + 16];
	size_t used = strlen(o->path);

	o->rc = cgroup_mount(root, sizeof(root));
	if (o->rc < 0)
		return;
	size_t length = (size_t)order_leaf_name(o->session, name);
	struct leaf_facts facts = {
		.root = !strcmp(o->path, root),
		.made = !strcmp(strrchr(o->path, '/') + 1, name),
		.others = o->others,
		.fixed = o->fixed,
		.asker = o->asker,
	};
	facts.company = facts.root || facts.made ? LEAF_SHARED
			: o->job                 ? LEAF_ALONE
						 : company_of(o);
	facts.others |= facts.company == LEAF_ALONE && is_limited(o);
	o->choice = leaf_choose(&facts, &o->why);
	o->made = o->choice == LEAF_MADE || facts.made;
	if (o->choice == LEAF_MADE && used + length + 1 >= sizeof(o->path))
		o->rc = -ENAMETOOLONG;
	else if (o->choice == LEAF_MADE)
		snprintf(o->path + used, sizeof(o->path) - used, "/%s", name);
}

/* A limit that somebody else set, such as NVIDIA's container toolkit, stays as it is where it has
 * the session's size: another call would take its soft limit away. */
static int sizes_put(const struct order *o)
{
	int rc = 0;

	for (uint32_t i = 0; i < o->gpu_count && rc == 0; i++) {
		uint64_t bytes;

		if (limits_get(o->driver, o->gpu[i].index, o->path, &bytes) < 0 ||
		    bytes != o->gpu[i].bytes)
			rc = limits_put(o->driver, o->gpu[i].index, o->path, o->gpu[i].bytes);
	}
	return rc;
}

static void step_set(struct order *o)
{
	o->rc = o->made && o->process.pid ? limits_enter(o->driver, o->process, o->session) : 0;
	kill_point("limit.entered");
	o->number = number_of(o->path);
	if (o->rc == 0 && !o->number)
		o->rc = -ENOENT;
	/* A cgroup that was made anew under the name of another has no limit. */
	if (o->rc == 0 && o->held != o->number)
		o->rc = sizes_put(o);
	/* With the cgroup its limit went. */
	if (o->rc == 0 && number_of(o->path) != o->number)
		o->rc = -ENOENT;
	kill_point("limit.set");
}

/* On all GPUs, as the session may have had others. */
static int sizes_clear(const struct order *o)
{
	int rc = 0;

	for (uint32_t i = 0; i < o->all_count && rc == 0; i++) {
		rc = limits_put(o->driver, o->all_gpus[i], o->path, LIMIT_NO_BYTES);
		/* With the cgroup its limits went; a GPU in MIG mode has none. */
		if (rc == -ENOENT || rc == -ENOTSUP)
			rc = 0;
	}
	return rc;
}

/* Whether carved may not see who is in it: its user has closed it. */
static bool is_hidden(const char *path)
{
	char file[LIMITS_PATH_SIZE + 32];

	snprintf(file, sizeof(file), "%s/cgroup.events", path);
	return access(file, R_OK) < 0 && errno == EACCES;
}

/* The limit of a session that has ended stays for as long as somebody is in the cgroup, as its
 * processes may outlive it. Where that cannot be seen, it ends with the session. */
static void step_keep(struct order *o)
{
	uint64_t now = number_of(o->path);

	o->cleared = !now || (o->number && now != o->number) || cgroup_is_empty(o->path) ||
		     (!o->gpu_count && is_hidden(o->path));
	if (!o->cleared) {
		o->rc = o->held == now ? 0 : sizes_put(o);
		o->number = now;
		return;
	}
	o->rc = sizes_clear(o);
	kill_point("limit.cleared");
	/* A cgroup of that name that was made anew is somebody else's to remove. */
	if (o->rc == 0 && o->made && (!o->number || now == o->number))
		o->rc = limits_leave(o->driver, o->path);
	kill_point("limit.left");
}

void order_run(uv_work_t *work)
{
	static void (*const steps[])(struct order * o) = {
		[ORDER_PROBE] = step_probe, [ORDER_PLACE] = step_place, [ORDER_LOOK] = step_look,
		[ORDER_SET] = step_set,     [ORDER_KEEP] = step_keep,
	};
	struct order *o = work->data;

	o->rc = 0;
	steps[o->step](o);
}
