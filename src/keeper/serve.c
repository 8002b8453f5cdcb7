/* The keeper's loop. It waits for events alone, never for a time or for one peer: what cannot be
 * sent now is sent when the peer takes it. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/socket.h"
#include "keeper/keeper.h"

/* A daemon, the one after it, and room for what else its user tries. */
#define PEERS_MAX 8
/* While nobody is connected it looks this often whether its socket can be found still. */
#define LOOK_MS 2000
#define WATCHED (IN_DELETE | IN_DELETE_SELF | IN_MOVED_FROM | IN_MOVE_SELF)

struct peer {
	int fd;
	bool listing;
	size_t list_at; /* the next one to send */
};

struct keeper {
	int listen_fd, watch_fd;
	const char *dir;
	struct stat socket; /* its file in `dir`, when the keeper started */
	struct hoard hoard;
	struct peer peers[PEERS_MAX];
	size_t peer_count;
};

/* Whether a daemon that starts now would find this keeper. */
static bool can_be_found(const struct keeper *k)
{
	char path[PATH_MAX];
	struct stat now;

	snprintf(path, sizeof(path), "%s/" KEEP_SOCKET, k->dir);
	return stat(path, &now) == 0 && now.st_dev == k->socket.st_dev &&
	       now.st_ino == k->socket.st_ino;
}

/* ---- peers ------------------------------------------------------------------------------- */

/* Goes on with the answer to KEEP_LIST. False: the peer is gone. */
static bool list_go_on(const struct keeper *k, struct peer *p)
{
	while (p->listing) {
		bool more = p->list_at < k->hoard.count;
		const struct held *held = more ? &k->hoard.held[p->list_at] : NULL;
		struct keep_message message =
			keep_message_make(more ? KEEP_HELD : KEEP_END, more ? held->name : "");
		int rc = descriptors_send(p->fd, &message, sizeof(message), more ? &held->fd : NULL,
					  more);

		/* Too many are under way: the peer takes some, and there is room for more. */
		if (rc == -EAGAIN || rc == -ETOOMANYREFS)
			return true;
		if (rc < 0)
			return false;
		p->listing = more;
		p->list_at++;
	}
	return true;
}

static void put(struct keeper *k, const struct peer *p, const char *name, int fd)
{
	/* None came: this process had no room for it. */
	int rc = fd < 0 ? -EMFILE : hoard_put(&k->hoard, name, fd);

	if (rc == 0)
		return;
	close_fd(&fd);
	struct keep_message refused = keep_message_make(KEEP_REFUSED, name);
	refused.error = -rc;
	(void)descriptors_send(p->fd, &refused, sizeof(refused), NULL, 0);
}

static void obey(struct keeper *k, struct peer *p, const struct keep_message *message, int fd)
{
	if (message->op == KEEP_PUT) {
		put(k, p, message->name, fd);
		return;
	}
	close_fd(&fd);
	if (message->op == KEEP_DROP)
		hoard_drop(&k->hoard, message->name);
	if (message->op == KEEP_LIST) {
		p->listing = true;
		p->list_at = 0;
	}
}

/* Takes all that it sent. False: it hung up, or sent what no daemon sends. */
static bool peer_hear(struct keeper *k, struct peer *p)
{
	struct keep_message message;
	int fd;

	for (;;) {
		ssize_t n = descriptor_receive(p->fd, &message, sizeof(message), &fd);

		if (n == -EAGAIN)
			return true;
		if (n == -EINTR)
			continue;
		if (n <= 0 || keep_message_check(&message, (size_t)n) < 0) {
			close_fd(&fd);
			return false;
		}
		obey(k, p, &message, fd);
	}
}

static void peer_close(struct keeper *k, size_t at)
{
	close_fd(&k->peers[at].fd);
	k->peers[at] = k->peers[--k->peer_count];
}

static bool is_ours(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

static void accept_all(struct keeper *k)
{
	int fd;

	while ((fd = accept4(k->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
		if (k->peer_count == PEERS_MAX || !is_ours(fd))
			close_fd(&fd);
		else
			k->peers[k->peer_count++] = (struct peer){.fd = fd};
	}
}

/* ---- the loop ---------------------------------------------------------------------------- */

static bool is_needed(const struct keeper *k)
{
	return k->peer_count || (k->hoard.count && can_be_found(k));
}

static void events_drop(int fd)
{
	char events[4096];

	while (read(fd, events, sizeof(events)) > 0)
		;
}

/* All are heard before any is answered, or a new one is let in. So the list that the next daemon
 * gets has what a daemon had sent when it was killed. */
static void peers_serve(struct keeper *k)
{
	for (size_t i = k->peer_count; i-- > 0;)
		if (!peer_hear(k, &k->peers[i]))
			peer_close(k, i);
	for (size_t i = k->peer_count; i-- > 0;)
		if (!list_go_on(k, &k->peers[i]))
			peer_close(k, i);
}

static void turn(struct keeper *k)
{
	struct pollfd fds[2 + PEERS_MAX] = {{.fd = k->listen_fd, .events = POLLIN},
					    {.fd = k->watch_fd, .events = POLLIN}};

	for (size_t i = 0; i < k->peer_count; i++)
		fds[2 + i] =
			(struct pollfd){.fd = k->peers[i].fd,
					.events = k->peers[i].listing ? POLLIN | POLLOUT : POLLIN};
	/* A mount that is gone and a directory above that has another name are no events. */
	if (poll(fds, 2 + k->peer_count, k->peer_count ? -1 : LOOK_MS) < 0)
		return;
	events_drop(k->watch_fd);
	peers_serve(k);
	accept_all(k);
}

void keeper_serve(int listen_fd, const char *dir)
{
	struct keeper k = {.listen_fd = listen_fd, .dir = dir};
	char path[PATH_MAX];

	k.watch_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	snprintf(path, sizeof(path), "%s/" KEEP_SOCKET, dir);
	/* Watched first: what becomes of the socket after the look at it is an event. */
	if (k.watch_fd < 0 || inotify_add_watch(k.watch_fd, dir, WATCHED) < 0 ||
	    stat(path, &k.socket) < 0)
		return;
	/* The daemon connects before it starts the keeper. */
	accept_all(&k);
	while (is_needed(&k))
		turn(&k);
	hoard_free(&k.hoard);
}
