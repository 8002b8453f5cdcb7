/* The questions that the daemon's worker, which has no rights, asks its guard, which has some:
 * messages of one size over a SOCK_SEQPACKET socket pair. The worker is not trusted:
 * guard_request_check(), and what each operation says. An ABI: after an upgrade a worker may meet
 * the guard of an earlier version. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define GUARD_MAGIC 0x44524147u /* "GARD" */
#define GUARD_VERSION 1u

enum guard_op {
	/* Send `signal` (SIGTERM or SIGKILL) to the process `pid`, `birth`, where `uid`, a
	 * session's user, may do so by the kernel's own rule. For root, to a process of root's only
	 * where that is in a slice. */
	GUARD_SIGNAL = 1,
	/* A descriptor of the mount namespace of the process `pid`, `birth`; see
	 * process_mount_namespace(). */
	GUARD_NAMESPACE = 2,
	/* Become the program that the worker runs by now, where root alone could have put that
	 * there. The answer to a renewal that was done comes from the new program. */
	GUARD_RENEW = 3,
	/* The daemon ends: remove its sockets from the runtime directory. */
	GUARD_LEAVE = 4,
	/* `file` of the runtime directory was removed by somebody: make it anew, and the directory,
	 * too. Its descriptor: a socket listens. */
	GUARD_FILE = 5,
};

/* In the runtime directory: the options of the daemon (daemon/host/runtime.h). */
#define RUNTIME_START_FILE "start"

enum guard_file {
	GUARD_FILE_LOCK = 1,
	GUARD_FILE_ATTACH = 2,
	GUARD_FILE_HTTP = 3,
	/* The directory that containers get, with a second name of the attach socket. */
	GUARD_FILE_CONTAINERS = 4,
	/* The log of a daemon in the background. */
	GUARD_FILE_LOG = 5,
	/* The link to the database, as it was when the guard began. */
	GUARD_FILE_LINK = 6,
	/* A connection to the socket of the launcher that is a service of its own. */
	GUARD_FILE_LAUNCHER = 7,
	/* The options of the daemon, as they were when the guard began; to be read alone. */
	GUARD_FILE_START = 8,
};

struct guard_request {
	uint32_t magic;
	uint16_t version;
	uint16_t op;     /* enum guard_op */
	uint64_t number; /* the answer's */
	int32_t pid;
	uint32_t uid;
	uint64_t birth;
	int32_t signal;
	uint32_t file;        /* enum guard_file; 0 for other operations */
	uint32_t reserved[6]; /* 0 */
};

struct guard_reply {
	uint32_t magic;
	uint16_t version;
	uint16_t op;
	uint64_t number;
	int32_t error; /* 0, or an errno value; -> EOPNOTSUPP: this guard does not know the
			  operation */
	uint32_t reserved[3];
};

_Static_assert(sizeof(struct guard_request) == 64, "guard ABI");
_Static_assert(sizeof(struct guard_reply) == 32, "guard ABI");

/* 0; -EPROTO: not a request, and whoever sent it is broken; -EOPNOTSUPP: of a later version, to be
 * answered so; -EINVAL: its values are not allowed, likewise. */
int guard_request_check(const struct guard_request *request, size_t size);
/* 0 or -EPROTO. */
int guard_reply_check(const struct guard_reply *reply, size_t size);
