/* How a daemon has its keeper (carve-keeper) hold descriptors of ledgers, so that they outlive the
 * daemon: messages of one size over a SOCK_SEQPACKET Unix socket. An ABI: a daemon may meet the
 * keeper of an earlier one. Nothing in a message is trusted: keep_message_check(). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define KEEP_MAGIC 0x5045454bu /* "KEEP" */
#define KEEP_VERSION 1u
/* The size of a name, with its terminating NUL. A name is of lower-case letters, digits, '-' and
 * '.', which systemd takes as the name of a descriptor, too. */
#define KEEP_NAME_SIZE 48

/* In the daemon's runtime directory: a directory that only the daemon's user may enter, and the
 * keeper's socket in it. */
#define KEEP_DIR "keeper"
#define KEEP_SOCKET "socket"
/* The keeper is started with its listening socket as this descriptor, and with the path of KEEP_DIR
 * as its only argument. */
#define KEEP_LISTEN_FD 3

enum keep_op {
	/* To the keeper. */
	KEEP_PUT = 1,  /* hold the descriptor that comes along, in place of any of this name */
	KEEP_DROP = 2, /* hold what has this name no longer */
	KEEP_LIST = 3, /* answered by a KEEP_HELD for each, then by a KEEP_END */
	/* From the keeper. */
	KEEP_HELD = 4,    /* with the descriptor */
	KEEP_END = 5,     /* that was all */
	KEEP_REFUSED = 6, /* a KEEP_PUT of this name could not be done: `error` says why */
};

struct keep_message {
	uint32_t magic;
	uint16_t version;
	uint16_t op;   /* enum keep_op */
	int32_t error; /* KEEP_REFUSED: an errno value */
	uint32_t reserved;
	char name[KEEP_NAME_SIZE]; /* "" for KEEP_LIST and KEEP_END */
};

_Static_assert(sizeof(struct keep_message) == 64, "keeper ABI");

struct keep_message keep_message_make(enum keep_op op, const char *name);
/* Whether `size` bytes at `message` are one that either side may send. 0 or -EPROTO. */
int keep_message_check(const struct keep_message *message, size_t size);
