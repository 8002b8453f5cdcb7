/* Root of a container, as a user of its own. The kernel names user ID 0 for it, but it can do
 * nothing on the host that root can (base/host_root.h). So the daemon never takes it for root: a
 * peer like that has a user ID of the range below in place of 0. Thus its budgets and turns are its
 * own, it owns nothing of root's, and no comparison of user IDs makes it an administrator. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* The last million of the user IDs, but for those that mean nobody. No distribution gives them
 * away. */
#define BOUNDED_ROOT_FIRST 0xfff00000u
#define BOUNDED_ROOT_LAST 0xfffeffffu

static inline bool uid_is_bounded_root(uid_t uid)
{
	return uid >= BOUNDED_ROOT_FIRST && uid <= BOUNDED_ROOT_LAST;
}

/* The user ID for a process of such a root: one for all processes of a cgroup, which a container
 * has of its own. Root of a container may be able to make cgroups, and so to be several of these:
 * budget.h bounds all of them together. */
uid_t bounded_root_of(pid_t pid);
