/* Jobs of other users: the daemon's side of the warden's operations on them (proto/warden_jobs.h).
 * A system daemon of root's has a warden that starts them; any other daemon runs jobs of its own
 * user, without. Nothing here waits: a request is made in its owner's turn, and answered by a
 * callback from the loop (host/warden_link.h). Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/process.h"
#include "daemon/host/warden_link.h"
#include "proto/warden_jobs.h"

struct launcher {
	struct warden_link *warden;
	bool there;              /* the warden starts jobs */
	bool service;            /* it is a service of its own */
	bool slow;               /* the log says that it does not answer */
	bool asked;              /* how it limits jobs */
	bool greeted;            /* it has answered that, and the next two say what */
	uint64_t tasks_max;      /* processes and threads; 0: no limit */
	enum warden_tasks tasks; /* the kind of limit */
	char why_not[160];       /* a system daemon's warden starts none: why */
};

/* There is a loop from now on. Asks how the warden limits jobs. */
void launcher_begin(struct launcher *launcher, struct warden_link *warden);
/* Whether this daemon's warden starts jobs. */
bool launcher_is_there(const struct launcher *launcher);
/* Whether that warden has ended. The daemon ends, too. */
bool launcher_is_away(const struct launcher *launcher);
/* Each second: has the log say whether the warden answers. */
void launcher_tick(struct launcher *launcher);
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
 * -errno (-ENOTCONN: the warden is away; -EAGAIN: the owner has too many requests), and then `cb`
 * is not called. *ret, which may be NULL, is for launcher_forget(). */

/* A warrant for a text of the client at the other end of `socket_fd`. The answer is the struct
 * warrant. Fails by -ETIMEDOUT after a while. */
int launcher_vouch(struct launcher *launcher, uid_t owner, int socket_fd,
		   const struct launcher_wish *wish, warden_cb cb, void *arg, uint64_t *ret);
/* Has a shim started with what the sealed memfd says. The answer is a struct warden_started; the
 * descriptor that comes with it is the end of its pipe. Fails by -ETIMEDOUT after a while; then
 * launcher_end() ends a shim that is started yet. The error is -EKEYREJECTED where the warden's key
 * made no warrant for this text, and never will, and -EKEYEXPIRED where it let this attempt, or a
 * later one, run before. It is -EKEYREVOKED where it made none for that of
 * the agent, which says how pods are made. */
int launcher_start(struct launcher *launcher, uid_t owner, int64_t job, uint32_t attempt,
		   int spec_fd, warden_cb cb, void *arg, uint64_t *ret);
/* The attempt is over: what is left of it is killed. `cb` may be NULL. */
int launcher_end(struct launcher *launcher, uid_t owner, int64_t job, uint32_t attempt,
		 warden_cb cb, void *arg, uint64_t *ret);
/* The attempt's command is killed with all its processes, but not what carve runs beside it. No
 * answer is told. */
int launcher_command_kill(struct launcher *launcher, uid_t owner, int64_t job, uint32_t attempt);
/* Has made anew what was removed of the directory of jobs' files, and of the user's in it
 * (WARDEN_NOBODY: of nobody's). `cb` may be NULL. */
int launcher_files(struct launcher *launcher, uid_t uid, warden_cb cb, void *arg, uint64_t *ret);
/* Has files (enum shim_file) of an attempt removed, in the directory of user `uid`, in that user's
 * turn. No answer is told. */
int launcher_remove(struct launcher *launcher, uid_t uid, int64_t job, uint32_t attempt,
		    uint32_t files);
/* The rights from that number on are over, WARDEN_OVER_MAX of them at most. */
int launcher_over(struct launcher *launcher, uint64_t first, uint32_t count, warden_cb cb,
		  void *arg, uint64_t *ret);
/* The answer is nobody's. Takes 0. */
void launcher_forget(struct launcher *launcher, uint64_t asked);
