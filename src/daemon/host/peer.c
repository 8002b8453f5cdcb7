#include "daemon/host/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/host_root.h"
#include "base/socket.h"
#include "daemon/host/bounded_root.h"
#include "daemon/host/pod.h"

struct watched;

struct process_watch {
	struct process_watch *next, **at; /* at: NULL once it is called */
	struct watched *of;
	process_watch_cb cb;
	void *arg;
};

/* A process that watches wait for: the session and the job of a shim are two of one process. */
struct watched {
	struct watched *next; /* the next one in its bucket */
	uv_poll_t poll;
	struct process_id id;
	int pidfd;
	bool ended;                    /* in no bucket any more */
	unsigned count;                /* the number of watches that are not stopped */
	struct process_watch *watches; /* not called yet, the newest first */
};

#define WATCHED_BUCKETS 1024u
static struct watched *watched_of[WATCHED_BUCKETS]; /* by PID; of all loops of this thread */

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

/* The kernel shows this number for any group that the daemon's user namespace has no number for. So
 * two users with the number need not have a group in common. */
#define OVERFLOW_GROUP 65534u

static int by_number(const void *a, const void *b)
{
	const gid_t *one = a, *other = b;

	return (*one > *other) - (*one < *other);
}

bool peer_shares_group(const struct peer *viewer, gid_t gid, const struct groups *groups)
{
	gid_t own[PEER_GROUPS_MAX + 1];
	size_t count = viewer->groups.count;
	bool shared = false;

	if (uid_is_bounded_root(viewer->uid))
		return false;
	memcpy(own, viewer->groups.gid, count * sizeof(*own));
	own[count++] = viewer->gid;
	qsort(own, count, sizeof(*own), by_number);
	for (unsigned i = 0; i <= groups->count && !shared; i++) {
		gid_t other = i < groups->count ? groups->gid[i] : gid;

		shared = other != OVERFLOW_GROUP &&
			 bsearch(&other, own, count, sizeof(*own), by_number);
	}
	return shared;
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

	/* Root of a container can be given any group there. */
	return peer->uid == 0 || (!uid_is_bounded_root(peer->uid) && admin != (gid_t)-1 &&
				  (peer->gid == admin || groups_have(&peer->groups, admin)));
}

/* A descriptor of the process that connected, or of who has its PID now where the kernel can't. */
static int peer_pidfd(int fd, pid_t pid)
{
	int pidfd = socket_peer_pidfd(fd);

	if (pidfd != -ENOPROTOOPT)
		return pidfd;
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	return pidfd < 0 ? -errno : pidfd;
}

/* Its process is looked at, and has to be there afterwards: its PID is no other's until then. */
static uid_t uid_of(const struct ucred *credentials, bool *ret_of_pod)
{
	*ret_of_pod = false;
	if (credentials->uid != 0 || host_root_is(credentials->pid))
		return credentials->uid;
	*ret_of_pod = pod_has(credentials->pid);
	return *ret_of_pod ? 0 : bounded_root_of(credentials->pid);
}

static int credentials_read(int fd, struct ucred *ret)
{
	socklen_t size = sizeof(*ret);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret, &size) < 0 ? -errno : 0;
}

uid_t peer_uid(int fd)
{
	struct ucred credentials;

	if (credentials_read(fd, &credentials) < 0)
		return (uid_t)-1;
	if (credentials.uid != 0)
		return credentials.uid;
	cleanup_close int pidfd = credentials.pid > 0 ? peer_pidfd(fd, credentials.pid) : -ESRCH;
	if (pidfd < 0)
		return BOUNDED_ROOT_FIRST;
	bool of_pod;
	uid_t uid = uid_of(&credentials, &of_pod);
	bool gone = syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) < 0 && errno == ESRCH;
	return gone ? BOUNDED_ROOT_FIRST : uid;
}

int peer_identify(int fd, struct peer *ret)
{
	struct ucred credentials;
	struct process_id process = {0};
	int rc = credentials_read(fd, &credentials);

	if (rc < 0)
		return rc;
	if (credentials.pid <= 0)
		return -ESRCH;
	cleanup_close int pidfd = peer_pidfd(fd, credentials.pid);
	if (pidfd < 0)
		return pidfd;
	bool of_pod;
	uid_t uid = uid_of(&credentials, &of_pod);
	rc = process_identify_by(pidfd, credentials.pid, &process);
	if (rc < 0)
		return rc;
	*ret = (struct peer){
		.process = process,
		.uid = uid,
		.gid = credentials.gid,
		.of_pod = of_pod,
	};
	groups_read(fd, &ret->groups);
	ret->admin = is_admin(ret);
	return 0;
}

