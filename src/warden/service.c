/* The warden as a service of its own, where systemd runs carved. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "warden/process.h"
#include "warden/warden.h"

static void serve(struct warden *warden)
{
	struct pollfd fds[WARDEN_POLLS_MAX];

	while (warden_is_linked(warden)) {
		int timeout_ms = -1;
		unsigned count = warden_poll_fill(warden, fds, &timeout_ms);

		if (poll(fds, count, timeout_ms) < 0)
			continue; /* EINTR */
		warden_poll_run(warden, fds, count);
	}
}

/* The file of the socket is looked for this often while there is no worker. */
#define LOOK_MS 1000

/* A worker that connects while another is served waits in the socket until that one has hung up. */
static int worker_await(struct warden *warden, const struct warden_listener *listener,
			int *listen_fd)
{
	int rc = listener->listen(listener->arg, listen_fd), timeout_ms = LOOK_MS;
	struct pollfd fds[WARDEN_POLLS_MAX + 1];

	if (rc < 0)
		return rc;
	unsigned count = warden_poll_fill(warden, fds, &timeout_ms);
	fds[count] = (struct pollfd){.fd = *listen_fd, .events = POLLIN};
	if (poll(fds, count + 1, timeout_ms) < 0)
		return 0; /* EINTR */
	warden_poll_run(warden, fds, count);
	if (!fds[count].revents)
		return 0;
	int fd = accept4(*listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return errno == EINTR || errno == ECONNABORTED || errno == EAGAIN ? 0 : -errno;
	if (listener->may_link(listener->arg, fd))
		warden_link(warden, fd);
	else
		close(fd);
	return 0;
}

int warden_serve(const struct warden_place *place, const struct warden_listener *listener)
{
	cleanup_close int listen_fd = -1;
	struct warden *warden;
	int rc = warden_open(place, &warden);

	warden_process_name(WARDEN_NAME);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_IGN); /* shims are nobody's to wait for */
	while (rc == 0) {
		serve(warden);
		rc = worker_await(warden, listener, &listen_fd);
	}
	return rc;
}
