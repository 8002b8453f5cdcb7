#include "host/client_private.h"
#include "host/mig.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"
#include "base/trust.h"

#define FDS_MAX 2

/* A host that died without a word wakes nobody: whoever waits or asks looks for its hanging up so
 * often. */
#define HANGUP_CHECK_NS 200000000u

static bool hung_up(const struct client *c)
{
	char byte;
	ssize_t n = recv(c->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	return n == 0 || (n < 0 && errno == ECONNRESET);
}

static bool hangup_check_is_due(struct client *c)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	uint64_t now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	uint64_t last = atomic_load_explicit(&c->looked, memory_order_relaxed);
	return now - last >= HANGUP_CHECK_NS &&
	       atomic_compare_exchange_strong(&c->looked, &last, now);
}

bool client_is_lost(const struct client *c)
{
	return atomic_load_explicit(&c->broken, memory_order_relaxed);
}

bool client_looks_lost(struct client *c)
{
	if (!client_is_lost(c) && hangup_check_is_due(c) && hung_up(c))
		atomic_store(&c->broken, true);
	return client_is_lost(c);
}

int client_check(struct client *c)
{
	/* Threads that play streams are of the process that made them: no other can wait for them,
	 * and those that it made would end with it. */
	if (c->guard->parent != getpid())
		return -ECHILD;
	return client_looks_lost(c) ? -ENOTCONN : 0;
}

const struct wire_host *client_host(const struct client *c)
{
	return c->host;
}

int client_pid(const struct client *c)
{
	return c->pid;
}

uint64_t client_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int client_break(struct client *c, int error)
{
	atomic_store(&c->broken, true);
	return error;
}

static int packet_send(struct client *c, const void *message, size_t size, int fd)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {.iov_base = (void *)message, .iov_len = size};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (fd >= 0) {
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(int));
		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control);
	}
	do {
		n = sendmsg(c->socket, &msg, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n == (ssize_t)size)
		return 0;
	if (n < 0 && (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN))
		return client_break(c, -ENOTCONN);
	return n < 0 ? -errno : -EMSGSIZE;
}

/* Receives one packet and the descriptors with it; slots without one are -1. Returns its bytes. */
static ssize_t packet_receive(struct client *c, void *buf, size_t size, int fds[FDS_MAX])
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(FDS_MAX * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = buf, .iov_len = size};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = sizeof(control)};
	ssize_t n;

	for (int i = 0; i < FDS_MAX; i++)
		fds[i] = -1;
	do {
		n = recvmsg(c->socket, &msg, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n <= 0)
		return client_break(c, -ENOTCONN);
	for (struct cmsghdr *m = CMSG_FIRSTHDR(&msg); m; m = CMSG_NXTHDR(&msg, m)) {
		if (m->cmsg_level == SOL_SOCKET && m->cmsg_type == SCM_RIGHTS)
			memcpy(fds, CMSG_DATA(m),
			       MIN(m->cmsg_len - CMSG_LEN(0), FDS_MAX * sizeof(int)));
	}
	return n;
}

static ssize_t transact(struct client *c, const void *request, size_t request_size, int fd,
			void *reply, size_t reply_size, int fds[FDS_MAX])
{
	pthread_mutex_lock(&c->lock);
	ssize_t n = packet_send(c, request, request_size, fd);
	if (n == 0)
		n = packet_receive(c, reply, reply_size, fds);
	pthread_mutex_unlock(&c->lock);
	if (n < 0)
		return n;
	const struct wire_head *asked = request, *head = reply;
	if ((size_t)n < sizeof(*head) || head->type != asked->type)
		return client_break(c, -EPROTO);
	return head->status < 0 ? head->status : n;
}

int client_call(struct client *c, const void *request, size_t request_size, int fd, void *reply,
		size_t reply_size, int *ret_fd)
{
	int fds[FDS_MAX] = {-1, -1};
	int status = client_check(c);

	if (status < 0)
		return status;
	ssize_t n = transact(c, request, request_size, fd, reply, reply_size, fds);
	if (n >= 0 && ret_fd)
		*ret_fd = steal_fd(&fds[0]);
	for (int i = 0; i < FDS_MAX; i++)
		close_fd(&fds[i]);
	return (int)n;
}

int client_send(struct client *c, const void *message, size_t size)
{
	int status = client_check(c);

	return status < 0 ? status : packet_send(c, message, size, -1);
}

