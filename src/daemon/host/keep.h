/* Descriptors that outlive the daemon: those of ledgers, by name. The supervisor keeps them
 * (systemd's file-descriptor store) where it says that it has room for some (FDSTORE, which the
 * unit sets for older versions). Else a keeper process (proto/keep.h) does, which is started with
 * the first one. A keeper that ended is replaced, and gets all anew; so a ledger is lost only where
 * both end at once. Nothing here waits for the supervisor or for the keeper, but keep_start().
 *
 * A name is "SESSION.PART". One thread: the loop's. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "proto/keep.h"

struct kept;
struct keep_sending;

enum keep_state {
	KEEP_NONE,       /* no keeper runs, and there is nothing to keep */
	KEEP_SUPERVISED, /* the supervisor keeps them */
	KEEP_CONNECTED,  /* a keeper runs */
	KEEP_LOST,       /* it ended, or could not be started: to be tried again */
};

struct keep {
	enum keep_state state;
	uv_loop_t *loop;
	char dir[108]; /* absolute: the directory of the keeper's socket */
	int fd;        /* the connection to the keeper; -1: none */
	uv_poll_t *poll;
	ino_t socket; /* its file, when the daemon connected; 0: somebody had removed it */
	bool removed; /* somebody removed it: to be told once there is another */
	struct kept
		*found; /* the descriptors that the last daemon had kept, until they are taken */
	/* Messages that could not be sent at once, in order. */
	struct keep_sending *first, **last;
	uint64_t started_ns; /* CLOCK_MONOTONIC, when a keeper was last started */
	/* Calls keep_put() for all that is to be kept. */
	void (*put_all)(void *arg);
	void *arg;
};

/* Finds what was kept for daemons that served `runtime_dir` before this one: `anew` is false for
 * one that follows on another by an upgrade, and has all of it already. Waits for a living keeper,
 * 2 s at most; one that does not answer is replaced. */
void keep_start(struct keep *keep, uv_loop_t *loop, const char *runtime_dir, bool anew,
		void (*put_all)(void *arg), void *arg);
/* The descriptor that was kept under this name is the caller's; -1: none was. */
int keep_take(struct keep *keep, const char *session, const char *part);
/* All that is of use was taken: the rest is dropped. */
void keep_taken(struct keep *keep);

/* Has a descriptor kept, which stays the caller's, in place of any of that name. */
void keep_put(struct keep *keep, const char *session, const char *part, int fd);
void keep_drop(struct keep *keep, const char *session, const char *part);
/* Tries again what could not be done. Called about once a second. */
void keep_tick(struct keep *keep);
/* Where somebody removed the keeper's socket, the next daemon would not find it: another keeper
 * gets all anew. 1: so it was; 0: nothing is missing; or -errno. */
int keep_look(struct keep *keep);
/* The daemon ends: what is kept stays so. */
void keep_stop(struct keep *keep);
