/* The requests that a system daemon's worker, which has no rights, makes of its warden, which has
 * root's (src/warden/warden.h). A message is a head and what its operation takes, of one size, over
 * a SOCK_SEQPACKET socket. Each request has one answer with its number; answers come in any order.
 * A request holds numbers alone: no path, no text. The worker is not trusted; docs/dev/security.md,
 * "Operations of the warden", says for each operation what a broken worker gains by it. Worker and
 * warden may be of different versions for as long as one of them is not restarted. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WARDEN_MAGIC 0x44524157u /* "WARD" */
#define WARDEN_VERSION 1u
/* The most that follows a head, in either direction. */
#define WARDEN_SIZE_MAX 4096u
/* The most descriptors that go with a request. An answer has one at most. */
#define WARDEN_DESCRIPTORS_MAX 2u
/* The warden keeps so many requests waiting for one owner, and for all owners together. It answers
 * the next one by EAGAIN. A worker sends no more (daemon/host/warden.h). */
#define WARDEN_WAITING_OWNER 32u
#define WARDEN_WAITING_ALL 512u

/* Each has its line in the table of src/warden/operations.c. */
enum warden_operation {
	WARDEN_SIGNAL = 1,
	WARDEN_NAMESPACE_LOOK = 2,
	WARDEN_NAMESPACE_HOLD = 3,
	/* proto/warden_mig.h */
	WARDEN_MIG_KINDS = 6,  /* the profiles that a GPU can have */
	WARDEN_MIG_LIST = 7,   /* its instances */
	WARDEN_MIG_MAKE = 8,   /* one at a place. The error is ENOSPC where another is there */
	WARDEN_MIG_REMOVE = 9, /* one that the warden made, tried once. Else the error is EPERM */
	WARDEN_MIG_MODE = 10,  /* MIG mode on, tried once */
	/* proto/warden_limits.h */
	WARDEN_LIMIT_PROBE = 11,
	WARDEN_LIMIT_PUT = 12,
	WARDEN_LIMIT_ENTER = 13,
	WARDEN_LIMIT_LEAVE = 14,
	/* proto/warden_jobs.h */
	WARDEN_JOB_VOUCH = 15,
	WARDEN_JOB_START = 16,
	WARDEN_JOB_END = 17,
	WARDEN_JOB_FILES = 18,
	WARDEN_JOB_REMOVE = 19,
	WARDEN_JOB_OVER = 20,
	WARDEN_SIGNAL_ON_GPU = 21,
	WARDEN_OWN_SYNC = 22, /* the warden's own, which no worker may ask for */
	WARDEN_ROOT_LOOK = 23,
	WARDEN_SIGNAL_PEER = 24,
	/* proto/warden_outside.h */
	WARDEN_SLICE_LOOK = 25,
	WARDEN_SIGNAL_OUTSIDE = 26,
	/* proto/warden_devices.h */
	WARDEN_DEVICE_ACCESS = 27,
};

struct warden_head {
	uint32_t magic;
	uint16_t version;
	uint16_t operation; /* enum warden_operation; an answer has its request's */
	uint64_t number;    /* likewise */
	uint32_t size;      /* bytes behind the head */
	uint32_t owner;     /* a request's: the user in whose turn it is done */
	int32_t error;      /* an answer's: 0 or an errno value, and then nothing follows */
	uint32_t reserved;  /* 0 */
};

/* WARDEN_SIGNAL: send SIGTERM or SIGKILL to a process that is in a slice, if `uid`, a session's
 * user, may do so by the kernel's own rule. WARDEN_SIGNAL_ON_GPU: likewise to a process that the
 * driver lists on a GPU, in a slice or not, but not to one of root's. WARDEN_SIGNAL_PEER: likewise
 * to a process that connected to the attach socket, with the worker's end of that connection. The
 * errors are EACCES where the warden finds no proof that the process is there, and EPERM where the
 * kernel refuses. */
struct warden_signal {
	uint64_t birth;
	int32_t pid;
	int32_t signal;
	uint32_t uid;
	uint32_t reserved; /* 0 */
};

/* WARDEN_ROOT_LOOK, with a struct warden_process of user ID 0: whether it is root of the host, as
 * base/host_root.h has it. The error is EPERM where it is not. */

/* WARDEN_NAMESPACE_LOOK: the number of the mount namespace that a process is in. The error is
 * EINVAL where that is the host's. WARDEN_NAMESPACE_HOLD: the same, with a descriptor of it, and
 * only of root's processes. */
struct warden_process {
	uint64_t birth;
	int32_t pid;
	uint32_t reserved; /* 0 */
};
struct warden_namespace {
	uint64_t device, inode; /* st_dev and st_ino */
};

_Static_assert(sizeof(struct warden_head) == 32, "warden ABI");
_Static_assert(sizeof(struct warden_signal) == 24, "warden ABI");
_Static_assert(sizeof(struct warden_process) == 16, "warden ABI");
_Static_assert(sizeof(struct warden_namespace) == 16, "warden ABI");

/* Whether a message of `size` bytes has a head that fits it. If not, whoever sent it is broken. */
bool warden_head_fits(const struct warden_head *head, size_t size);
/* Whether an answer of `size` bytes has a head that fits it, and as much behind it as is wanted.
 * `wanted`: the bytes behind a head without an error. */
bool warden_answer_fits(const struct warden_head *head, size_t size, size_t wanted);
/* Whether the numbers can name a process that is neither the first one nor a group. */
bool warden_names_process(int32_t pid, uint64_t birth);
/* Whether the numbers of a struct warden_signal are allowed. */
bool warden_signal_fits(const struct warden_signal *signal);
