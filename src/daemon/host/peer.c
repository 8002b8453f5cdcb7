#include "daemon/host/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"

struct process_watch {
	uv_poll_t poll;
	int pidfd;
	process_watch_cb cb;
	void *arg;
};

/* Newer than the C library's headers. */
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define ADMIN_GROUP "carve"

/* The group's number; looked up once, before the loop runs, as that may ask a server. (gid_t)-1:
 * there is no such group.
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

bool peer_permitted(const struct peer *viewer, uid_t owner)
{
	return viewer->uid == owner || viewer->admin;
}

void peer_load(void)
{
	(void)admin_group();
}

/* As the kernel noted them when the peer connected: not the files' of today. One who is in more
 * groups than are asked for is taken to be in none. */
static void groups_read(int fd, struct groups *ret)
{
	socklen_t size = sizeof(ret->gid);

	ret->count = 0;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, ret->gid, &size) == 0)
		ret->count = (unsigned)(size / sizeof(gid_t));
}

static bool is_admin(const struct peer *peer)
{
	gid_t admin = peer->uid == 0 ? 0 : admin_group();

	return peer->uid == 0 ||
	       (admin != (gid_t)-1 && (peer->gid == admin || groups_have(&peer->groups, admin)));
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
	int rc = pidfd < 0 ? pidfd : process_identify_by(pidfd, credentials.pid, &process);
	if (rc < 0)
		return rc;
	*ret = (struct peer){
		.process = process,
		.uid = credentials.uid,
		.gid = credentials.gid,
	};
	groups_read(fd, &ret->groups);
	ret->admin = is_admin(ret);
	return 0;
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
	cleanup_close int pidfd = process_open(process);

	if (pidfd < 0)
		return pidfd;
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
