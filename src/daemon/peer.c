#include "daemon/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/file.h"

struct process_watch {
	uv_poll_t poll;
	int pidfd;
	process_watch_cb cb;
	void *arg;
};

#define TICKS_BITS 40
#define TICKS_MASK ((1ull << TICKS_BITS) - 1)
#define SERIAL_MAX ((1ull << (64 - TICKS_BITS)) - 1)
/* Newer than the C library's headers. */
#define PIDFS_MAGIC 0x50494446
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

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

/* Where a pidfd's inode is the process's own: its file system. */
static bool is_pidfs(int pidfd)
{
	struct statfs fs;

	return fstatfs(pidfd, &fs) == 0 && fs.f_type == PIDFS_MAGIC;
}

/* Of the kernel's number for the process; never 0. */
static uint64_t serial_of(int pidfd)
{
	struct stat st;

	if (!is_pidfs(pidfd) || fstat(pidfd, &st) < 0)
		return 0;
	return st.st_ino % SERIAL_MAX + 1;
}

/* The process of the descriptor, whose PID is or was this one. */
static int identify_by(int pidfd, pid_t pid, struct process_id *ret)
{
	unsigned long long ticks;
	int rc = process_start_time(pid, &ticks);

	if (rc < 0)
		return rc;
	/* It is not reaped, so it has its PID still, and had it just now. */
	if (syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) < 0 && errno == ESRCH)
		return -ESRCH;
	*ret = (struct process_id){.pid = pid,
				   .birth = (ticks & TICKS_MASK) | serial_of(pidfd) << TICKS_BITS};
	return 0;
}

int process_identify(pid_t pid, struct process_id *ret)
{
	cleanup_close int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

	return pidfd < 0 ? -errno : identify_by(pidfd, pid, ret);
}

bool process_same(struct process_id a, struct process_id b)
{
	uint64_t differ = a.birth ^ b.birth;

	if (a.pid != b.pid || differ & TICKS_MASK)
		return false;
	return !differ || !(a.birth >> TICKS_BITS) || !(b.birth >> TICKS_BITS);
}

bool process_not_younger(struct process_id a, struct process_id b)
{
	return (a.birth & TICKS_MASK) <= (b.birth & TICKS_MASK);
}

bool process_parent_find(struct process_id process, struct process_id *ret)
{
	struct process_id found = {0};
	pid_t parent;

	if (process_parent(process.pid, &parent) < 0 || parent <= 1 ||
	    process_identify(parent, &found) < 0 || !process_not_younger(found, process))
		return false;
	*ret = found;
	return true;
}

bool process_descends_from(struct process_id process, struct process_id ancestor)
{
	bool found = process_same(process, ancestor);

	for (int i = 0; !found && i < PROCESS_ANCESTORS_MAX; i++) {
		if (!process_parent_find(process, &process))
			return false;
		found = process_same(process, ancestor);
	}
	return found;
}

/* A descriptor of the process that connected, or of who has its PID now where the kernel can't. */
static int peer_pidfd(int fd, pid_t pid)
{
	socklen_t size = sizeof(int);
	int pidfd = -1;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0)
		return pidfd;
	if (errno != ENOPROTOOPT)
		return -ESRCH;
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	return pidfd < 0 ? -errno : pidfd;
}

int peer_identify(int fd, struct peer *ret)
{
	struct ucred credentials;
	socklen_t size = sizeof(credentials);
	struct process_id process = {0};

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0)
		return -errno;
	if (credentials.pid <= 0)
		return -ESRCH;
	cleanup_close int pidfd = peer_pidfd(fd, credentials.pid);
	int rc = pidfd < 0 ? pidfd : identify_by(pidfd, credentials.pid, &process);
	if (rc < 0)
		return rc;
	*ret = (struct peer){
		.process = process,
		.uid = credentials.uid,
		.gid = credentials.gid,
		.admin = credentials.uid == 0 || in_admin_group(fd, credentials.gid),
	};
	return 0;
}

bool process_alive(struct process_id process)
{
	struct process_id now = {0};

	return process_identify(process.pid, &now) == 0 && process_same(now, process);
}

uint64_t process_mount_namespace(struct process_id process)
{
	struct stat own, its;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)process_thread(process.pid));
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
	struct process_id named = {0};
	if (identify_by(pidfd, process.pid, &named) < 0 || !process_same(named, process))
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

int process_watch_descriptor(const struct process_watch *watch)
{
	return watch ? watch->pidfd : -1;
}

int process_watch_signal(const struct process_watch *watch, int signal)
{
	return syscall(SYS_pidfd_send_signal, watch->pidfd, signal, NULL, 0) < 0 ? -errno : 0;
}
