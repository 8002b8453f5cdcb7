/* The warden's operations on programs that may be outside of slices (proto/warden.h). A program is
 * looked at first. It is signalled only if it has all the same marks then. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/warden.h"

/* Room for the ID of a session that a mark names: letters, digits and '-', and zeros behind them.
 */
#define MARKS_SESSION_SIZE 16u

enum warden_mark {
	/* It is in another user or PID namespace than the warden, or has several user IDs. */
	WARDEN_MARK_FOREIGN = 1,
	/* The proofs of src/warden/slice.c, one bit each. */
	WARDEN_MARK_JOB = 2,
	WARDEN_MARK_LEDGER = 4, /* `ledger_inode` and `ledger_device` are of the mapped file */
	WARDEN_MARK_CARVE = 8,  /* it runs carve, as root installed it */
	WARDEN_MARK_ENVIRONMENT = 16, /* `session` is the word of its user */
	WARDEN_MARK_FILE = 32,        /* likewise, by a file of the user in its mount namespace */
	WARDEN_MARK_ROOT = 64,        /* root says so: `session` is named by a file of root's */
};

/* WARDEN_SLICE_LOOK, with a struct warden_process: what says that the process is in a slice. */
struct warden_marks {
	uint64_t ledger_device, ledger_inode;
	uint32_t marks; /* enum warden_mark */
	uint32_t uid;   /* its user; UINT32_MAX: it has several */
	/* The session that the strongest of its marks names; "": none, or what it names is no ID.
	 */
	char session[MARKS_SESSION_SIZE];
};

/* WARDEN_SIGNAL_OUTSIDE: SIGTERM or SIGKILL to a process of an ordinary user that has these marks
 * still, and that the driver lists as one that computes. `signal.uid` is the process's own user.
 * The error is EAGAIN where its marks are others by now. It is EPERM where a mark spares the
 * process, and EACCES where the driver does not list it. */
struct warden_outside {
	struct warden_signal signal;
	struct warden_marks marks;
};

_Static_assert(sizeof(struct warden_marks) == 40, "warden ABI");
_Static_assert(sizeof(struct warden_outside) == 64, "warden ABI");

/* The marks that spare a program whatever session they name. */
#define WARDEN_MARKS_SPARED (WARDEN_MARK_FOREIGN | WARDEN_MARK_JOB | WARDEN_MARK_CARVE)

bool warden_outside_fits(const void *request);
