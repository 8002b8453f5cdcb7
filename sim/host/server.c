#include "host/server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"
#include "host/command.h"
#include "host/host.h"

#define BACKLOG 512
#define EVENTS_MAX 512
#define NS_PER_S 1000000000u

/* A descriptor in the epoll set and what to do when it is ready. First member of what it is part
 * of. */
struct watch {
	int fd;
	bool ending; /* the other end is closed: take what is left, then end */
	void (*ready)(struct server *s, struct watch *w);
};

struct connection {
	struct watch watch;
	struct list node; /* in server.connections */
	struct process *process;
};

struct anchor_watch {
	struct watch watch;
	struct list node; /* in server.anchors */
	struct host_anchor *anchor;
};

struct server {
	struct host *host;
	int epoll;
	struct watch listener, timer, stop;
	struct list connections, anchors;
	/* Closed in this round of events, and freed at its end: later events may still name them.
	 */
	struct list closed;
	bool stopping;
	uint64_t armed; /* the time for which the timer is set; UINT64_MAX: none */
	union {
		struct wire_head head;
		_Alignas(8) char bytes[WIRE_PACKET_MAX];
	} request;
	struct exchange exchange;
};

static uint64_t clock_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static int watch_add(struct server *s, struct watch *w, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = w};

	return epoll_ctl(s->epoll, EPOLL_CTL_ADD, w->fd, &event) < 0 ? -errno : 0;
}

/* ---- connections ---- */

static void connection_close(struct server *s, struct connection *c)
{
	host_process_remove(c->process);
	c->process = NULL;
	close_fd(&c->watch.fd);
	list_remove(&c->node);
	list_append(&s->closed, &c->node);
}

static void process_end(void *context, struct process *p)
{
	struct server *s = context;

	list_for_each_safe (node, &s->connections) {
		struct connection *c = list_entry(node, struct connection, node);

		if (c->process == p) {
			connection_close(s, c);
			return;
		}
	}
}

/* The first descriptor that came along, -1 if none; further ones are closed. */
static int take_fd(struct msghdr *msg)
{
	int first = -1;

	for (struct cmsghdr *m = CMSG_FIRSTHDR(msg); m; m = CMSG_NXTHDR(msg, m)) {
		if (m->cmsg_level != SOL_SOCKET || m->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (m->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(m) + i * sizeof(int), sizeof(fd));
			if (first < 0)
				first = fd;
			else
				close(fd);
		}
	}
	return first;
}

static ssize_t message_receive(struct server *s, int fd)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = &s->request, .iov_len = sizeof(s->request)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = sizeof(control)};
	ssize_t n;

	do {
		n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	s->exchange.fd = take_fd(&msg);
	if (msg.msg_flags & MSG_TRUNC)
		return 0; /* too long for any message: as good as gone */
	return n;
}

static bool reply_send(struct server *s, int fd)
{
	struct exchange *x = &s->exchange;
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(COMMAND_FDS_MAX * sizeof(int))];
	} control = {0};
	struct iovec iov = {.iov_base = &x->reply, .iov_len = x->reply_size};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	size_t count = 0;

	while (count < COMMAND_FDS_MAX && x->reply_fd[count] >= 0)
		count++;
	if (count) {
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(&control.header), x->reply_fd, count * sizeof(int));
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(count * sizeof(int));
	}
	/* A client that asks without reading the answers has itself to blame when there is no room.
	 */
	return sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)x->reply_size;
}

/* One message. False: the connection is over. */
static bool connection_serve(struct server *s, struct connection *c, size_t size)
{
	struct exchange *x = &s->exchange;

	x->process = c->process;
	x->request = &s->request;
	x->size = size;
	/* Now, not when the round of events began: work must not start before it was handed in. */
	host_tick(s->host, clock_now());
	bool ok = command_run(s->host, x);
	if (ok && x->reply_size)
		ok = reply_send(s, c->watch.fd);
	if (x->reply_fd_owned)
		close_fd(&x->reply_fd[0]);
	x->reply_fd_owned = false;
	return ok;
}

static void connection_ready(struct server *s, struct watch *w)
{
	struct connection *c = (struct connection *)w;

	if (!c->process)
		return;
	/* One message a turn: between two of them another process may end, which epoll tells, and a
	 * process that asks after its end must see its memory free. If it ended, all messages that
	 * are left are read. */
	do {
		s->exchange.fd = -1;
		ssize_t n = message_receive(s, w->fd);

		if (n == -EAGAIN)
			return;
		bool ok = n > 0 && connection_serve(s, c, (size_t)n);
		close_fd(&s->exchange.fd);
		if (!ok) {
			connection_close(s, c);
			return;
		}
	} while (w->ending);
}

static void connection_add(struct server *s, int socket_fd)
{
	cleanup_close int fd = socket_fd;
	struct ucred peer;
	socklen_t length = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0)
		return;
	struct connection *c = calloc(1, sizeof(*c));
	struct process *p = c ? host_process_add(s->host, peer.pid, peer.uid) : NULL;
	if (!p) {
		free(c);
		return;
	}
	c->watch = (struct watch){.fd = steal_fd(&fd), .ready = connection_ready};
	c->process = p;
	list_append(&s->connections, &c->node);
	if (watch_add(s, &c->watch, EPOLLIN | EPOLLRDHUP) < 0)
		connection_close(s, c);
}

static void listener_ready(struct server *s, struct watch *w)
{
	int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd >= 0)
		connection_add(s, fd);
}

