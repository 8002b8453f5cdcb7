/* The daemon's side of its launcher (proto/launcher.h, guard/launcher.h), which starts jobs of
 * other users. A system daemon of root's has one; any other daemon runs jobs of its own user,
 * without. Each call waits for the launcher, whose work for it is a millisecond at most. Loop
 * thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/process.h"
#include "proto/launcher.h"

struct error;
struct handover;
struct privileges;
struct runtime;
struct warrant;

struct launcher {
	int link_fd; /* -1: it is not connected */
	uint64_t number;
	/* It is a service of its own, which may be started anew: then it is connected to again, by
	 * the guard. */
	bool service;
	bool lost;           /* it was there, and has ended or does not answer */
	uint64_t connect_ns; /* not before that is it connected to again; CLOCK_MONOTONIC */
	struct privileges *privileges;
	bool greeted;              /* it has answered, and the next two say what */
	uint64_t tasks_max;        /* processes and threads; 0: no limit */
	enum launcher_tasks tasks; /* the kind of limit */
	char why_not[160];         /* there is none in a system daemon of root's: why */
};

/* Before the process becomes the worker, whose group is `gid`: makes the directory of jobs' files
 * in the state directory, and forks the launcher. If that is not possible, launcher->why_not says
 * why, and the daemon runs without one. `job_tasks`: tasks that each job may have; 0: the default.
 */
void launcher_make(struct launcher *launcher, const char *state_dir, const struct runtime *runtime,
		   gid_t gid, uint32_t job_tasks);
/* The whole of `carved --launcher`, a service beside a daemon that has no rights to fork one:
 * serves until it is ended. `gid` as above. Returns the exit code, with *err. */
int launcher_main(const char *state_dir, struct runtime *runtime, gid_t gid, uint32_t job_tasks,
		  struct error *err);
/* Whether this daemon has one; it may just be started anew, and then the calls below fail. */
bool launcher_is_there(const struct launcher *launcher);
/* Whether that is why a call below failed. */
bool launcher_is_away(const struct launcher *launcher);
/* Each second: looks whether it is there, and asks a new one how it limits jobs. Why the daemon has
 * to end: its own part has ended, and the next daemon has a new one. NULL: it goes on. */
const char *launcher_tick(struct launcher *launcher);

/* A warrant for `text` of the client at the other end of `socket_fd`. 0 or -errno. */
int launcher_vouch(struct launcher *launcher, int socket_fd, enum warrant_kind kind,
		   const char *text, struct warrant *ret);
/* Has a shim started with what the sealed memfd says. *ret_go: the end of its pipe. Returns 0 or
 * -errno. The error is -EKEYREJECTED where the launcher's key made no warrant for this text, and
 * never will. It is -EKEYREVOKED where it made none for that of the agent, which says how pods are
 * made. */
int launcher_start(struct launcher *launcher, int64_t job, uint32_t attempt, int spec_fd,
		   int *ret_go, struct process_id *ret);
/* The attempt is over: what is left of it is killed. 0 or -errno. */
int launcher_end(struct launcher *launcher, int64_t job, uint32_t attempt);
/* Has made anew what was removed of the directory of jobs' files, and of the user's in it
 * ((uid_t)-1: of nobody's). 0 or -errno. */
int launcher_files(struct launcher *launcher, uid_t uid);

void launcher_hand_over(const struct launcher *launcher, struct handover *handover);
void launcher_take_over(struct launcher *launcher, struct handover *handover);
void launcher_leave(struct launcher *launcher);
