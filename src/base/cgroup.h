/* Cgroups of version 2 as groups of processes that can be killed at once; no controller is used.
 * Paths are absolute. All of it fails where the hierarchy cannot be written, as in most containers
 * and in logins of users to whom none was delegated; then callers do without. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The beginning of the name of the cgroup in which the warden makes one for each job, which becomes
 * the job's user's. */
#define CGROUP_JOBS "carve-jobs-"
/* The beginning of the name of a job's cgroup, which its shim makes in its own. */
#define CGROUP_JOB "carve-job-"
/* The prefix of the name of a session's cgroup, which carries the driver's limit of its memory:
 * part of the ABI of proto/warden_limits.h. */
#define CGROUP_SESSION "carve-s-"

/* Deeper ones are not removed. */
#define CGROUP_DEPTH_MAX 8

/* The directory on which the hierarchy is mounted. 0 or -errno; -ENOENT: nowhere; -ENAMETOOLONG. */
int cgroup_mount(char *ret, size_t size);
/* Gives the path of a process (0: this one) as /proc/PID/cgroup has it. It is in the hierarchy of
 * version 1 of these controllers, or ("") in that of version 2. 0 or -errno; -ENOENT: there is no
 * such hierarchy. */
int cgroup_path(pid_t pid, const char *controllers, char *ret, size_t size);
/* Whether a process is in a cgroup whose name has `name` in it and that root made: one that lies in
 * a directory that only root writes to. A user may call cgroups of the user's own anything. */
bool cgroup_is_named_by_root(pid_t pid, const char *name);
/* The directory of the cgroup that a process (0: this one) is in. 0 or -errno, with "" then;
 * -ENOENT: none that is to be seen from here; -ENAMETOOLONG. */
int cgroup_of(pid_t pid, char *ret, size_t size);
/* Likewise, in the hierarchy of version 1 that has this controller alone, as systemd mounts it. */
int cgroup_of_1(const char *controller, char *ret, size_t size);
/* Makes the one of this name in another; one that is there is taken. 0 or -errno, with "" then. */
int cgroup_make(const char *parent, const char *name, char ret[static PATH_MAX]);
/* As fork(), but the child is born in that cgroup, where the kernel can do so (5.7). "": in this
 * process's. */
pid_t cgroup_fork(const char *path);
/* Writes a text to a file of the cgroup in one piece. 0 or -errno. */
int cgroup_write(const char *path, const char *file, const char *text);
/* Kills all processes in it and below, also those that are being forked. 0 or -errno. Needs Linux
 * 5.14. */
int cgroup_kill(const char *path);
/* Nobody is in it or below it, or it is gone. Reads a few bytes of the kernel's. */
bool cgroup_is_empty(const char *path);
/* Removes a cgroup and the empty cgroups in it, one after the other until `end_ns`
 * (CLOCK_MONOTONIC). 0, also where it was gone, or -errno. -EAGAIN: the time was over, and the next
 * call goes on. -EBUSY: it has processes. */
int cgroup_remove_until(const char *path, uint64_t end_ns);
/* A daemon is no part of a job or a session that had to start it: leaves the cgroup of that for the
 * one above. */
void cgroup_leave_job(void);
