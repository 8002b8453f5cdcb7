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
	int limits_fd, ledger_fd;
	int wake; /* an eventfd (attach.h); -1: the daemon sent none */
	/* Programs close descriptors that they don't know. */
	uint64_t socket_inode, wake_inode, limits_inode, ledger_inode;
	uint32_t generation; /* the daemon's, when it was last heard of */
	bool unreachable;    /* nobody listened the last time */
};

/* Connects as the environment says (CARVE_SESSION, CARVE_ATTACH) and maps what it gets, checked.
 * While nobody listens (the daemon restarts) it tries for about two seconds. 0, or -errno with one
 * line for the user in `why`. */
int attach_open(enum attach_kind kind, struct attachment *ret, char *why, size_t why_size);

/* The part of it that follows the request: receives the reply, and maps what came with it. On
 * success the connection is *ret's. */
int attach_receive(enum attach_kind kind, int *fd, struct attachment *ret, char *why,
		   size_t why_size);

/* Has the daemon compare the driver's figures with this process's slot, and waits until it has.
 * After a restart of the daemon it connects anew. exact: all that it charged is on the device.
 * *ret_over: bytes charged on `gpu` (-1: none is meant) that the driver does not know of. False:
 * nobody there; the books stay as they are. */
bool attach_settle(struct attachment *a, bool exact, int gpu, uint64_t *ret_over);

/* Tells the daemon that a thread waits at the gate, or that an idle lease is taken up again. */
void attach_wake(const struct attachment *a);
/* For calls that are made often, in one system call while all is well: where the daemon has gone,
 * and none has taken the ledger up (it may not look into this process), connects anew and shows it
 * the ledger. */
void attach_look(struct attachment *a);
/* Whether the daemon is there, as far as can be seen without asking it. Where it went, or another
 * one took over, connects anew, in one try. The ledger's and the wake descriptor may be new then.
 */
bool attach_refresh(struct attachment *a);
