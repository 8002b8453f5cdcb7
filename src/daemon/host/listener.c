#include "daemon/host/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/file.h"
#include "daemon/host/rights.h"

int listener_replace(uv_poll_t *poll, uv_poll_cb on_connection, int listen_fd, int fd)
{
	int before = dup(listen_fd);

	/* The loop has to forget what the number was. */
	uv_poll_stop(poll);
	if (before < 0 || dup3(fd, listen_fd, O_CLOEXEC) < 0) {
		close_fd(&before);
		return -errno;
	}
	rights_close_listener(&before);
	close_fd(&fd);
	rights_refuse(listen_fd);
	return uv_poll_start(poll, UV_READABLE, on_connection);
}
