/* One connection to the daemon, and the ledger that came over it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/attach.h"
#include "proto/ledger.h"

/* Owned by whoever attached; never given back: it ends with the process. Descriptors are
 * close-on-exec and have high numbers, out of the way of programs that count on low ones. */
struct attachment {
	struct ledger ledger;
	/* The ledger's shape and the number of GPUs as they were checked: what is in the mappings
	 * may be changed afterwards by other processes of the session. */
	struct ledger_header shape;
	uint32_t gpu_count;
	uint32_t slot; /* LEDGER_SLOT_DAEMON: only observing */
	int socket;
	int wake; /* an eventfd (attach.h); -1: the daemon sent none */
	/* Programs close descriptors that they don't know. */
	uint64_t socket_inode, wake_inode;
	uint32_t generation; /* the daemon's, when it was last heard of */
	bool unreachable;    /* nobody listened the last time */
	bool unanswered;     /* a daemon that hangs owes a reply */
	bool filtered;       /* there were filters of system calls before it attached */
};

/* Connects as the environment says (CARVE_SESSION, CARVE_ATTACH) and maps what it gets, checked.
 * While nobody listens (the daemon restarts) it tries for about two seconds. 0, or -errno with one
 * line for the user in `why`. */
int attach_open(enum attach_kind kind, struct attachment *ret, char *why, size_t why_size);

/* The part of it that follows the request: receives the reply, and maps what came with it. On
 * success the connection is *ret's. */
int attach_receive(enum attach_kind kind, int *fd, struct attachment *ret, char *why,
		   size_t why_size);

struct attach_settling {
	int gpu;          /* the fields below are about this GPU; -1: none is meant */
	bool exact;       /* all that the process charged is on the device */
	uint64_t leaving; /* bytes charged that it gave back to the driver */
	/* Answers: */
	bool asked; /* false: nobody there; the books stay as they are */
	/* The memory of `leaving` that the driver keeps is charged by others now: uncharge it. */
	bool taken_over;
	uint64_t over; /* bytes charged beside `leaving` that the driver does not know of */
	bool sure;     /* nothing was under way that it may have been told wrong for */
};
/* No more can be told at a time. */
#define ATTACH_LEAVING_MOST (UINT32_MAX * LEDGER_GRANULE)

/* Has the daemon compare the driver's figures with this process's slot, and waits until it has.
 * After a restart of the daemon it connects anew. False: as s->asked. */
bool attach_settle(struct attachment *a, struct attach_settling *s);

/* Has the daemon give back what processes of the session held that have ended or are ending. Waits
 * until the driver has it: some seconds at most, ATTACH_SWEEP_MS, where it does not come. True:
 * that was looked into. False: nobody there, or one that hangs, which is waited for once. */
bool attach_sweep(struct attachment *a);

/* Tells the daemon that a thread waits at the gate, or that an idle lease is taken up again. */
void attach_wake(const struct attachment *a);
/* Whether the daemon is there, as far as can be seen without asking it. If it went, or another one
 * took over, this connects anew, in one try. The ledger's and the wake descriptor may be new then.
 */
bool attach_refresh(struct attachment *a);
