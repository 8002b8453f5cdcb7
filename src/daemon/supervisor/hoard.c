#include "daemon/supervisor/hoard.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"
#include "base/socket.h"

/* A mount that is gone, a directory above that has another name, and the end of the last program
 * that has a ledger are no events. */
#define LOOK_MS 2000
#define PATIENCE_S 2
#define PROCESS_NAME "carve-keeper"

static struct held *hoard_find(const struct hoard *hoard, const char *name)
{
	for (size_t i = 0; i < hoard->count; i++)
		if (!strcmp(hoard->held[i].name, name))
			return &hoard->held[i];
	return NULL;
}

int hoard_put(struct hoard *hoard, const char *name, int fd)
{
	struct held *held = hoard_find(hoard, name);
	size_t bytes = strlen(name) + 1;

	if (held) {
		close_fd(&held->fd);
		held->fd = fd;
		return 0;
	}
	if (hoard->count >= hoard->most || hoard->bytes + bytes > SUPERVISOR_NAMES_MAX)
		return -ENOSPC;
	if (hoard->count == hoard->room) {
		size_t room = MAX(hoard->room * 2, 64);
		struct held *more = realloc(hoard->held, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		hoard->held = more;
		hoard->room = room;
	}
	held = &hoard->held[hoard->count++];
	memcpy(held->name, name, bytes);
	held->fd = fd;
	hoard->bytes += bytes;
	return 0;
}

void hoard_drop(struct hoard *hoard, const char *name)
{
	struct held *held = hoard_find(hoard, name);

	if (!held)
		return;
	hoard->bytes -= strlen(name) + 1;
	close_fd(&held->fd);
	*held = hoard->held[--hoard->count];
}

void hoard_drop_of(struct hoard *hoard, const char *owner)
{
	size_t length = strlen(owner);

	for (size_t i = hoard->count; i-- > 0;)
		if (!strncmp(hoard->held[i].name, owner, length) &&
		    hoard->held[i].name[length] == '.')
			hoard_drop(hoard, hoard->held[i].name);
}

void hoard_free(struct hoard *hoard)
{
	for (size_t i = 0; i < hoard->count; i++)
		close_fd(&hoard->held[i].fd);
	free(hoard->held);
	*hoard = (struct hoard){.most = hoard->most};
}

/* ---- from one supervisor to the next ------------------------------------------------------ */

static int address_of(const char *dir, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	int length = snprintf(ret->sun_path, sizeof(ret->sun_path), "%s/" HOARD_SOCKET, dir);

	return length < 0 || (size_t)length >= sizeof(ret->sun_path) ? -ENAMETOOLONG : 0;
}

static bool is_ours(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

/* True: the next supervisor has all of it, and says so. */
static bool give(const struct hoard *hoard, int fd)
{
	struct timeval patience = {.tv_sec = PATIENCE_S};
	char taken;

	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	for (size_t i = 0; i < hoard->count; i++)
		if (descriptors_send_wait(fd, hoard->held[i].name, SUPERVISOR_NAME_SIZE,
					  &hoard->held[i].fd, 1) < 0)
			return false;
	return shutdown(fd, SHUT_WR) == 0 && recv(fd, &taken, 1, 0) == 1;
}

/* ---- the process that keeps them in between ----------------------------------------------- */

static bool is_ledger(const struct held *held)
{
	const char *part = strchr(held->name, '.');

	return part && !strcmp(part + 1, SUPERVISOR_LEDGER);
}

static bool is_database(const struct held *held)
{
	return !strncmp(held->name, SUPERVISOR_DATABASE ".", sizeof(SUPERVISOR_DATABASE));
}

/* The kernel gives out no lease for writing while another open file, or a mapping of one, is there.
 * Another error says nothing, as in a container without the right to leases. */
static bool is_in_use(const struct held *held)
{
	if (fcntl(held->fd, F_SETLEASE, F_WRLCK) < 0)
		return true;
	(void)fcntl(held->fd, F_SETLEASE, F_UNLCK);
	return false;
}

/* The kernel does not count an open file that is as memfd_create() gave it. Ledgers of a daemon of
 * before are like that; session/books.c opens its own once more. */
static bool is_counted(const struct held *held)
{
	if (fcntl(held->fd, F_SETLEASE, F_RDLCK) < 0)
		return errno == EAGAIN;
	(void)fcntl(held->fd, F_SETLEASE, F_UNLCK);
	return false;
}

/* The programs of a slice have the open file that the daemon and this process had. Beside an open
 * file of this process's own the kernel can tell whether theirs is there still. False: it cannot.
 */
static bool ledgers_open_anew(struct hoard *hoard)
{
	char path[32];

	for (size_t i = 0; i < hoard->count; i++) {
		struct held *held = &hoard->held[i];

		snprintf(path, sizeof(path), "/proc/self/fd/%d", held->fd);
		if (!is_ledger(held))
			continue;
		int fd = is_counted(held) ? open(path, O_RDWR | O_CLOEXEC) : -1;
		if (fd < 0)
			return false;
		close(held->fd);
		held->fd = fd;
	}
	return true;
}

/* Nobody can want a ledger that no program has: the next daemon makes another one. The copy of a
 * database that was removed is for the next daemon. */
static bool any_is_wanted(const struct hoard *hoard)
{
	for (size_t i = 0; i < hoard->count; i++)
		if (is_database(&hoard->held[i]) ||
		    (is_ledger(&hoard->held[i]) && is_in_use(&hoard->held[i])))
			return true;
	return false;
}

_Noreturn static void keep_on(struct hoard *hoard, int listen_fd, const char *path)
{
	struct stat socket, now;
	struct pollfd asked = {.fd = listen_fd, .events = POLLIN};
	bool given = stat(path, &socket) < 0, tells = ledgers_open_anew(hoard);

	(void)signal(SIGIO, SIG_IGN); /* somebody opens a ledger while it has a lease */
	while (!given && stat(path, &now) == 0 && now.st_ino == socket.st_ino) {
		if (poll(&asked, 1, LOOK_MS) <= 0) {
			if (!tells || any_is_wanted(hoard))
				continue;
			(void)unlink(path);
			break;
		}
		cleanup_close int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
		given = fd >= 0 && is_ours(fd) && give(hoard, fd);
	}
	_exit(0);
}

/* The lock, among others, is not to live as long as this process. */
static void others_close(const struct hoard *hoard, int listen_fd)
{
	int last = listen_fd;

	for (size_t i = 0; i < hoard->count; i++)
		last = MAX(last, hoard->held[i].fd);
	bool *stays = calloc((size_t)last + 1, sizeof(*stays));
	if (!stays)
		_exit(EXIT_FAILURE);
	stays[listen_fd] = true;
	for (size_t i = 0; i < hoard->count; i++)
		stays[hoard->held[i].fd] = true;
	for (int fd = 0; fd <= last; fd++)
		if (!stays[fd])
			close(fd);
	(void)close_range((unsigned)last + 1, ~0u, 0);
	free(stays);
}

static void process_begin(const struct hoard *hoard, int listen_fd)
{
	setsid();
	prctl(PR_SET_NAME, PROCESS_NAME, 0, 0, 0);
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	others_close(hoard, listen_fd);
}

int hoard_leave(struct hoard *hoard, const char *dir)
{
	struct sockaddr_un address;
	int rc = address_of(dir, &address);

	if (!hoard->count || rc < 0)
		return rc;
	cleanup_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	(void)unlink(address.sun_path);
	if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ||
	    chmod(address.sun_path, 0600) < 0 || listen(fd, 1) < 0)
		return -errno;
	pid_t pid = fork();
	if (pid == 0) {
		process_begin(hoard, fd);
		keep_on(hoard, fd, address.sun_path);
	}
	return pid < 0 ? -errno : 0;
}

/* One descriptor. False: that was all. */
static bool take_one(struct hoard *hoard, int from)
{
	char name[SUPERVISOR_NAME_SIZE + 1] = "";
	struct pollfd readable = {.fd = from, .events = POLLIN};
	int fd = -1;

	if (poll(&readable, 1, PATIENCE_S * 1000) <= 0)
		return false;
	ssize_t n = descriptor_receive(from, name, SUPERVISOR_NAME_SIZE, &fd);
	if (n > 0 && fd >= 0 && hoard_put(hoard, name, fd) < 0)
		close_fd(&fd);
	return n > 0;
}

size_t hoard_take(struct hoard *hoard, const char *dir)
{
	struct sockaddr_un address;
	cleanup_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0 || address_of(dir, &address) < 0 ||
	    connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 || !is_ours(fd))
		return 0;
	while (take_one(hoard, fd))
		;
	(void)!send(fd, "", 1, MSG_NOSIGNAL);
	(void)unlink(address.sun_path);
	return hoard->count;
}
