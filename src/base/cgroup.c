#include "base/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <mntent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"

/* Room for /proc/PID/cgroup: a line for each hierarchy of version 1, and one for version 2. */
#define TEXT_SIZE 16384u

/* A hierarchy of version 1 that every container's runtime uses, and where it is. */
#define CONTROLLER_1 "devices"
#define MOUNTS_1 "/sys/fs/cgroup/"
#define MOUNT_1 MOUNTS_1 CONTROLLER_1

static bool is_mount(const struct mntent *entry)
{
	char path[PATH_MAX];

	return !strcmp(entry->mnt_type, "cgroup2") &&
	       snprintf(path, sizeof(path), "%s/cgroup.controllers", entry->mnt_dir) <
		       (int)sizeof(path) &&
	       access(path, F_OK) == 0;
}

int cgroup_mount(char *ret, size_t size)
{
	char text[PATH_MAX];
	struct mntent entry;
	FILE *mounts = setmntent("/proc/self/mounts", "re");
	int rc = mounts ? -ENOENT : -errno;

	while (rc == -ENOENT && getmntent_r(mounts, &entry, text, sizeof(text)))
		if (is_mount(&entry))
			rc = snprintf(ret, size, "%s", entry.mnt_dir) < (int)size ? 0
										  : -ENAMETOOLONG;
	if (mounts)
		endmntent(mounts);
	return rc;
}

/* The path in a line "NUMBER:CONTROLLERS:PATH", NULL: the line is another hierarchy's. */
static const char *line_path(const char *line, const char *controllers)
{
	size_t length = strlen(controllers);

	line += strcspn(line, ":");
	return *line && !strncmp(line + 1, controllers, length) && line[1 + length] == ':'
		       ? line + length + 2
		       : NULL;
}

int cgroup_path(pid_t pid, const char *controllers, char *ret, size_t size)
{
	char file[64] = "/proc/self/cgroup", text[TEXT_SIZE], *rest = text, *line;
	const char *path = NULL;

	if (pid)
		snprintf(file, sizeof(file), "/proc/%d/cgroup", (int)pid);
	ssize_t n = file_read(file, text, sizeof(text));
	if (n < 0)
		return (int)n;
	while (!path && (line = strsep(&rest, "\n")))
		path = line_path(line, controllers);
	if (!path)
		return -ENOENT;
	return snprintf(ret, size, "%s", path) < (int)size ? 0 : -ENAMETOOLONG;
}

/* Whether root made the part of `path` that has `name` in it; `path` lies in the hierarchy that is
 * mounted at `mount`. */
static bool is_named_by_root(const char *mount, const char *path, const char *name)
{
	char above[PATH_MAX];
	const char *at = strstr(path, name);
	struct stat st;

	/* A cgroup out of this process's sight begins with "/..". */
	if (!at || strstr(path, "/.."))
		return false;
	while (at > path && *at != '/')
		at--;
	return snprintf(above, sizeof(above), "%s%.*s", mount, (int)(at - path), path) <
		       (int)sizeof(above) &&
	       lstat(above, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == 0 &&
	       !(st.st_mode & (S_IWGRP | S_IWOTH));
}

bool cgroup_is_named_by_root(pid_t pid, const char *name)
{
	char mount[PATH_MAX], path[PATH_MAX];

	return (cgroup_path(pid, "", path, sizeof(path)) == 0 &&
		cgroup_mount(mount, sizeof(mount)) == 0 && is_named_by_root(mount, path, name)) ||
	       (cgroup_path(pid, CONTROLLER_1, path, sizeof(path)) == 0 &&
		is_named_by_root(MOUNT_1, path, name));
}

/* In the hierarchy of these controllers, whose mount `ret` has. */
static int directory_of(pid_t pid, const char *controllers, char *ret, size_t size)
{
	char path[PATH_MAX];
	int rc = cgroup_path(pid, controllers, path, sizeof(path));

	/* One outside of what this process sees of cgroups, or a removed one. */
	if (rc == 0 && (!strncmp(path, "/..", 3) || strstr(path, " (deleted)")))
		rc = -ENOENT;
	size_t used = rc == 0 ? strlen(ret) : 0;
	if (rc == 0 && strcmp(path, "/") != 0 &&
	    snprintf(ret + used, size - used, "%s", path) >= (int)(size - used))
		rc = -ENAMETOOLONG;
	return rc;
}

int cgroup_of(pid_t pid, char *ret, size_t size)
{
	int rc = cgroup_mount(ret, size);

	if (rc == 0)
		rc = directory_of(pid, "", ret, size);
	if (rc < 0)
		ret[0] = '\0';
	return rc;
}

int cgroup_of_1(const char *controller, char *ret, size_t size)
{
	int rc = snprintf(ret, size, MOUNTS_1 "%s", controller) < (int)size ? 0 : -ENAMETOOLONG;

	if (rc == 0)
		rc = directory_of(0, controller, ret, size);
	/* One outside of what is mounted here, as in a container. */
	if (rc == 0 && access(ret, F_OK) < 0)
		rc = -errno;
	if (rc < 0)
		ret[0] = '\0';
	return rc;
}

int cgroup_make(const char *parent, const char *name, char ret[static PATH_MAX])
{
	if (snprintf(ret, PATH_MAX, "%s/%s", parent, name) < PATH_MAX &&
	    (mkdir(ret, 0755) == 0 || errno == EEXIST))
		return 0;
	ret[0] = '\0';
	return -errno;
}

pid_t cgroup_fork(const char *path)
{
	cleanup_close int fd = *path ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	struct clone_args how = {
		.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)fd};
	pid_t pid = fd < 0 ? -1 : (pid_t)syscall(SYS_clone3, &how, sizeof(how));

	return pid < 0 ? fork() : pid;
}

