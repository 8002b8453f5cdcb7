#include "base/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"

/* Deeper ones are not removed. */
#define DEPTH_MAX 8

/* Where the hierarchy of version 2 is; the second place is that of hosts that have both versions.
 */
static const char *mount_find(void)
{
	static const char *const places[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
	char path[64];

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		snprintf(path, sizeof(path), "%s/cgroup.controllers", places[i]);
		if (access(path, F_OK) == 0)
			return places[i];
	}
	return NULL;
}

int cgroup_own(char ret[static PATH_MAX])
{
	const char *mount = mount_find();
	char text[PATH_MAX];
	ssize_t n = mount ? file_read("/proc/self/cgroup", text, sizeof(text)) : -ENOENT;

	ret[0] = '\0';
	if (n < 0)
		return (int)n;
	/* A line a hierarchy; "0::PATH" is that of version 2. */
	for (char *line = text; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, "0::/", 4) != 0)
			continue;
		line[strcspn(line, "\n")] = '\0';
		const char *path = strcmp(line, "0::/") != 0 ? line + 3 : "";
		return snprintf(ret, PATH_MAX, "%s%s", mount, path) < PATH_MAX ? 0 : -ENAMETOOLONG;
	}
	return -ENOENT;
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

static int file_write(const char *dir, const char *file, const char *text)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	cleanup_close int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : write_all(fd, text, strlen(text));
}

int cgroup_kill(const char *path)
{
	return file_write(path, "cgroup.kill", "1");
}

static int remove_below(const char *path, unsigned depth);

static int remove_at(const char *path, unsigned depth)
{
	if (rmdir(path) == 0)
		return 0;
	if (errno == EBUSY && depth < DEPTH_MAX && remove_below(path, depth) > 0 &&
	    rmdir(path) == 0)
		return 0;
	return -errno;
}

/* How many were removed. */
static int remove_below(const char *path, unsigned depth)
{
	DIR *dir = opendir(path);
	const struct dirent *entry;
	char below[PATH_MAX];
	int count = 0;

	// NOLINTNEXTLINE(concurrency-mt-unsafe): its own list
	while (dir && (entry = readdir(dir)))
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.' &&
		    snprintf(below, sizeof(below), "%s/%s", path, entry->d_name) <
			    (int)sizeof(below))
			count += remove_at(below, depth + 1) == 0;
	if (dir)
		closedir(dir);
	errno = EBUSY;
	return count;
}

int cgroup_remove(const char *path)
{
	return remove_at(path, 0);
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

	if (cgroup_own(path) < 0)
		return;
	while ((slash = strrchr(path, '/')) && is_carves(slash + 1)) {
		*slash = '\0';
		leaves = true;
	}
	if (leaves)
		(void)file_write(path, "cgroup.procs", "0");
}