/* ---- shared memory that only a descriptor holds ---- */

static void anchor_ready(struct server *s, struct watch *w)
{
	struct anchor_watch *a = (struct anchor_watch *)w;
	char byte[64];
	ssize_t n;

	if (!a->anchor)
		return;
	/* Holders of the other end may write to it; only its end matters. */
	do {
		n = recv(w->fd, byte, sizeof(byte), MSG_DONTWAIT);
	} while (n > 0);
	if (n < 0 && errno == EAGAIN)
		return;
	host_anchor_remove(s->host, a->anchor);
	a->anchor = NULL;
	list_remove(&a->node);
	list_append(&s->closed, &a->node);
}

static int anchor_add(void *context, struct host_anchor *anchor)
{
	struct server *s = context;
	struct anchor_watch *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	a->watch = (struct watch){.fd = anchor->fd, .ready = anchor_ready};
	a->anchor = anchor;
	int status = watch_add(s, &a->watch, EPOLLIN | EPOLLRDHUP);
	if (status < 0) {
		free(a);
		return status;
	}
	list_append(&s->anchors, &a->node);
	return 0;
}

/* ---- the loop ---- */

static void timer_ready(struct server *s, struct watch *w)
{
	uint64_t times;

	s->armed = UINT64_MAX;
	if (read(w->fd, &times, sizeof(times)) < 0)
		return; /* set anew meanwhile */
}

static void stop_ready(struct server *s, struct watch *w)
{
	s->stopping = true;
}

static void timer_arm(struct server *s)
{
	uint64_t wake = host_wake(s->host);
	struct itimerspec spec = {0};

	if (wake == s->armed)
		return;
	s->armed = wake;
	if (wake != UINT64_MAX) {
		spec.it_value.tv_sec = (time_t)(wake / NS_PER_S);
		spec.it_value.tv_nsec = (long)(wake % NS_PER_S);
	}
	timerfd_settime(s->timer.fd, TFD_TIMER_ABSTIME, &spec, NULL);
}

static void closed_free(struct server *s)
{
	list_for_each_safe (node, &s->closed) {
		/* Both kinds begin with a watch, the list's node follows. */
		_Static_assert(offsetof(struct connection, node) ==
				       offsetof(struct anchor_watch, node),
			       "one list holds both");
		list_remove(node);
		free(list_entry(node, struct connection, node));
	}
}

/* Ended processes come first: a client that asks after a process's end must see its memory free. */
static void events_serve(struct server *s, const struct epoll_event *events, int count)
{
	for (int i = 0; i < count; i++) {
		struct watch *w = events[i].data.ptr;

		w->ending = events[i].events & (EPOLLHUP | EPOLLRDHUP);
		if (w->ending)
			w->ready(s, w);
	}
	for (int i = 0; i < count; i++) {
		struct watch *w = events[i].data.ptr;

		if (!w->ending)
			w->ready(s, w);
	}
}

int server_run(struct server *s, int stop_fd)
{
	struct epoll_event events[EVENTS_MAX];

	s->stop = (struct watch){.fd = stop_fd, .ready = stop_ready};
	int status = watch_add(s, &s->stop, EPOLLIN);
	while (status == 0 && !s->stopping) {
		int n = epoll_wait(s->epoll, events, EVENTS_MAX, -1);

		if (n < 0 && errno != EINTR)
			status = -errno;
		host_tick(s->host, clock_now());
		events_serve(s, events, n);
		closed_free(s);
		/* Work that was handed in just now may take no time at all. */
		host_tick(s->host, clock_now());
		host_publish(s->host);
		timer_arm(s);
	}
	return status;
}

static int listener_open(const char *directory)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int n = snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", directory,
			 WIRE_SOCKET_NAME);

	if (n >= (int)sizeof(address.sun_path))
		return -ENAMETOOLONG;
	cleanup_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(fd, BACKLOG) < 0)
		return -errno;
	return steal_fd(&fd);
}

int server_new(struct host *host, const char *directory, struct server **ret)
{
	struct server *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->host = host;
	s->armed = UINT64_MAX;
	list_init(&s->connections);
	list_init(&s->anchors);
	list_init(&s->closed);
	s->epoll = epoll_create1(EPOLL_CLOEXEC);
	s->listener = (struct watch){.fd = listener_open(directory), .ready = listener_ready};
	s->timer = (struct watch){.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK),
				  .ready = timer_ready};
	int status = s->listener.fd < 0 ? s->listener.fd : watch_add(s, &s->listener, EPOLLIN);
	if (status == 0)
		status = watch_add(s, &s->timer, EPOLLIN);
	if (status < 0) {
		server_free(s);
		return status;
	}
	host->anchor_watch = anchor_add;
	host->watch_context = s;
	host->process_end = process_end;
	*ret = s;
	return 0;
}

void server_free(struct server *s)
{
	if (!s)
		return;
	list_for_each_safe (node, &s->connections)
		connection_close(s, list_entry(node, struct connection, node));
	list_for_each_safe (node, &s->anchors) {
		struct anchor_watch *a = list_entry(node, struct anchor_watch, node);

		host_anchor_remove(s->host, a->anchor);
		list_remove(node);
		list_append(&s->closed, node);
	}
	closed_free(s);
	close_fd(&s->listener.fd);
	close_fd(&s->timer.fd);
	close_fd(&s->epoll);
	free(s);
}
