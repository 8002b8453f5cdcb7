/* A part of carved that keeps rights when the daemon gives its own up. It is a child process at the
 * other end of a link, a socket that keeps messages apart. libc only. */
#pragma once

#include <sys/types.h>

/* The first descriptor that a part keeps; those after it follow. */
#define PART_FD 3
#define PART_DESCRIPTORS_MAX 4

/* The part's life, in the child, which ends when it returns: 0, or negative where it could not
 * begin. */
typedef int (*part_run)(void *arg, int link_fd);

/* Forks a part called `name`. It dies with this process, and ignores the signals that are meant for
 * the daemon. *ret_link_fd is the caller's; `flags` are more of socketpair()'s. 0 or -errno. */
int part_fork(const char *name, int flags, part_run run, void *arg, int *ret_link_fd);
/* In a part, also one that became another program: has its name, and dies with its worker. */
void part_begin(const char *name, pid_t worker);
/* In a part: it has no business with the daemon's sockets, lock and database. Only these
 * descriptors stay open, besides what is standard, and have the numbers from PART_FD on. 0 or
 * -errno. */
int part_descriptors_keep(int *const *fds, unsigned count);
