#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

void close_fd(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	errno = saved;
}

void free_ptr(void *pp)
{
	free(*(void **)pp);
	*(void **)pp = NULL;
}

ssize_t read_all(int fd, void *buf, size_t size)
{
	size_t length = 0;

	while (length < size) {
		ssize_t n = read(fd, (char *)buf + length, size - length);

		if (n == 0)
			break;
		if (n > 0)
			length += (size_t)n;
		else if (errno != EINTR)
			return -errno;
	}
	return (ssize_t)length;
}

ssize_t file_read(const char *path, char *buf, size_t size)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -errno : read_all(fd, buf, size);

	if (n == (ssize_t)size)
		return -EFBIG;
	if (n >= 0)
		buf[n] = '\0';
	return n;
}

int open_beneath(int dir_fd, const char *path, int flags)
{
	struct open_how how = {
		.flags = (uint64_t)(flags | O_NOFOLLOW | O_CLOEXEC),
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
	};
	long fd = syscall(SYS_openat2, dir_fd, path, &how, sizeof(how));

	if (fd < 0 && (errno == ENOSYS || errno == EPERM))
		fd = openat(dir_fd, path, flags | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : (int)fd;
}

int open_in_root(int root_fd, const char *path, int flags)
{
	struct open_how how = {
		.flags = (uint64_t)(flags | O_CLOEXEC),
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	long fd = syscall(SYS_openat2, root_fd, path, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

int open_plain_in_root(int root_fd, int self_fd, const char *path)
{
	char link[32];
	struct statx st;
	cleanup_close int found = open_in_root(root_fd, path, O_PATH);

	if (found < 0)
		return found;
	if (statx(found, "", AT_EMPTY_PATH, STATX_TYPE, &st) < 0)
		return -errno;
	if (!S_ISREG(st.stx_mode))
		return -EMEDIUMTYPE;
	snprintf(link, sizeof(link), "%s%d", self_fd == AT_FDCWD ? "/proc/self/fd/" : "", found);
	int fd = openat(self_fd, link, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* A number of /proc/PID/stat, by its field there. */
static int process_field(pid_t pid, int number, unsigned long long *ret)
{
	char path[64], text[1024];

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	ssize_t n = file_read(path, text, sizeof(text));
	if (n < 0)
		return n == -ENOENT ? -ESRCH : (int)n;
	/* The name in parentheses may hold anything, so count fields from the last one. */
	const char *field = strrchr(text, ')');
	for (int skip = 2; field && skip < number; skip++)
		field = strchr(field + 1, ' ');
	if (!field)
		return -EINVAL;
	*ret = strtoull(field, NULL, 10);
	return 0;
}

int process_start_time(pid_t pid, unsigned long long *ret_ticks)
{
	return process_field(pid, 22, ret_ticks);
}

/* The kernel makes an entry of /proc for each thread that it lists: readdir() has it list a
 * thousand at once. */
#define THREADS_LOOKED_AT 8u
#define THREADS_BUFFER 512

/* The kernel's linux_dirent64. */
struct entry {
	uint64_t inode;
	int64_t offset;
	uint16_t size;
	uint8_t type;
	char name[];
};

/* A thread that has ended, or is about to, has no memory any more. */
static bool has_memory(pid_t thread)
{
	unsigned long long address_space = 0;

	return process_field(thread, 23, &address_space) == 0 && address_space;
}

/* Whether one of the first threads beside the process's first one has memory. A tracer can keep any
 * number of threads that have ended: a process with that many is taken to have no other. */
static bool threads_have_memory(pid_t pid)
{
	_Alignas(struct entry) char buffer[THREADS_BUFFER];
	char path[64];
	unsigned looked_at = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	cleanup_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	long size = 0;
	while (fd >= 0 && looked_at < THREADS_LOOKED_AT &&
	       (size = syscall(SYS_getdents64, fd, buffer, sizeof(buffer))) > 0)
		for (long at = 0; at < size && looked_at < THREADS_LOOKED_AT;) {
			const struct entry *entry = (const struct entry *)(buffer + at);
			pid_t thread = (pid_t)strtol(entry->name, NULL, 10);

			at += entry->size;
			if (thread <= 0 || thread == pid)
				continue;
			looked_at++;
			if (has_memory(thread))
				return true;
		}
	return false;
}

bool process_is_ending(pid_t pid)
{
	return !has_memory(pid) && !threads_have_memory(pid);
}

bool process_is_headless(pid_t pid)
{
	return !has_memory(pid);
}

int process_parent(pid_t pid, pid_t *ret_parent)
{
	unsigned long long parent;
	int rc = process_field(pid, 4, &parent);

	if (rc == 0)
		*ret_parent = (pid_t)parent;
	return rc;
}

int executable_dir(char *buf, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", buf, size - 1);

	if (n < 0)
		return -errno;
	if ((size_t)n == size - 1)
		return -ENAMETOOLONG;
	buf[n] = '\0';
	char *slash = strrchr(buf, '/');
	if (!slash)
		return -EINVAL;
	*slash = '\0';
	return 0;
}

int executable_beside(const char *name, char *buf, size_t size)
{
	int rc = executable_dir(buf, size);
	size_t used = rc < 0 ? 0 : strlen(buf);

	if (rc < 0)
		return rc;
	return snprintf(buf + used, size - used, "/%s", name) < (int)(size - used) ? 0
										   : -ENAMETOOLONG;
}

int write_all(int fd, const void *data, size_t size)
{
	const char *from = data;

	while (size) {
		ssize_t n = write(fd, from, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		from += n;
		size -= (size_t)n;
	}
	return 0;
}

void standard_descriptors_hold(void)
{
	for (int fd = 0; fd <= STDERR_FILENO; fd++) {
		/* The lowest number that is free is this one. */
		if (fcntl(fd, F_GETFD) < 0)
			(void)open("/dev/null",
				   (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
	}
}

uint64_t file_size_limit(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY
		       ? UINT64_MAX
		       : (uint64_t)limit.rlim_cur;
}

int directory_sync(const char *dir)
{
	cleanup_close int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

static int file_write_synced(const char *path, const void *data, size_t size, mode_t mode)
{
	/* Removes the rest of a replacement that was cut off. So the file that is opened is new:
	 * not another's, nor one that is linked elsewhere. */
	(void)unlink(path);
	cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);

	if (fd < 0)
		return -errno;
	/* The umask is no matter. */
	int rc = fchmod(fd, mode) < 0 ? -errno : write_all(fd, data, size);
	return rc == 0 && fsync(fd) < 0 ? -errno : rc;
}

/* The contents are on the disk before the name says that they are there. */
int file_replace(const char *path, const char *temporary, const void *data, size_t size,
		 mode_t mode)
{
	char dir[PATH_MAX];
	const char *slash = strrchr(path, '/');
	int length = slash ? snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path) + 1, path)
			   : snprintf(dir, sizeof(dir), ".");

	if (length < 0 || (size_t)length >= sizeof(dir))
		return -ENAMETOOLONG;
	int rc = file_write_synced(temporary, data, size, mode);
	if (rc == 0 && rename(temporary, path) < 0)
		rc = -errno;
	if (rc < 0)
		(void)unlink(temporary);
	return rc < 0 ? rc : directory_sync(dir);
}

/* By statx, as the front has it in the oldest glibc that it loads in. */
bool file_is_at(int fd, const char *path)
{
	struct statx open, named;

	return statx(fd, "", AT_EMPTY_PATH, STATX_INO, &open) < 0 ||
	       (statx(AT_FDCWD, path, 0, STATX_INO, &named) == 0 && named.stx_ino == open.stx_ino &&
		named.stx_dev_major == open.stx_dev_major &&
		named.stx_dev_minor == open.stx_dev_minor);
}
