/* A worker of carve's own supervisor: the daemon as a child process, which is handed descriptors as
 * systemd hands them to a service. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

struct hoard;

struct worker_start {
	char *const *argv;  /* those of the supervisor */
	const char *notify; /* the path at which the worker tells the supervisor */
	int lock_fd, control_fd, attach_fd, http_fd;
	int warden_fd, separation_fd; /* for a worker of root's; -1: it gets none */
	const struct hoard *hoard;
	pid_t supervisor;
};

/* Starts it. Its PID, or -errno. */
pid_t worker_fork(const struct worker_start *start);
/* Puts `count` descriptors, and then the hoard's, where the program that is about to be executed
 * looks for them, and names them in the environment. 0 or -errno. Changes this process so that it
 * has to execute a program. */
struct worker_descriptor {
	const char *name;
	int fd;
};
int worker_descriptors_pass(const struct worker_descriptor *first, size_t count,
			    const struct hoard *hoard);
