/* The identity of the peer of a Unix socket, and the end of processes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "base/process.h"
#include "daemon/host/groups.h"

struct peer {
	struct process_id process;
	uid_t uid; /* peer_uid() */
	gid_t gid;
	struct groups groups; /* without that one */
	bool admin;           /* root of the host, or a member of group `carve` */
	bool of_pod; /* root of another container of the daemon's pod (pod.h): user 0 here, and
			an administrator, for what the kubelet's plugin asks alone */
};

/* The user who connected, by the kernel: 0 for root of the host, and of the daemon's own pod. Root
 * of any other container has a number of its own (host/bounded_root.h). (uid_t)-1: nobody
 * connected. */
uid_t peer_uid(int fd);
/* Reads the peer's credentials, as the kernel noted them when it connected. Returns 0 or -errno;
 * -ESRCH where the process has ended since, or is in a PID namespace that this one does not see.
 * Another process that has its PID by now is not taken for it. Kernels before 6.5 do not notice a
 * PID that came back between the connecting and this call. */
int peer_identify(int fd, struct peer *ret);

/* It is root of no host after all, but of a container. */
void peer_bound(struct peer *peer);

/* Whether this peer (the owner, root, or one of group `carve`) may see and change things of
 * `owner`. */
bool peer_permitted(const struct peer *viewer, uid_t owner);

/* Whether the viewer is in one of these groups, by the kernel's word on both. Root of a container
 * is in none, because such a user can be given any group there. */
bool peer_shares_group(const struct peer *viewer, gid_t gid, const struct groups *groups);

/* Looks for the group `carve`, which may ask a server: before the loop runs. */
void peer_load(void);

/* Calls once, on the loop, when a process has ended: of watches of one process the newest first.
 * These have one descriptor together. Loop thread. */
struct process_watch;
typedef void (*process_watch_cb)(void *arg);
/* -ESRCH where that process (this PID with this birth) is gone already; else 0 or -errno. */
int process_watch_start(uv_loop_t *loop, struct process_id process, process_watch_cb cb, void *arg,
			struct process_watch **ret);
/* Takes NULL. The callback is not called any more. */
void process_watch_stop(struct process_watch *watch);
/* Its pidfd, which can be read when the process has ended; -1 of NULL. */
int process_watch_descriptor(const struct process_watch *watch);
