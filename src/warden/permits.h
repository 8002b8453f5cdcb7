/* Permits: shims that were started and have not asked yet whether their command may run
 * (proto/shim.h, SHIM_PERMIT_FD). A right is spent when the shim asks, so that a start that failed
 * before costs none. */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

struct rights;

/* Shims that wait at a time. Each has a slice already, so GPUs have room for no more. */
#define PERMITS_MOST 1024u

struct permit {
	int fd; /* the warden's end of the shim's socket */
	uint64_t number;
	uint32_t attempt;
	bool again; /* as rights_check() has it */
	enum permit_state {
		PERMIT_WAITS,  /* the shim has not asked */
		PERMIT_ASKED,  /* it has, and its attempt is noted */
		PERMIT_SYNCING /* a sync of the register began after that */
	} state;
};

struct permits {
	unsigned count;
	struct permit permit[PERMITS_MOST];
};

/* Waits for a shim. Returns the end of the socket that is the shim's, or -errno; -EAGAIN: too many
 * wait. */
int permits_add(struct permits *permits, uint64_t number, uint32_t attempt, bool again);
/* Sets `fds` to what is waited for, one a permit; returns how many these are. */
unsigned permits_poll(const struct permits *permits, struct pollfd fds[static PERMITS_MOST]);
/* Notes the attempts of shims that ask, after poll(), and forgets shims that ended. */
void permits_run(struct permits *permits, struct rights *rights,
		 const struct pollfd fds[static PERMITS_MOST]);
/* Whether a shim waits for a sync that has not begun. */
bool permits_ask(const struct permits *permits);
/* A sync of the register begins. */
void permits_syncing(struct permits *permits);
/* The sync has ended with this result, 0 or -errno: answers the shims that asked before it began.
 * All of them were one wait for the disk. -EAGAIN: it did not begin, and they go on waiting. */
void permits_synced(struct permits *permits, struct rights *rights, int rc);
