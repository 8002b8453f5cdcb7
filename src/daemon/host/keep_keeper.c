#include "daemon/host/keep_keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"
#include "base/socket.h"
#include "daemon/host/child.h"

#define PROGRAM "carve-keeper"
#define BACKLOG 128
#define LIST_PATIENCE_MS 2000

/* ---- messages ---------------------------------------------------------------------------- */

int keeper_send(int fd, const struct keep_message *message, int descriptor)
{
	return descriptors_send(fd, message, sizeof(*message), &descriptor, descriptor >= 0);
}

int keeper_receive(int fd, struct keep_message *ret, int *ret_descriptor)
{
	ssize_t n = descriptor_receive(fd, ret, sizeof(*ret), ret_descriptor);

	if (n == 0)
		return -ECONNRESET;
	if (n < 0)
		return n == -EINTR ? -EAGAIN : (int)n;
	int rc = keep_message_check(ret, (size_t)n);
	if (rc < 0)
		close_fd(ret_descriptor);
	return rc;
}

int keeper_list(int fd, void (*cb)(void *arg, const char *name, int fd), void *arg)
{
	struct keep_message message = keep_message_make(KEEP_LIST, "");
	int rc = keeper_send(fd, &message, -1), descriptor = -1;

	while (rc == 0) {
		struct pollfd readable = {.fd = fd, .events = POLLIN};

		if (poll(&readable, 1, LIST_PATIENCE_MS) == 0)
			return -ETIMEDOUT;
		rc = keeper_receive(fd, &message, &descriptor);
		if (rc == -EAGAIN)
			rc = 0;
		else if (rc == 0 && message.op == KEEP_END)
			return 0;
		else if (rc == 0 && message.op == KEEP_HELD && descriptor >= 0)
			cb(arg, message.name, steal_fd(&descriptor));
		close_fd(&descriptor);
	}
	return rc;
}

/* ---- the process ------------------------------------------------------------------------- */

static int socket_address(const char *dir, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	int length = snprintf(ret->sun_path, sizeof(ret->sun_path), "%s/" KEEP_SOCKET, dir);

	return length < 0 || (size_t)length >= sizeof(ret->sun_path) ? -ENAMETOOLONG : 0;
}

static int socket_make(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	return fd < 0 ? -errno : fd;
}

static int connect_to(const struct sockaddr_un *address)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);
	cleanup_close int fd = socket_make();

	if (fd < 0)
		return fd;
	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return -errno;
	/* Its socket was made by a daemon of this user. */
	return peer.uid == geteuid() ? steal_fd(&fd) : -EPERM;
}

int keeper_connect(const char *dir)
{
	struct sockaddr_un address;
	int rc = socket_address(dir, &address);

	return rc < 0 ? rc : connect_to(&address);
}

int keeper_dir_make(const char *dir)
{
	struct stat st;

	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return -errno;
	if (lstat(dir, &st) < 0)
		return -errno;
	return S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 077) ? 0 : -EPERM;
}

ino_t keeper_socket(const char *dir)
{
	struct sockaddr_un address;
	struct stat st;

	return socket_address(dir, &address) == 0 && stat(address.sun_path, &st) == 0 ? st.st_ino
										      : 0;
}

static int listen_at(const struct sockaddr_un *address)
{
	cleanup_close int fd = socket_make();

	if (fd < 0)
		return fd;
	/* The socket of a keeper that ended, or that does not answer: such a keeper ends when this
	 * is gone. */
	unlink(address->sun_path);
	if (bind(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 ||
	    listen(fd, BACKLOG) < 0)
		return -errno;
	return steal_fd(&fd);
}

int keeper_program(char ret[static PATH_MAX])
{
	return child_program(PROGRAM, ret);
}

static void on_closed(uv_handle_t *handle)
{
	free(handle);
}

/* It ends at once: the keeper is its child, and nobody's to wait for. */
static void on_started(uv_process_t *process, int64_t status, int signal)
{
	uv_close((uv_handle_t *)process, on_closed);
}

static int spawn(uv_loop_t *loop, char *program, char *dir, int listen_fd)
{
	char *args[] = {program, dir, NULL}, *environment[] = {NULL};
	uv_stdio_container_t stdio[KEEP_LISTEN_FD + 1] = {
		[KEEP_LISTEN_FD] = {.flags = UV_INHERIT_FD, .data.fd = listen_fd}};
	uv_process_options_t options = {
		.file = program,
		.args = args,
		.env = environment,
		.stdio = stdio,
		.stdio_count = KEEP_LISTEN_FD + 1,
		.exit_cb = on_started,
	};
	uv_process_t *process = calloc(1, sizeof(*process));
	if (!process)
		return -ENOMEM;
	int rc = uv_spawn(loop, process, &options);
	if (rc < 0)
		uv_close((uv_handle_t *)process, on_closed);
	return rc;
}

int keeper_spawn(uv_loop_t *loop, const char *dir)
{
	char program[PATH_MAX], path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	struct sockaddr_un address;
	int rc = socket_address(dir, &address);

	if (rc == 0)
		rc = keeper_program(program);
	if (rc == 0)
		rc = keeper_dir_make(dir);
	if (rc < 0)
		return rc;
	cleanup_close int listen_fd = listen_at(&address);
	if (listen_fd < 0)
		return listen_fd;
	/* Before it runs: a keeper that nobody is connected to ends. */
	cleanup_close int fd = connect_to(&address);
	if (fd < 0)
		return fd;
	snprintf(path, sizeof(path), "%s", dir);
	rc = spawn(loop, program, path, listen_fd);
	return rc < 0 ? rc : steal_fd(&fd);
}
