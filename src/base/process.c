#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/file.h"

#define TICKS_BITS 40
#define TICKS_MASK ((1ull << TICKS_BITS) - 1)
#define SERIAL_MAX ((1ull << (64 - TICKS_BITS)) - 1)
/* The part of /proc/PID/status that is read: what stands before the user IDs is shorter. */
#define STATUS_SIZE 1024
/* Newer than the C library's headers. */
#define PIDFS_MAGIC 0x50494446

/* Whether the pidfd is of the file system in which its inode is the process's own. */
static bool is_pidfs(int pidfd)
{
	struct statfs fs;

	return fstatfs(pidfd, &fs) == 0 && fs.f_type == PIDFS_MAGIC;
}

/* The kernel's number for the process, from its pidfd; never 0. */
static uint64_t serial_of(int pidfd)
{
	struct stat st;

	if (!is_pidfs(pidfd) || fstat(pidfd, &st) < 0)
		return 0;
	return st.st_ino % SERIAL_MAX + 1;
}

int process_identify_by(int pidfd, pid_t pid, struct process_id *ret)
{
	unsigned long long ticks;
	int rc = process_start_time(pid, &ticks);

	if (rc < 0)
		return rc;
	/* It is not reaped, so it has its PID still, and had it just now. */
	if (syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) < 0 && errno == ESRCH)
		return -ESRCH;
	*ret = (struct process_id){.pid = pid,
				   .birth = (ticks & TICKS_MASK) | serial_of(pidfd) << TICKS_BITS};
	return 0;
}

int process_identify(pid_t pid, struct process_id *ret)
{
	cleanup_close int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

	return pidfd < 0 ? -errno : process_identify_by(pidfd, pid, ret);
}

bool process_same(struct process_id a, struct process_id b)
{
	uint64_t differ = a.birth ^ b.birth;

	if (a.pid != b.pid || differ & TICKS_MASK)
		return false;
	return !differ || !(a.birth >> TICKS_BITS) || !(b.birth >> TICKS_BITS);
}

bool process_not_younger(struct process_id a, struct process_id b)
{
	return (a.birth & TICKS_MASK) <= (b.birth & TICKS_MASK);
}

bool process_began_before(struct process_id process, uint64_t boottime_ns)
{
	uint64_t tick_ns = 1000000000ull / (uint64_t)sysconf(_SC_CLK_TCK);

	return (process.birth & TICKS_MASK) < boottime_ns / tick_ns;
}

bool process_parent_find(struct process_id process, struct process_id *ret)
{
	struct process_id found = {0};
	pid_t parent;

	if (process_parent(process.pid, &parent) < 0 || parent <= 1 ||
	    process_identify(parent, &found) < 0 || !process_not_younger(found, process))
		return false;
	*ret = found;
	return true;
}

bool process_descends_from(struct process_id process, struct process_id ancestor)
{
	bool found = process_same(process, ancestor);

	for (int i = 0; !found && i < PROCESS_ANCESTORS_MAX; i++) {
		if (!process_parent_find(process, &process))
			return false;
		found = process_same(process, ancestor);
	}
	return found;
}

bool process_user(pid_t pid, uid_t *ret)
{
	char path[64], text[STATUS_SIZE];
	unsigned real, effective, saved, file;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (size <= 0)
		return false;
	text[size] = '\0';
	const char *line = strstr(text, "\nUid:");
	// NOLINTNEXTLINE(cert-err34-c): the kernel's numbers
	if (!line || sscanf(line, "\nUid: %u %u %u %u", &real, &effective, &saved, &file) != 4 ||
	    real != effective || real != saved || real != file)
		return false;
	*ret = real;
	return true;
}

bool process_alive(struct process_id process)
{
	struct process_id now = {0};

	return process_identify(process.pid, &now) == 0 && process_same(now, process);
}

int process_open(struct process_id process)
{
	cleanup_close int pidfd = (int)syscall(SYS_pidfd_open, process.pid, 0);
	struct process_id now = {0};

	if (pidfd < 0)
		return -errno;
	int rc = process_identify_by(pidfd, process.pid, &now);
	if (rc < 0)
		return rc;
	return process_same(now, process) ? steal_fd(&pidfd) : -ESRCH;
}

static bool is_in(const char *path, const struct stat *namespace)
{
	struct stat st;

	return stat(path, &st) == 0 && st.st_dev == namespace->st_dev &&
	       st.st_ino == namespace->st_ino;
}

int process_mount_namespace(struct process_id process)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)process.pid);
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	/* It had the PID before and has it still: what was opened was its own. */
	if (!process_alive(process))
		return -ESRCH;
	if (is_in("/proc/self/ns/mnt", &st) || is_in("/proc/1/ns/mnt", &st))
		return -EINVAL;
	return steal_fd(&fd);
}
