/* Which daemon has a GPU: one at a time. On the loop's thread.
 *
 * A system daemon files its claim: /run/carve-claims/UID/UUID, a text "PID BIRTH\n" (peer.h), in
 * directories that only root makes, UID being the user that it runs as. The claim holds as long as
 * that process lives; nobody else can make one or keep one from being made.
 *
 * A user's own daemon, and any other that may not write there, takes a name in the abstract
 * namespace, by listening. Any user may take that name, but it stands in no system daemon's way:
 * users' daemons give way to a system daemon, within a second and before each request.
 *
 *   state      becomes, of a user's daemon              becomes, of a system daemon
 *   NONE       OURS: it took the name                   OURS: it filed its claim
 *              OTHERS: another has the name             OTHERS: another's claim holds
 *              SYSTEM: a system daemon's claim holds
 *              RESERVED: see claim_state
 *   OURS       SYSTEM, RESERVED: it gives way           -
 *   OTHERS     any: the holder ended or gave way        OURS: the holder ended
 *   SYSTEM     any: the system daemon ended             -
 *   RESERVED   any: it came, or was removed             - */
#pragma once

#include <stdbool.h>
#include <uv.h>

#include "daemon/host/peer.h"

#define CLAIMS_DIR "/run/carve-claims"

enum claim_state {
	CLAIM_NONE, /* not tried yet, or it could not be made */
	CLAIM_OURS,
	CLAIM_OTHERS, /* another daemon's, which this one does not displace */
	CLAIM_SYSTEM, /* a system daemon's */
	/* The system daemon's, which is installed here and does not run: a real GPU, or a simulated
	 * one that it had. */
	CLAIM_RESERVED,
};

struct claim {
	enum claim_state state;
	struct process_id holder; /* OTHERS, SYSTEM: who has it; PID 0: not known */
	uid_t holder_uid;
	int name_fd; /* the abstract socket; -1: not this daemon's */
	uv_poll_t *poll;
};

/* The directory in which this daemon files claims; zeroed: it files none. */
struct claims {
	bool system; /* it does; else it takes names */
	bool stays;  /* its claims are left behind when it ends: the service comes back */
	int dir_fd;  /* its directory */
	int lock_fd; /* the lock that a daemon holds while it looks and files */
};

/* The text of a claim's file. False: it is none. */
bool claim_parse(const char *text, struct process_id *ret);

/* Makes a daemon a system daemon, in what claims are concerned. Opens its directory, which is made
 * where it is missing and belongs to `owner`, the user as whom the daemon files claims. Called as
 * root; what comes later needs no rights but to write there. The caller sets `stays`. 0 or -errno:
 * it takes names then. */
int claims_open(struct claims *claims, uid_t owner);
/* Whether its directory is not any more where other daemons look. */
bool claims_gone(const struct claims *claims);
void claims_close(struct claims *claims);

/* A claim that nobody looked after yet. */
#define CLAIM_NEW ((struct claim){.name_fd = -1})

/* Looks who has the GPU of this UUID, and takes it where it can be had; `simulated` GPUs are
 * reserved only for the system daemon that had them. True: the state is another now. */
bool claim_update(struct claims *claims, uv_loop_t *loop, struct claim *claim, const char *uuid,
		  bool simulated);
/* Takes up a name that the last program left, of which this daemon becomes the owner. */
void claim_inherit(uv_loop_t *loop, struct claim *claim, int name_fd);
/* Gives it up: others may have the GPU. */
void claim_release(struct claims *claims, struct claim *claim, const char *uuid);