const char *client_host_directory(void)
{
	const char *host = getenv(WIRE_ENV_HOST); // NOLINT(concurrency-mt-unsafe): as at cuInit
	struct statx st;

	if (!host || !host[0])
		host = WIRE_HOST_DEFAULT;
	/* A caller names no server to a program that has more rights than the caller has. */
	if (process_is_privileged() &&
	    (statx(AT_FDCWD, host, AT_SYMLINK_NOFOLLOW, STATX_TYPE | STATX_MODE | STATX_UID, &st) <
		     0 ||
	     !S_ISDIR(st.stx_mode) || st.stx_mode & (S_IWGRP | S_IWOTH) || st.stx_uid != 0))
		return NULL;
	return host;
}

bool client_may_open(uint32_t minor)
{
	const char *host = client_host_directory();
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/dev", host ? host : "");
	if (!host || access(path, F_OK) < 0)
		return true;
	if (minor == WIRE_DEVICE_CONTROL)
		snprintf(path, sizeof(path), "%s/dev/nvidiactl", host);
	else
		snprintf(path, sizeof(path), "%s/dev/nvidia%u", host, minor);
	cleanup_close int fd = open(path, O_RDWR | O_CLOEXEC);
	return fd >= 0;
}

static int host_connect(void)
{
	const char *host = client_host_directory();
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	uid_t ignored;

	if (!host)
		return -ENODEV;
	int n = snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", host,
			 WIRE_SOCKET_NAME);
	if (n >= (int)sizeof(address.sun_path))
		return -ENAMETOOLONG;
	cleanup_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	while (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		if (errno != EINTR)
			return errno == ENOENT || errno == ECONNREFUSED ? -ENODEV : -errno;
	}
	if (process_is_privileged() && server_check(fd, address.sun_path, 0, &ignored) < 0)
		return -ENODEV;
	return steal_fd(&fd);
}

static const void *page_map(int fd, size_t size)
{
	void *page = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

	return page == MAP_FAILED ? NULL : page;
}

static int client_greet(struct client *c, enum wire_role role)
{
	struct wire_hello hello = {.head.type = WIRE_HELLO,
				   .magic = WIRE_MAGIC,
				   .version = WIRE_VERSION,
				   .role = role};
	struct wire_hello_reply reply = {0};
	int fds[FDS_MAX] = {-1, -1};
	ssize_t n = transact(c, &hello, sizeof(hello), -1, &reply, sizeof(reply), fds);

	if (n >= 0) {
		c->pid = reply.pid;
		c->host = page_map(fds[0], sizeof(*c->host));
		if (c->host)
			mig_shuffle(c->host->mig_seed);
		if (role == WIRE_ROLE_CUDA)
			c->progress = page_map(fds[1], sizeof(*c->progress));
	}
	for (int i = 0; i < FDS_MAX; i++)
		close_fd(&fds[i]);
	if (n < 0)
		return (int)n;
	if (!c->host || (role == WIRE_ROLE_CUDA && !c->progress))
		return -ENOMEM;
	return c->host->magic == WIRE_MAGIC && c->host->version == WIRE_VERSION ? 0 : -EPROTO;
}

static int guard_make(struct client *c)
{
	long page = sysconf(_SC_PAGESIZE);
	void *guard = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);

	if (guard == MAP_FAILED)
		return -ENOMEM;
	c->guard = guard;
	if (madvise(guard, (size_t)page, MADV_WIPEONFORK) < 0)
		return -errno;
	c->guard->parent = getpid();
	return 0;
}

int client_connect(enum wire_role role, struct client **ret)
{
	int fd = client_may_open(WIRE_DEVICE_CONTROL) ? host_connect() : -EACCES;

	if (fd < 0)
		return fd;
	struct client *c = calloc(1, sizeof(*c));
	if (!c) {
		close(fd);
		return -ENOMEM;
	}
	c->socket = fd;
	pthread_mutex_init(&c->lock, NULL);
	pthread_mutex_init(&c->queue_lock, NULL);
	int status = guard_make(c);
	if (status == 0)
		status = client_greet(c, role);
	if (status < 0) {
		client_disconnect(c);
		return status;
	}
	*ret = c;
	return 0;
}

void client_disconnect(struct client *c)
{
	if (!c)
		return;
	if (c->host)
		munmap((void *)c->host, sizeof(*c->host));
	if (c->progress)
		munmap((void *)c->progress, sizeof(*c->progress));
	if (c->guard)
		munmap(c->guard, (size_t)sysconf(_SC_PAGESIZE));
	close_fd(&c->socket);
	free(c);
}
