/* How a process of a session gets its ledger: one message each way on a SOCK_SEQPACKET Unix socket.
 * The daemon knows the peer (host PID, user) from SO_PEERCRED; the message carries no identity but
 * the session's ID. The connection stays open for the life of the process: forked children inherit
 * it as they inherit the driver's descriptors, so its end says that the driver's are gone too.
 *
 * Environment of a workload: CARVE_SESSION (ID), CARVE_ATTACH (path of the socket). */
#pragma once

#include <stdint.h>

#include "proto/ledger.h"

#define ATTACH_MAGIC 0x48435441u /* "ATCH" */
#define ATTACH_VERSION 1u
/* With ATTACH_COMMAND: my mount namespace was made for the slice, and every process in it is in the
 * slice. Allowed to root's commands only. */
#define ATTACH_FLAG_NAMESPACE 1u
/* With ATTACH_SETTLE: some of what I charged may not be on the device now (managed memory, what a
 * pool gave back unseen). So a figure below my charge says nothing about what I could not size. If
 * reserved[0] is a GPU of the ledger plus 1, the reply says how many bytes more are charged there
 * than the driver says. Its reserved[0] is the low half of that, reserved[1] the high half. */
#define ATTACH_FLAG_INEXACT 2u
/* With ATTACH_SETTLE of a GPU (reserved[0]): of what I charged there I gave reserved[1] units of
 * LEDGER_GRANULE back to the driver, which may keep some. The reply's reserved[2] is
 * ATTACH_TAKEN_OVER: whatever it keeps is charged by the daemon now, and I am to uncharge all of
 * mine. Else the daemon does not know of this: uncharge it, then settle as ever. */
#define ATTACH_FLAG_LEAVING 4u
/* With ATTACH_COMMAND, in a session that is not ephemeral: I am none of its commands any more, as
 * the container that I look after has stopped. A daemon that does not know of this takes it for
 * ATTACH_COMMAND. */
#define ATTACH_FLAG_STOPPED 8u
#define ATTACH_TAKEN_OVER 1u
/* In reserved[2] of the reply to an ATTACH_SETTLE without ATTACH_FLAG_LEAVING: the process stood
 * still over the sample, so that there is no more charged than the reply tells. */
#define ATTACH_SURE 2u
#define ATTACH_ENV_SESSION "CARVE_SESSION"
#define ATTACH_ENV_SOCKET "CARVE_ATTACH"
/* Absolute paths of the real driver's libraries, found by `carve run` before the front hides them.
 */
#define ATTACH_ENV_CUDA "CARVE_DRIVER_CUDA"
#define ATTACH_ENV_NVML "CARVE_DRIVER_NVML"
/* The stamp that the session had when the command was started or the container was made:
 * "UID:UUID,UUID". It says whose the session is, and which GPUs or MIG instances it has. The daemon
 * makes it (session_stamp() in daemon/session/session.h), and the API shows it. All copies of what
 * a session has carry its stamp. They count as long as the session's stamp is equal. */
#define ATTACH_ENV_STAMP "CARVE_STAMP"
#define ATTACH_STAMP_SIZE 3200

/* In the mount namespace of `carve run --isolation mount`: a directory for programs that are
 * started without their environment. It holds the variables above as lines NAME=VALUE, the driver's
 * own libraries, and carve's in `front`. Where there can be none in /run (it is read-only, or not
 * this user's), the first of the others whose parent is empty has it. */
#define ATTACH_SLICE_DIR "/run/carve-slice"
#define ATTACH_SLICE_DIRS                                                         \
	ATTACH_SLICE_DIR, "/usr/local/games/carve-slice", "/var/opt/carve-slice", \
		"/usr/local/src/carve-slice", "/srv/carve-slice", "/mnt/carve-slice"
#define ATTACH_SLICE_FILE "environment"
#define ATTACH_SLICE_PATH_SIZE 64
#define ATTACH_SLICE_FILE_SIZE 4096

enum attach_kind {
	/* I am a process that will use the GPU: reply has the ledger, and a slot. Descriptors in
	 * the reply: limits (read-only), ledger (read-write) and, from daemons that time-slice,
	 * wake. That is an eventfd that a process writes 1 to when it starts waiting at the gate,
	 * or takes an idle lease up again (proto/gate.h). It must not block. */
	ATTACH_WORKLOAD = 1,
	/* I am the command of an ephemeral session, before exec: the session lives as long as I do.
	 * No descriptors, no slot. The connection may be closed after the reply. */
	ATTACH_COMMAND = 2,
	/* On a workload's connection: the driver now holds memory that I could not size (a
	 * context): compare its figures with my slot, then reply. */
	ATTACH_SETTLE = 3,
	/* Only look at the session (NVML without CUDA): as ATTACH_WORKLOAD, but no slot is taken.
	 */
	ATTACH_OBSERVE = 4,
	/* A child of fork that takes up in a new daemon, or any process after a restart. As
	 * ATTACH_WORKLOAD (the wake descriptor is a new one), but `slot` names the slot that it
	 * already has in a ledger it has mapped. No request has descriptors: those that are sent
	 * along are refused by the kernel (SO_PASSRIGHTS), or dropped. */
	ATTACH_RESUME = 5,
	/* On a workload's connection: I am about to refuse memory for want of room. Memory of the
	 * session's processes that have ended, or are ending, comes back first. So does memory that
	 * others are posted with and have no more. The reply is sent when the driver has it: at
	 * once where there is none of either, and within ATTACH_SWEEP_MS. A daemon that does not
	 * know this says ATTACH_MALFORMED, and goes on. */
	ATTACH_SWEEP = 6,
};

#define ATTACH_SWEEP_MS 4000

struct attach_request {
	uint32_t magic;
	uint16_t version;
	uint16_t kind; /* enum attach_kind */
	char session[LEDGER_SESSION_SIZE];
	uint32_t slot;
	uint32_t flags; /* ATTACH_FLAG_* */
	uint32_t reserved[2];
};

enum attach_status {
	ATTACH_OK = 0,
	ATTACH_NO_SESSION = 1,    /* no such session, or it ended */
	ATTACH_NOT_PERMITTED = 2, /* it is another user's */
	ATTACH_FULL = 3,          /* no free slot */
	ATTACH_VERSION_MISMATCH = 4,
	ATTACH_MALFORMED = 5,
	ATTACH_FAILED = 6,
	/* The daemon could not learn the process's mount namespace in time: ask again. */
	ATTACH_BUSY = 7,
};

struct attach_reply {
	uint32_t magic;
	uint16_t version;
	uint16_t status; /* enum attach_status */
	uint32_t slot;   /* LEDGER_SLOT_DAEMON: none was taken */
	uint32_t reserved[3];
	char message[232]; /* one line for the user where status is not OK */
};

_Static_assert(ATTACH_STAMP_SIZE >=
		       12 + LEDGER_GPUS_MAX * sizeof(((struct ledger_limit *)0)->uuid_text),
	       "a stamp names a user and all GPUs of a session");
_Static_assert(sizeof(struct attach_request) == 64, "attach ABI");
_Static_assert(sizeof(struct attach_reply) == 256, "attach ABI");
