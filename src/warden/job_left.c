/* Cgroups that jobs left, and their removal.
 *
 * A user decides how many cgroups a job leaves (cgroup.max.descendants at most), and how many jobs
 * end at one moment. So the removal is done in steps of JOBS_STEP_NS, one step between two
 * requests of the worker. A request that comes meanwhile waits for one step at most. Owners
 * take turns: what is removed of one job of an owner at a time is followed by a job of the next
 * owner.
 *
 * A cgroup is removed once nobody is in it. Killed processes leave it a moment later, and a process
 * that the kernel cannot end holds it for longer, so such a cgroup is tried again after a while.
 * The cgroups that the last launcher left are found by a look at the directory, which is done in
 * steps, too. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/macros.h"
#include "warden/jobs.h"

/* How long a cgroup with processes is left alone: at first, and after so many tries. */
#define SOON_NS 50000000ull
#define LATER_NS 1000000000ull
#define TRIES_SOON 20u

struct leftover {
	struct leftover *next;
	uint64_t due_ns;
	unsigned tries;
	uid_t uid;
	const char *parent; /* the place's; `name` is in it */
	char name[];
};

struct left_owner {
	struct left_owner *next;
	uid_t uid;
	struct leftovers jobs; /* the oldest first */
};

static void leftovers_add(struct leftovers *list, struct leftover *job)
{
	job->next = NULL;
	*(list->first ? &list->last->next : &list->first) = job;
	list->last = job;
}

static struct leftover *leftovers_take(struct leftovers *list)
{
	struct leftover *job = list->first;

	list->first = job->next;
	return job;
}

static void owner_append(struct jobs_left *left, struct left_owner *owner)
{
	struct left_owner **at = &left->owners;

	while (*at)
		at = &(*at)->next;
	owner->next = NULL;
	*at = owner;
}

/* Without memory the cgroup stays until the next launcher. */
static void owner_add(struct jobs_left *left, struct leftover *job)
{
	struct left_owner *owner = left->owners;

	while (owner && owner->uid != job->uid)
		owner = owner->next;
	if (!owner && (owner = calloc(1, sizeof(*owner)))) {
		owner->uid = job->uid;
		owner_append(left, owner);
	}
	if (owner)
		leftovers_add(&owner->jobs, job);
	else
		free(job);
}

/* A cgroup is its user's from the start of its job on, else root's. */
static void left_add(struct jobs_left *left, const char *parent, const char *name)
{
	char path[PATH_MAX];
	struct stat st;

	if (snprintf(path, sizeof(path), "%s/%s", parent, name) >= (int)sizeof(path) ||
	    stat(path, &st) < 0)
		return;
	struct leftover *job = calloc(1, sizeof(*job) + strlen(name) + 1);
	if (!job)
		return;
	job->uid = st.st_uid;
	job->parent = parent;
	memcpy(job->name, name, strlen(name) + 1);
	owner_add(left, job);
}

void jobs_left_begin(struct jobs_place *place)
{
	struct jobs_left *left = &place->left;

	for (unsigned i = 0; i < ARRAY_SIZE(left->looks); i++) {
		const char *cgroup = i ? place->tasks_cgroup : place->cgroup;

		if (left->looks[i])
			closedir(left->looks[i]);
		left->looks[i] = *cgroup ? opendir(cgroup) : NULL;
	}
}

static void leftovers_free(struct leftovers *list)
{
	while (list->first)
		free(leftovers_take(list));
}

void jobs_left_end(struct jobs_place *place)
{
	struct jobs_left *left = &place->left;

	for (unsigned i = 0; i < ARRAY_SIZE(left->looks); i++)
		if (left->looks[i])
			closedir(left->looks[i]);
	while (left->owners) {
		struct left_owner *owner = left->owners;

		left->owners = owner->next;
		leftovers_free(&owner->jobs);
		free(owner);
	}
	leftovers_free(&left->busy);
	*left = (struct jobs_left){0};
}

