#include "slice/slice_register.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "proto/attach.h"
#include "slice/runtime_dir.h"

/* How long the daemon may take to note the command, its restarts included. */
#define REGISTER_TIMEOUT_NS 5000000000ull
/* How long after a daemon ended the next one is looked for. */
#define AGAIN_MS 100

/* The daemon refuses and closes before it has read the request: the request fails, but the refusal
 * is there to be read. */
static bool refused(int error)
{
	return error == EPIPE || error == ECONNRESET;
}

/* Being stopped and continued is an interruption, too, where there is a timeout. An unread request
 * is told once, before the reply. */
static ssize_t reply_receive(int fd, struct attach_reply *ret)
{
	for (int resets = 0;; resets += errno == ECONNRESET) {
		ssize_t n = recv(fd, ret, sizeof(*ret), 0);
		if (n >= 0 || (errno != EINTR && (errno != ECONNRESET || resets)))
			return n;
	}
}

/* Whether the daemon ended before it answered. */
static bool daemon_ended(int rc)
{
	return rc == -ECONNREFUSED || rc == -ECONNRESET || rc == -ENOENT || rc == -EPIPE;
}

static int exchange(const char *attach, const struct attach_request *request, uint64_t patience_ns,
		    struct attach_reply *ret)
{
	struct timeval patience = {.tv_sec = (time_t)(patience_ns / 1000000000),
				   .tv_usec = (suseconds_t)(patience_ns / 1000 % 1000000 + 1)};
	struct error ignored;
	cleanup_close int fd = runtime_connect(attach, SOCK_SEQPACKET, &ignored);

	if (fd < 0)
		return fd;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (send(fd, request, sizeof(*request), MSG_NOSIGNAL) < 0 && !refused(errno))
		return -errno;
	ssize_t n = reply_receive(fd, ret);
	if (n < 0)
		return -errno;
	if (n == 0)
		return -ECONNRESET;
	return n == sizeof(*ret) && ret->magic == ATTACH_MAGIC ? 0 : -EPROTO;
}

int slice_register(const char *attach, const char *session, uint32_t flags,
		   struct attach_reply *ret)
{
	struct attach_request request = {.magic = ATTACH_MAGIC,
					 .version = ATTACH_VERSION,
					 .kind = ATTACH_COMMAND,
					 .flags = flags};
	uint64_t now = now_monotonic_ns(), end = now + REGISTER_TIMEOUT_NS;

	snprintf(request.session, sizeof(request.session), "%s", session);
	for (; now < end; now = now_monotonic_ns()) {
		int rc = exchange(attach, &request, end - now, ret);
		if (!daemon_ended(rc))
			return rc;
		(void)poll(NULL, 0, AGAIN_MS);
	}
	return -EAGAIN;
}
