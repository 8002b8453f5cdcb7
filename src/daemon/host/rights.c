#include "daemon/host/rights.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"

/* Newer than the C library's headers. */
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif
/* The kernel's SCM_MAX_FD: descriptors in one message. */
#define MESSAGE_MAX 253
/* Descriptors that one holder gets at most. */
#define HOLDER_MAX 4096u
/* Messages that a connection can have unread: what a sender may queue (2 * net.core.wmem_max by
 * default) has no room for more than about 550 of them. */
#define UNREAD_MAX 1024

union control {
	char data[CMSG_SPACE(MESSAGE_MAX * sizeof(int))];
	struct cmsghdr header;
};

static bool refused; /* by the kernel, on all sockets so far */
static bool asked;

/* The thread that has what was received. */
static struct {
	int socket;
	unsigned held, most;
} holder = {.socket = -1};

/* Those that no holder could be made for; tried again each second. */
static struct {
	int *fd;
	size_t count, room;
} kept;

bool rights_refuse(int fd)
{
	int off = 0;
	bool done = setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off)) == 0;

	refused = done && (refused || !asked);
	asked = true;
	return done;
}

/* ---- the holder -------------------------------------------------------------------------- */

struct start {
	int socket;
	bool apart;  /* the thread has a table of descriptors of its own */
	sem_t known; /* `apart` is set, and the thread needs this struct no longer */
};

/* The thread. It closes no descriptor that it receives: its table ends with it. */
static void *hold(void *arg)
{
	struct start *start = arg;
	unsigned socket = (unsigned)start->socket;
	union control control;
	char byte;
	struct iovec part = {.iov_base = &byte, .iov_len = 1};
	bool apart = unshare(CLONE_FILES) == 0;
	ssize_t n;

	start->apart = apart;
	sem_post(&start->known);
	if (!apart)
		return NULL;
	/* Copies of the daemon's own descriptors, which would keep their files open. */
	if (socket > 0)
		(void)syscall(SYS_close_range, 0u, socket - 1, 0u);
	(void)syscall(SYS_close_range, socket + 1, ~0u, 0u);
	do {
		struct msghdr message = {.msg_iov = &part,
					 .msg_iovlen = 1,
					 .msg_control = control.data,
					 .msg_controllen = sizeof(control.data)};

		/* ThreadSanitizer, which knows recvmsg(), takes all tables for one. */
		n = syscall(SYS_recvmsg, socket, &message, 0);
	} while (n > 0 || (n < 0 && errno == EINTR));
	return NULL;
}

/* Returns once the thread has its table: the loop has to keep the thread's end open until then. */
static bool hold_begin(int socket)
{
	struct start start = {.socket = socket};
	sigset_t all, before;
	pthread_t thread;

	sigfillset(&all);
	sem_init(&start.known, 0, 0);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	/* A handler of a signal would find none of the daemon's descriptors there. */
	bool begun = pthread_create(&thread, NULL, hold, &start) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	while (begun && sem_wait(&start.known) < 0)
		;
	if (begun)
		pthread_detach(thread);
	sem_destroy(&start.known);
	return begun && start.apart;
}

static unsigned holder_most(void)
{
	struct rlimit limit;

	/* Half of what it may have: one that it could not take would be closed by us after all. */
	return getrlimit(RLIMIT_NOFILE, &limit) == 0
		       ? (unsigned)MIN((rlim_t)HOLDER_MAX, limit.rlim_cur / 2)
		       : 0;
}

/* Ends as soon as it has taken what is in the socket. */
static void holder_end(void)
{
	close_fd(&holder.socket);
	holder.held = 0;
}

static bool holder_begin(void)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return false;
	bool begun = hold_begin(ends[1]);
	close(ends[1]);
	if (!begun) {
		close(ends[0]);
		return false;
	}
	holder.socket = ends[0];
	holder.held = 0;
	holder.most = holder_most();
	return true;
}

/* From then on ours are not the last ones. */
static bool holder_give(const int *fds, size_t count)
{
	union control control = {0};
	char byte = 0;
	struct iovec part = {.iov_base = &byte, .iov_len = 1};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control.data,
				 .msg_controllen = CMSG_SPACE(count * sizeof(int))};

	if (holder.socket >= 0 && holder.held + count > holder.most)
		holder_end();
	if (holder.socket < 0 && !holder_begin())
		return false;
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
	if (sendmsg(holder.socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
		return false;
	holder.held += (unsigned)count;
	return true;
}

static void keep(const int *fds, size_t count)
{
	if (kept.count + count > kept.room) {
		size_t room = MAX(2 * kept.room, kept.count + count);
		int *grown = realloc(kept.fd, room * sizeof(int));

		if (!grown)
			return; /* they stay open */
		kept.fd = grown;
		kept.room = room;
	}
	memcpy(kept.fd + kept.count, fds, count * sizeof(int));
	kept.count += count;
}

/* At most MESSAGE_MAX. False: they are open still. */
static bool let_go(const int *fds, size_t count)
{
	bool given = holder_give(fds, count);

	if (!given) { /* it does not keep up */
		holder_end();
		given = holder_give(fds, count);
	}
	for (size_t i = 0; given && i < count; i++)
		close(fds[i]);
	return given;
}

void rights_tick(void)
{
	while (kept.count) {
		size_t count = MIN(kept.count, (size_t)MESSAGE_MAX);

		if (!let_go(kept.fd + kept.count - count, count))
			break;
		kept.count -= count;
	}
	holder_end();
}

/* ---- receiving --------------------------------------------------------------------------- */

static void message_drop(struct msghdr *message)
{
	int fds[MESSAGE_MAX];
	size_t count = 0;

	for (struct cmsghdr *h = CMSG_FIRSTHDR(message); h; h = CMSG_NXTHDR(message, h)) {
		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		size_t size = MIN(h->cmsg_len - CMSG_LEN(0), sizeof(fds) - count * sizeof(int));

		memcpy(fds + count, CMSG_DATA(h), size);
		count += size / sizeof(int);
	}
	if (count && !let_go(fds, count))
		keep(fds, count);
}

ssize_t rights_recv(int fd, void *buf, size_t size, int flags)
{
	union control control;
	struct iovec part = {.iov_base = buf, .iov_len = size};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control.data,
				 .msg_controllen = sizeof(control.data)};

	if (refused)
		return recvfrom(fd, buf, size, flags, NULL, NULL);
	ssize_t n = recvmsg(fd, &message, flags | MSG_CMSG_CLOEXEC);
	if (n >= 0 && message.msg_controllen)
		message_drop(&message);
	return n;
}

void rights_drain(int fd)
{
	char rest[4096];

	(void)shutdown(fd, SHUT_RDWR);
	/* An empty message reads as the end does, so only an error ends this early. */
	for (int i = 0; !refused && i < UNREAD_MAX; i++)
		if (rights_recv(fd, rest, sizeof(rest), MSG_DONTWAIT) < 0)
			break;
}

void rights_close(int *fd)
{
	if (!refused)
		rights_drain(*fd);
	close_fd(fd);
}

void rights_close_listener(int *fd)
{
	if (refused)
		close_fd(fd);
	*fd = -1;
}