/* Looks for what the last launcher left. */
static void look(struct jobs_left *left, const char *cgroup, DIR **dir, uint64_t end)
{
	const struct dirent *entry;
	char path[PATH_MAX];

	while (*dir && now_monotonic_ns() < end) {
		// NOLINTNEXTLINE(concurrency-mt-unsafe): its own list
		if (!(entry = readdir(*dir))) {
			closedir(*dir);
			*dir = NULL;
			return;
		}
		/* The cgroups of jobs that run are left alone. */
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.' &&
		    snprintf(path, sizeof(path), "%s/%s", cgroup, entry->d_name) <
			    (int)sizeof(path) &&
		    cgroup_is_empty(path))
			left_add(left, cgroup, entry->d_name);
	}
}

/* Goes on with the first job of the owner whose turn it is. */
static void owner_step(struct jobs_left *left, uint64_t end)
{
	struct left_owner *owner = left->owners;
	struct leftover *job = owner->jobs.first;
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", job->parent, job->name);
	/* An attempt that is made again has the name, too: what runs in it keeps its cgroups. */
	int rc = cgroup_is_empty(path) ? cgroup_remove_until(path, end) : -EBUSY;
	if (rc != -EAGAIN) {
		(void)leftovers_take(&owner->jobs);
		if (rc == -EBUSY) {
			job->due_ns = now_monotonic_ns() +
				      (job->tries++ < TRIES_SOON ? SOON_NS : LATER_NS);
			leftovers_add(&left->busy, job);
		} else {
			free(job);
		}
	}
	left->owners = owner->next;
	if (owner->jobs.first)
		owner_append(left, owner);
	else
		free(owner);
}

void jobs_left_step(struct jobs_place *place)
{
	struct jobs_left *left = &place->left;
	uint64_t begin = now_monotonic_ns(), end = begin + JOBS_STEP_NS;

	while (left->busy.first && left->busy.first->due_ns <= begin && now_monotonic_ns() < end)
		owner_add(left, leftovers_take(&left->busy));
	look(left, place->cgroup, &left->looks[0], end);
	look(left, place->tasks_cgroup, &left->looks[1], end);
	while (left->owners && now_monotonic_ns() < end)
		owner_step(left, end);
}

int jobs_left_wait_ms(const struct jobs_place *place)
{
	const struct jobs_left *left = &place->left;
	uint64_t now = now_monotonic_ns();

	if (left->owners || left->looks[0] || left->looks[1])
		return 0;
	if (!left->busy.first)
		return -1;
	return left->busy.first->due_ns <= now
		       ? 0
		       : (int)((left->busy.first->due_ns - now) / 1000000) + 1;
}

/* Most cgroups are empty by now, and gone with this one call. */
static void left_note(struct jobs_left *left, const char *cgroup, const char *name)
{
	char path[PATH_MAX];

	if (*cgroup && snprintf(path, sizeof(path), "%s/%s", cgroup, name) < (int)sizeof(path) &&
	    rmdir(path) < 0 && errno == EBUSY)
		left_add(left, cgroup, name);
}

void jobs_left_note(struct jobs_place *place, const char *name)
{
	left_note(&place->left, place->cgroup, name);
	left_note(&place->left, place->tasks_cgroup, name);
}

void jobs_command_kill(const struct jobs_place *place, const char *name)
{
	char path[PATH_MAX], below[PATH_MAX];
	const struct dirent *entry;

	if (!*place->cgroup ||
	    snprintf(path, sizeof(path), "%s/%s", place->cgroup, name) >= (int)sizeof(path))
		return;
	DIR *dir = opendir(path);
	/* A job makes few cgroups (job_cgroup.c). */
	// NOLINTNEXTLINE(concurrency-mt-unsafe): its own list
	while (dir && (entry = readdir(dir)))
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.' &&
		    snprintf(below, sizeof(below), "%s/%s", path, entry->d_name) <
			    (int)sizeof(below))
			(void)cgroup_kill(below);
	if (dir)
		closedir(dir);
}

void jobs_shim_end(struct jobs_place *place, const char *name)
{
	char path[PATH_MAX];

	/* Version 1, in which only tasks are limited, kills nothing. */
	if (*place->cgroup &&
	    snprintf(path, sizeof(path), "%s/%s", place->cgroup, name) < (int)sizeof(path))
		(void)cgroup_kill(path);
	jobs_left_note(place, name);
}