void peer_bound(struct peer *peer)
{
	peer->uid = bounded_root_of(peer->process.pid);
	peer->admin = is_admin(peer);
}

static struct watched **watched_bucket(pid_t pid)
{
	return &watched_of[(unsigned)pid % WATCHED_BUCKETS];
}

/* NULL: nobody waits for that process, or it has ended. */
static struct watched *watched_find(const uv_loop_t *loop, struct process_id id)
{
	struct watched *at = *watched_bucket(id.pid);

	while (at && (at->poll.loop != loop || at->id.pid != id.pid || at->id.birth != id.birth))
		at = at->next;
	/* It is not reaped, so it is there still. */
	return at && syscall(SYS_pidfd_send_signal, at->pidfd, 0, NULL, 0) == 0 ? at : NULL;
}

static void watched_forget(const struct watched *watched)
{
	struct watched **at = watched_bucket(watched->id.pid);

	while (*at && *at != watched)
		at = &(*at)->next;
	if (*at)
		*at = watched->next;
}

static void on_closed(uv_handle_t *handle)
{
	struct watched *watched = handle->data;

	close_fd(&watched->pidfd);
	free(watched);
}

/* From the list of those that are not called. */
static void watch_take_out(struct process_watch *watch)
{
	if (!watch->at)
		return;
	*watch->at = watch->next;
	if (watch->next)
		watch->next->at = watch->at;
	watch->at = NULL;
}

static void watched_leave(struct watched *watched)
{
	if (--watched->count)
		return;
	if (!watched->ended)
		watched_forget(watched);
	uv_poll_stop(&watched->poll);
	uv_close((uv_handle_t *)&watched->poll, on_closed);
}

/* A callback may stop its own watch and any other one. */
static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct watched *watched = poll->data;

	uv_poll_stop(poll);
	watched_forget(watched);
	watched->ended = true;
	watched->count++; /* it stays until all are called */
	for (struct process_watch *watch; (watch = watched->watches);) {
		watch_take_out(watch);
		watch->cb(watch->arg);
	}
	watched_leave(watched);
}

/* A watch of it is to follow. */
static int watched_open(uv_loop_t *loop, struct process_id id, struct watched **ret)
{
	cleanup_close int pidfd = process_open(id);

	if (pidfd < 0)
		return pidfd;
	struct watched *watched = calloc(1, sizeof(*watched));
	if (!watched)
		return -ENOMEM;
	int rc = uv_poll_init(loop, &watched->poll, pidfd);
	if (rc < 0) {
		free(watched);
		return rc;
	}
	watched->pidfd = steal_fd(&pidfd);
	watched->poll.data = watched;
	watched->id = id;
	watched->next = *watched_bucket(id.pid);
	*watched_bucket(id.pid) = watched;
	rc = uv_poll_start(&watched->poll, UV_READABLE, on_readable);
	if (rc < 0) {
		watched->count = 1;
		watched_leave(watched);
		return rc;
	}
	*ret = watched;
	return 0;
}

int process_watch_start(uv_loop_t *loop, struct process_id process, process_watch_cb cb, void *arg,
			struct process_watch **ret)
{
	struct watched *watched = watched_find(loop, process);
	struct process_watch *watch = malloc(sizeof(*watch));
	int rc = !watch ? -ENOMEM : watched ? 0 : watched_open(loop, process, &watched);

	if (rc < 0) {
		free(watch);
		return rc;
	}
	*watch = (struct process_watch){.next = watched->watches,
					.at = &watched->watches,
					.of = watched,
					.cb = cb,
					.arg = arg};
	if (watch->next)
		watch->next->at = &watch->next;
	watched->watches = watch;
	watched->count++;
	*ret = watch;
	return 0;
}

void process_watch_stop(struct process_watch *watch)
{
	if (!watch)
		return;
	watch_take_out(watch);
	watched_leave(watch->of);
	free(watch);
}

int process_watch_descriptor(const struct process_watch *watch)
{
	return watch ? watch->of->pidfd : -1;
}
