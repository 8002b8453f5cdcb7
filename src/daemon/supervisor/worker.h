/* A worker of carve's own supervisor: the daemon as a child process, which is handed descriptors as
 * systemd hands them to a service. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

struct hoard;
struct runtime;

#define WORKER_GROUPS_MAX 16
/* The lease thread's niceness. */
#define WORKER_NICE (-10)

/* The user that a worker of root's becomes. */
struct worker_user {
	uid_t uid; /* 0: it stays what its supervisor is */
	gid_t gid;
	gid_t groups[WORKER_GROUPS_MAX]; /* those that may use the GPUs' device nodes */
	size_t group_count;
};
/* This process becomes that user. 0 or -errno. */
int worker_user_become(const struct worker_user *user);

/* A worker that is being prepared (daemon/prepare.h). */
struct worker_preparation {
	struct worker_user user; /* the user that the worker is to become */
	int answer_fd; /* readable once what was asked for that user has its answer; -1: none */
};

struct worker_start {
	char *const *argv;             /* those of the supervisor */
	const char *notify;            /* the path at which the worker tells the supervisor */
	const struct runtime *runtime; /* its sockets */
	int lock_fd, control_fd;
	int warden_fd; /* the link to its warden; -1: it has none */
	struct worker_user user;
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
