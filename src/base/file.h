/* File descriptors and small files. libc only: safe inside a foreign process. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Closes *fd when it is >= 0; for __attribute__((cleanup)). Keeps errno. */
void close_fd(int *fd);
void free_ptr(void *pp);
#define cleanup_close __attribute__((cleanup(close_fd)))
#define cleanup_free __attribute__((cleanup(free_ptr)))

/* Moves a descriptor out of an owned variable, leaving -1. */
static inline int steal_fd(int *fd)
{
	int value = *fd;

	*fd = -1;
	return value;
}

/* Reads a whole (small) file into buf, NUL-terminated. Returns its length, or -errno; -EFBIG when
 * it does not fit. */
ssize_t file_read(const char *path, char *buf, size_t size);

/* Reads until the end or `size` bytes, over short reads and EINTR. The number of bytes, or -errno.
 */
ssize_t read_all(int fd, void *buf, size_t size);

/* Opens a path as a process would whose root that directory is: no link in it leads out. A
 * descriptor, or -errno; -ENOSYS before Linux 5.6. */
int open_in_root(int root_fd, const char *path, int flags);

/* Likewise a plain file, for reading, and nothing else: to open a device may do something already.
 * `self_fd` is a descriptor of /proc/self/fd, for callers that are in another mount namespace
 * meanwhile, or AT_FDCWD. -EMEDIUMTYPE: it is no plain file. */
int open_plain_in_root(int root_fd, int self_fd, const char *path);

/* Opens what lies below a directory that others may write to: no link is followed, and no file
 * system entered that somebody mounted there, which could answer when it likes. A descriptor, or
 * -errno (-ELOOP, -EXDEV). Kernels before 5.6 and containers that forbid it follow links on the
 * way. */
int open_beneath(int dir_fd, const char *path, int flags);

/* Start time of a process in clock ticks since boot (/proc/PID/stat, field 22).
 * 0 or -errno (-ESRCH: no such process). */
int process_start_time(pid_t pid, unsigned long long *ret_ticks);
/* Whether it is gone or has given up its memory, and the rest of it will be gone in a moment: other
 * threads of it may hold its descriptors still. */
bool process_is_ending(pid_t pid);
/* Whether its first thread is gone, with others there still or not: of a program that ends that one
 * last, it is being killed. */
bool process_is_headless(pid_t pid);

/* The process that a process is a child of, 0: it is not to be seen from here. 0 or -errno. */
int process_parent(pid_t pid, pid_t *ret_parent);

/* Directory of the running executable, without a trailing slash. 0 or -errno. */
int executable_dir(char *buf, size_t size);
/* Path of the program `name` in that directory, into `buf` of `size` bytes. 0 or -errno. */
int executable_beside(const char *name, char *buf, size_t size);

/* Each of the descriptors 0 to 2 that is closed gets a file on which every read and write fails as
 * on a closed one. So no file or socket that is opened later gets its number, and with it what a
 * library writes there. An exec closes them again. */
void standard_descriptors_hold(void);

/* Puts a file in place of `path`, whole or not at all, by way of `temporary` in the same directory,
 * which must be the caller's alone. When it returns the contents are on the disk, and so is the
 * name. 0 or -errno. */
int file_replace(const char *path, const char *temporary, const void *data, size_t size,
		 mode_t mode);

/* Whether the path still leads to the open file; also where there is no file to compare it with. */
bool file_is_at(int fd, const char *path);

/* The most bytes that a file may have which this process writes (ulimit -f); UINT64_MAX: no limit.
 */
uint64_t file_size_limit(void);

/* Has the names that were made, changed or removed in a directory on the disk. 0 or -errno. */
int directory_sync(const char *dir);

/* Writes all of it, over short writes and EINTR. 0 or -errno. */
int write_all(int fd, const void *data, size_t size);
