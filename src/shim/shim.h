/* The shim's own state, and what its files share. One process, one thread, one job. */
#pragma once

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/shim.h"
#include "shim/record.h"
#include "shim/spec.h"

/* RUNNING -> TERMINATED (its processes were asked to end) -> REMOVED (its container is being
 * removed; only a container's job has that) -> KILLED. */
enum stage { STAGE_RUNNING, STAGE_TERMINATED, STAGE_REMOVED, STAGE_KILLED };

struct shim {
	struct record_place place;
	struct shim_spec spec;
	struct shim_go go;
	int record;   /* its file */
	pid_t parent; /* the daemon that started it */
	int signals;  /* a signalfd */
	sigset_t mask;
	pid_t child;
	enum stage stage;
	const char *why;  /* the shim ended the job: "timeout", "cancelled"; NULL: it did not */
	uint64_t next_ns; /* CLOCK_MONOTONIC: when the next stage begins; UINT64_MAX: not by time */
	int64_t started;
	int daemon;            /* a pidfd of the user's own daemon; -1: not watched now */
	char cgroup[PATH_MAX]; /* the cgroup of the job's processes; "": they have none of their own
				*/
	int remover;           /* a pipe to the process of remover.c; -1: there is none */
	uint64_t look_ns;      /* when a daemon is to be looked for; UINT64_MAX: one is watched */
};

/* The words of a child that could not become the command. */
struct failure {
	int code;
	char text[512];
};

/* ---- main.c */
void shim_stage_next(struct shim *shim, uint64_t now);
/* Starts the runtime's command that kills and removes the job's container, or, if that stays, kills
 * it alone. In the job's environment, which may say where the runtime has its containers. The
 * child's number, or -1. The child ends with 0 if the command succeeded, or if there is none. */
pid_t shim_container_kill(const struct shim *shim, bool stays);

/* ---- remover.c */
/* Starts, once the command is forked, the process carve-remover, which removes the job's container
 * if this one is killed. The job goes on without it where it cannot be started. It ends when it
 * reads a byte. */
void shim_remover_start(struct shim *shim);

/* ---- command.c */
/* Becomes the job's command, in the child: prepares all, waits at `gate` for a byte, and executes
 * it. A failure is written to `failures`. */
_Noreturn void shim_command_become(const struct shim *shim, int gate, int failures);
/* Records that nothing ran: the daemon may start the job anew. */
void shim_leave_unstarted(const struct shim *shim);

/* ---- daemon.c */
/* A user's own daemon is started by whoever needs it; a system daemon by root alone. */
bool shim_runtime_is_mine(const struct shim *shim);
bool shim_daemon_is_unreachable(const struct shim *shim);
/* Watches the user's own daemon while the job runs: the job ends with its simulated host. */
void shim_daemon_look(struct shim *shim);
void shim_daemon_ended(struct shim *shim);
