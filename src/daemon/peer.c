#include "daemon/peer.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"

struct process_watch {
	uv_poll_t poll;
	int pidfd;
	process_watch_cb cb;
	void *arg;
};

#define ADMIN_GROUP "carve"
#define GROUPS_MAX 256

/* The group's number; looked up once, as that may ask a server. (gid_t)-1: there is no such group.
 */
static gid_t admin_group(void)
{
	static gid_t cached;
	static bool known;
	struct group entry, *found = NULL;
	char buffer[4096];

	if (!known) {
		known = true;
		cached = getgrnam_r(ADMIN_GROUP, &entry, buffer, sizeof(buffer), &found) == 0 &&
					 found
				 ? found->gr_gid
				 : (gid_t)-1;
	}
	return cached;
}

/* Membership as the kernel noted it when the peer connected: its groups, not the files' of today.
 */
static bool in_admin_group(int fd, gid_t primary)
{
	gid_t groups[GROUPS_MAX], admin = admin_group();
	socklen_t size = sizeof(groups);

	if (admin == (gid_t)-1)
		return false;
	if (primary == admin)
		return true;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size) < 0)
		return false;
	for (size_t i = 0; i < size / sizeof(gid_t); i++)
		if (groups[i] == admin)
			return true;
	return false;
}

int peer_identify(int fd, struct peer *ret)
{
	struct ucred credentials;
	socklen_t size = sizeof(credentials);
	unsigned long long start_time;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0)
		return -errno;
	if (credentials.pid <= 0)
		return -ESRCH;
	int rc = process_start_time(credentials.pid, &start_time);
	if (rc < 0)
		return rc;
	*ret = (struct peer){
		.process = {.pid = credentials.pid, .start_time = start_time},
		.uid = credentials.uid,
		.gid = credentials.gid,
		.admin = credentials.uid == 0 || in_admin_group(fd, credentials.gid),
	};
	return 0;
}

bool process_alive(struct process_id process)
{
	unsigned long long start_time;

	return process_start_time(process.pid, &start_time) == 0 &&
	       start_time == process.start_time;
}

uint64_t process_mount_namespace(struct process_id process)
{
	struct stat own, its;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)process.pid);
	if (stat("/proc/self/ns/mnt", &own) < 0 || stat(path, &its) < 0 || !process_alive(process))
		return 0;
	return its.st_ino == own.st_ino ? 0 : its.st_ino;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct process_watch *watch = poll->data;

	uv_poll_stop(poll);
	watch->cb(watch->arg);
}

static void on_closed(uv_handle_t *handle)
{
	struct process_watch *watch = handle->data;

	close_fd(&watch->pidfd);
	free(watch);
}

int process_watch_start(uv_loop_t *loop, struct process_id process, process_watch_cb cb, void *arg,
			struct process_watch **ret)
{
	cleanup_close int pidfd = (int)syscall(SYS_pidfd_open, process.pid, 0);

	if (pidfd < 0)
		return -errno;
	/* In this order: what the descriptor names now had this start time or is dead. */
	if (!process_alive(process))
		return -ESRCH;
	struct process_watch *watch = calloc(1, sizeof(*watch));
	if (!watch)
		return -ENOMEM;
	int rc = uv_poll_init(loop, &watch->poll, pidfd);
	if (rc < 0) {
		free(watch);
		return rc;
	}
	watch->pidfd = steal_fd(&pidfd);
	watch->poll.data = watch;
	watch->cb = cb;
	watch->arg = arg;
	rc = uv_poll_start(&watch->poll, UV_READABLE, on_readable);
	if (rc < 0) {
		process_watch_stop(watch);
		return rc;
	}
	*ret = watch;
	return 0;
}

void process_watch_stop(struct process_watch *watch)
{
	if (!watch)
		return;
	uv_poll_stop(&watch->poll);
	uv_close((uv_handle_t *)&watch->poll, on_closed);
}

int process_watch_signal(const struct process_watch *watch, int signal)
{
	return syscall(SYS_pidfd_send_signal, watch->pidfd, signal, NULL, 0) < 0 ? -errno : 0;
}

static int64_t clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

uint64_t now_monotonic_ns(void)
{
	return (uint64_t)clock_ns(CLOCK_MONOTONIC);
}

int64_t now_realtime_ns(void)
{
	return clock_ns(CLOCK_REALTIME);
}
