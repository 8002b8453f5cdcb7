/* The daemon's side of its launcher (proto/launcher.h, guard/launcher.h), which starts jobs of
 * other users. A system daemon of root's has one; any other daemon runs jobs of its own user,
 * without. Nothing here waits: a request is made in its owner's turn, and answered by a callback
 * from the loop (host/link.h). A launcher that is slow, or hangs, delays what it was asked for, and
 * nothing else; the log and `carve check` say so. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/process.h"
#include "daemon/host/link.h"
#include "proto/launcher.h"

struct error;
struct handover;
struct privileges;
struct runtime;
struct warrant;

struct launcher {
	struct link link;
	int link_fd; /* before there is a loop, and while the program is exchanged; -1: none */
	/* It is a service of its own, which may be started anew: then it is connected to again, by
	 * the warden. */
	bool service;
	bool lost;       /* it was there, and has ended */
	bool connecting; /* the warden was asked for a connection */
	bool slow;       /* the log says that it does not answer */
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
/* There is a loop from now on, and a warden that may connect to a service. */
void launcher_begin(struct launcher *launcher, uv_loop_t *loop, struct privileges *privileges);
/* The loop ends: no more answers. */
void launcher_stop(struct launcher *launcher);
/* Whether this daemon has one; it may just be started anew, and then requests fail. */
bool launcher_is_there(const struct launcher *launcher);
/* Whether it is not connected. */
bool launcher_is_away(const struct launcher *launcher);
/* Each second: looks whether it is there, and asks a new one how it limits jobs. Why the daemon has
 * to end: its own part has ended, and the next daemon has a new one. NULL: it goes on. */
const char *launcher_tick(struct launcher *launcher);
/* For how long it has not answered, in whole seconds, where that is longer than its work takes;
 * 0: it answers. */
unsigned launcher_slow_s(const struct launcher *launcher);

/* The wish for a warrant. */
struct launcher_wish {
	enum warrant_kind kind;
	uint32_t count, attempts; /* jobs of the text, and attempts of each */
	const char *text;
};

/* The requests. `owner` is the user in whose turn each is made (host/owner.h). They return 0 or
 * -errno (-ENOTCONN: it is away; -EAGAIN: the owner has too many requests), and then `cb` is not
 * called. The answer is a struct launcher_reply. *ret, which may be NULL, is for
 * launcher_forget(). */

/* A warrant for a text of the client at the other end of `socket_fd`:
 * launcher_warrant_read() has it of the descriptor that comes with the answer. Fails by -ETIMEDOUT
 * after a while. */
int launcher_vouch(struct launcher *launcher, uid_t owner, int socket_fd,
		   const struct launcher_wish *wish, link_cb cb, void *arg,
		   struct link_asked **ret);
int launcher_warrant_read(int fd, struct warrant *ret);
/* Has a shim started with what the sealed memfd says. The descriptor that comes with the answer is
 * the end of its pipe. Fails by -ETIMEDOUT after a while; then launcher_end() ends a shim that is
 * started yet. The error is -EKEYREJECTED where the launcher's key made no warrant for this
 * text, and never will, and -EKEYEXPIRED where it let this attempt, or a later one, run
 * before. It is -EKEYREVOKED where it made none for that of the agent, which says how
 * pods are made. */
int launcher_start(struct launcher *launcher, uid_t owner, int64_t job, uint32_t attempt,
		   int spec_fd, link_cb cb, void *arg, struct link_asked **ret);
/* The attempt is over: what is left of it is killed. `cb` may be NULL. */
int launcher_end(struct launcher *launcher, uid_t owner, int64_t job, uint32_t attempt, link_cb cb,
		 void *arg, struct link_asked **ret);
/* Has made anew what was removed of the directory of jobs' files, and of the user's in it
 * (LAUNCHER_NOBODY: of nobody's). */
int launcher_files(struct launcher *launcher, uid_t uid, link_cb cb, void *arg,
		   struct link_asked **ret);
/* Has files (enum shim_file) of an attempt removed, in the directory of user `uid`, in that user's
 * turn. No answer is told. */
int launcher_remove(struct launcher *launcher, uid_t uid, int64_t job, uint32_t attempt,
		    uint32_t files);
/* The rights from that number on are over, LAUNCHER_OVER_MAX of them at most. */
int launcher_over(struct launcher *launcher, uint64_t first, uint32_t count, link_cb cb, void *arg,
		  struct link_asked **ret);
/* The answer is nobody's. Takes NULL. */
void launcher_forget(struct launcher *launcher, struct link_asked *asked);

void launcher_hand_over(const struct launcher *launcher, struct handover *handover);
void launcher_take_over(struct launcher *launcher, struct handover *handover);
void launcher_leave(struct launcher *launcher);