int cgroup_write(const char *path, const char *file, const char *text)
{
	char whole[PATH_MAX];

	if (snprintf(whole, sizeof(whole), "%s/%s", path, file) >= (int)sizeof(whole))
		return -ENAMETOOLONG;
	cleanup_close int fd = open(whole, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : write_all(fd, text, strlen(text));
}

int cgroup_kill(const char *path)
{
	return cgroup_write(path, "cgroup.kill", "1");
}

bool cgroup_is_empty(const char *path)
{
	char file[PATH_MAX], text[256];

	if (snprintf(file, sizeof(file), "%s/cgroup.events", path) >= (int)sizeof(file))
		return false;
	ssize_t n = file_read(file, text, sizeof(text));
	return n < 0 ? n == -ENOENT || n == -ENODEV : strstr(text, "populated 0") != NULL;
}

static int remove_below(const char *path, unsigned depth, uint64_t end_ns);

static int remove_at(const char *path, unsigned depth, uint64_t end_ns)
{
	if (rmdir(path) == 0 || errno == ENOENT)
		return 0;
	if (errno != EBUSY || depth == CGROUP_DEPTH_MAX)
		return -errno;
	int rc = remove_below(path, depth, end_ns);
	if (rc < 0)
		return rc;
	return rmdir(path) == 0 || errno == ENOENT ? 0 : -errno;
}

/* Returns 0 where all in it that could be removed is; -EAGAIN: its time was over before. */
static int remove_below(const char *path, unsigned depth, uint64_t end_ns)
{
	DIR *dir = opendir(path);
	const struct dirent *entry;
	char below[PATH_MAX];
	int rc = 0;

	// NOLINTNEXTLINE(concurrency-mt-unsafe): its own list
	while (dir && rc != -EAGAIN && (entry = readdir(dir))) {
		if (entry->d_type != DT_DIR || entry->d_name[0] == '.' ||
		    snprintf(below, sizeof(below), "%s/%s", path, entry->d_name) >=
			    (int)sizeof(below))
			continue;
		rc = remove_at(below, depth + 1, end_ns);
		if (now_monotonic_ns() >= end_ns)
			rc = -EAGAIN;
	}
	if (dir)
		closedir(dir);
	return rc == -EAGAIN ? rc : 0;
}

int cgroup_remove_until(const char *path, uint64_t end_ns)
{
	return remove_at(path, 0, end_ns);
}

static bool is_carves(const char *name)
{
	return !strncmp(name, CGROUP_JOB, strlen(CGROUP_JOB)) ||
	       !strncmp(name, CGROUP_SESSION, strlen(CGROUP_SESSION));
}

void cgroup_leave_job(void)
{
	char path[PATH_MAX], *slash;
	bool leaves = false;

	if (cgroup_of(0, path, sizeof(path)) < 0)
		return;
	while ((slash = strrchr(path, '/')) && is_carves(slash + 1)) {
		*slash = '\0';
		leaves = true;
	}
	if (leaves)
		(void)cgroup_write(path, "cgroup.procs", "0");
}
