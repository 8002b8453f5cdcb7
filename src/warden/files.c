/* The files of the runtime directory, which is root's, where the worker may make none. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"
#include "warden/containers.h"
#include "warden/message.h"
#include "warden/run.h"

#define DELETED " (deleted)"
#define LISTEN_BACKLOG 4096
/* A link to what is in the state directory (daemon/store/state.h). */
#define DATABASE "carve.db"

/* The directory itself may be gone: it is made where it was, and takes the descriptor's number. */
static int directory_make(int dir_fd)
{
	char link[64], path[PATH_MAX];
	struct stat st;

	if (fstat(dir_fd, &st) < 0)
		return -errno;
	if (st.st_nlink)
		return 0;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", dir_fd);
	ssize_t n = readlink(link, path, sizeof(path) - 1);
	if (n <= (ssize_t)strlen(DELETED))
		return n < 0 ? -errno : -ENOENT;
	path[n - (ssize_t)strlen(DELETED)] = '\0';
	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return -errno;
	cleanup_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_uid != geteuid() || (st.st_mode & 022))
		return -EPERM;
	if (fchmod(fd, 0755) < 0 || dup3(fd, dir_fd, O_CLOEXEC) < 0)
		return -errno;
	return 0;
}

static int containers_make(int dir_fd)
{
	int rc = containers_link(dir_fd);

	if (rc < 0)
		return rc;
	int fd = openat(dir_fd, CONTAINERS_DIR, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int socket_make(int dir_fd, const char *name, int type)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct stat st;
	cleanup_close int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (!S_ISSOCK(st.st_mode))
			return -EEXIST;
		if (unlinkat(dir_fd, name, 0) < 0)
			return -errno;
	}
	/* By the descriptor: a name that leads elsewhere meanwhile is not followed. */
	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", dir_fd, name);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    fchmodat(dir_fd, name, 0666, 0) < 0 || listen(fd, LISTEN_BACKLOG) < 0)
		return -errno;
	return steal_fd(&fd);
}

static int plain_make(int dir_fd, const char *name, int flags)
{
	struct stat st;
	cleanup_close int fd =
		openat(dir_fd, name, flags | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) && st.st_uid == geteuid() ? steal_fd(&fd) : -EEXIST;
}

void warden_place_remember(struct warden_place *place)
{
	char text[sizeof(place->start)];
	struct stat st;
	ssize_t n = readlinkat(place->dir_fd, DATABASE, text, sizeof(place->database) - 1);

	if (n > 0) {
		memcpy(place->database, text, (size_t)n);
		place->database[n] = '\0';
	}
	cleanup_close int fd = openat(place->dir_fd, RUNTIME_START_FILE,
				      O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	n = -1;
	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid())
		n = read_all(fd, text, sizeof(text) - 1);
	if (n > 0) {
		memcpy(place->start, text, (size_t)n);
		place->start[n] = '\0';
	}
}

/* A descriptor that the worker cannot write to. */
static int start_make(const struct warden_place *place)
{
	if (!place->start[0])
		return -ENOENT;
	cleanup_close int fd = plain_make(place->dir_fd, RUNTIME_START_FILE, O_WRONLY | O_TRUNC);
	int rc = fd < 0 ? fd : write_all(fd, place->start, strlen(place->start));
	if (rc < 0)
		return rc;
	int again = openat(place->dir_fd, RUNTIME_START_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	return again < 0 ? -errno : again;
}

static int link_make(const struct warden_place *place)
{
	if (!place->database[0])
		return -ENOENT;
	if (symlinkat(place->database, place->dir_fd, DATABASE) < 0 && errno != EEXIST)
		return -errno;
	int fd = openat(place->dir_fd, DATABASE, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int attach_make(int dir_fd)
{
	int fd = socket_make(dir_fd, "attach.sock", SOCK_SEQPACKET);

	/* Without it containers have that of before. */
	if (fd >= 0)
		(void)containers_link(dir_fd);
	return fd;
}

static int file_make(const struct warden_place *place, enum warden_file_name file)
{
	int dir_fd = place->dir_fd;

	switch (file) {
	case WARDEN_FILE_LOCK:
		return plain_make(dir_fd, "lock", O_RDWR);
	case WARDEN_FILE_ATTACH:
		return attach_make(dir_fd);
	case WARDEN_FILE_HTTP:
		return socket_make(dir_fd, "carved.sock", SOCK_STREAM);
	case WARDEN_FILE_CONTAINERS:
		return containers_make(dir_fd);
	case WARDEN_FILE_LOG:
		return plain_make(dir_fd, "carved.log", O_WRONLY | O_APPEND);
	case WARDEN_FILE_LINK:
		return link_make(place);
	case WARDEN_FILE_START:
		return start_make(place);
	}
	return -EINVAL;
}

int warden_run_file(struct warden_place *place, const struct warden_message *request,
		    struct warden_result *ret)
{
	const struct warden_file *r = (const void *)request->data;
	int rc = directory_make(place->dir_fd);

	if (rc == 0)
		rc = ret->fd = file_make(place, (enum warden_file_name)r->file);
	return rc < 0 ? rc : 0;
}

int warden_run_leave(struct warden_place *place, const struct warden_message *request,
		     struct warden_result *ret)
{
	static const char *const names[] = {"carved.sock", "attach.sock"};
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (fstatat(place->dir_fd, names[i], &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISSOCK(st.st_mode))
			unlinkat(place->dir_fd, names[i], 0);
	return 0;
}
