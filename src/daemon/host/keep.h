/* Descriptors that outlive the daemon, by name: the supervisor keeps them (supervisor.h), and hands
 * them to the next daemon. Nothing here waits for the supervisor, but keep_flush().
 *
 * A name is "OWNER.PART": the session of a ledger, or another owner that no session is called. One
 * thread: the loop's. */
#pragma once

#include <stdbool.h>
#include <uv.h>

#include "daemon/host/supervisor.h"

struct kept;
struct keep_sending;

struct keep {
	struct kept *found; /* those that the last daemon had kept, until they are taken */
	struct kept *sent;  /* those that the supervisor has now; without descriptors */
	size_t bytes;       /* the names of `sent`, with a byte between */
	/* Messages that could not be sent at once, in order. */
	struct keep_sending *first, **last;
	uv_poll_t *poll; /* tells when the supervisor takes more; NULL: the loop does not run yet */
};

/* Finds what was kept for this daemon. */
void keep_begin(struct keep *keep);
/* Has the loop send what could not be sent at once. 0 or -errno. */
int keep_start(struct keep *keep, uv_loop_t *loop);
/* The descriptor that was kept under this name is the caller's, and stays kept; -1: there is none.
 */
int keep_take(struct keep *keep, const char *owner, const char *part);
/* All that is of use was taken: the rest is dropped. */
void keep_taken(struct keep *keep);

/* Has a descriptor kept, which stays the caller's, in place of any of that name. */
void keep_put(struct keep *keep, const char *owner, const char *part, int fd);
void keep_drop(struct keep *keep, const char *owner, const char *part);
/* Tells the supervisor a state that it must not miss, as "READY=1", behind the names. */
void keep_tell(struct keep *keep, const char *state);
/* The process is about to end: waits until all of it is sent, 0.2 s at most. */
void keep_flush(struct keep *keep);
/* Ends this process at once, as if it were killed, so that its supervisor starts the next one;
 * `renews`: as the program that is installed by then. */
_Noreturn void keep_restart(struct keep *keep, const char *why, bool renews);
/* The loop ends. The supervisor goes on keeping what it has. */
void keep_stop(struct keep *keep);
