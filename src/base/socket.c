#include "base/socket.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"

/* Newer than the C library's headers. */
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

int socket_peer_pidfd(int fd)
{
	int pidfd = -1;
	socklen_t size = sizeof(pidfd);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) < 0)
		return errno == ENOPROTOOPT ? -ENOPROTOOPT : -ESRCH;
	return pidfd;
}

int socket_peer_lives(int fd)
{
	cleanup_close int pidfd = socket_peer_pidfd(fd);

	if (pidfd < 0)
		return pidfd;
	return syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) < 0 && errno == ESRCH ? -ESRCH : 0;
}

int descriptors_send_to(int fd, const struct sockaddr_un *to, socklen_t to_size, const void *data,
			size_t size, const int *descriptors, unsigned count)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int))];
	} control = {0};
	struct iovec part = {.iov_base = (void *)data, .iov_len = size};
	struct msghdr message = {.msg_name = (void *)to,
				 .msg_namelen = to ? to_size : 0,
				 .msg_iov = &part,
				 .msg_iovlen = 1};

	if (count > DESCRIPTORS_MAX)
		return -EINVAL;
	if (count) {
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(&control.header), descriptors, count * sizeof(int));
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(count * sizeof(int));
	}
	ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n < 0)
		return -errno;
	return (size_t)n == size ? 0 : -EMSGSIZE;
}

int descriptors_send(int fd, const void *data, size_t size, const int *descriptors, unsigned count)
{
	return descriptors_send_to(fd, NULL, 0, data, size, descriptors, count);
}

int descriptors_send_wait(int fd, const void *data, size_t size, const int *descriptors,
			  unsigned count)
{
	for (;;) {
		struct pollfd writable = {.fd = fd, .events = POLLOUT};
		int rc = descriptors_send(fd, data, size, descriptors, count);

		if (rc != -EAGAIN && rc != -ETOOMANYREFS)
			return rc;
		if (poll(&writable, 1, -1) < 0 && errno != EINTR)
			return -errno;
	}
}

ssize_t descriptors_receive(int fd, void *data, size_t size, int *ret, unsigned room)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int))];
	} control;
	struct iovec part = {.iov_base = data, .iov_len = size};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 /* The padding that CMSG_SPACE adds would hold one more. */
				 .msg_controllen = CMSG_LEN(room * sizeof(int))};

	for (unsigned i = 0; i < room; i++)
		ret[i] = -1;
	if (room > DESCRIPTORS_MAX)
		return -EINVAL;
	ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return -errno;
	const struct cmsghdr *c = CMSG_FIRSTHDR(&message);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len <= CMSG_LEN(room * sizeof(int)))
		memcpy(ret, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	if (!(message.msg_flags & MSG_TRUNC))
		return n;
	for (unsigned i = 0; i < room; i++)
		close_fd(&ret[i]);
	return -EPROTO;
}

ssize_t descriptor_receive(int fd, void *data, size_t size, int *ret_descriptor)
{
	return descriptors_receive(fd, data, size, ret_descriptor, 1);
}
