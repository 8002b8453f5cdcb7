/* The daemon's side of its supervisor, which is systemd or carve's own (daemon/supervisor): the
 * descriptors that it hands over, and the words that it is told. Both speak systemd's protocol
 * (LISTEN_FDS, LISTEN_FDNAMES, NOTIFY_SOCKET, FDSTORE); no library is needed. */
#pragma once

#include <stdbool.h>

/* The length of a name with its terminating NUL. A name of a stored descriptor is of lower-case
 * letters, digits, '-' and '.', and has a '.'. Names of sockets have none. */
#define SUPERVISOR_NAME_SIZE 48
/* The bytes that the names of all stored descriptors may have together. They are one string of the
 * environment of the next daemon, and the kernel starts no program with one of over 128 KiB. */
#define SUPERVISOR_NAMES_MAX (112u << 10)

/* The descriptor of the lock of the runtime directory, which carve's own supervisor holds. */
#define SUPERVISOR_LOCK "lock"
/* The owner of stored names of GPUs (gpu/claims.h). They do not outlive a supervisor that ends. */
#define SUPERVISOR_CLAIM "claim"
/* The owner of stored copies of databases that were removed (store/state.h), and the part of a
 * session's name that is its ledger. */
#define SUPERVISOR_DATABASE "database"
#define SUPERVISOR_LEDGER "ledger"
/* A pipe by which carve's own supervisor gives orders, a letter each: it may have no right to send
 * signals to a worker that has become another user. */
#define SUPERVISOR_CONTROL "control"
enum supervisor_order {
	SUPERVISOR_ORDER_STOP = 'T',    /* as SIGTERM */
	SUPERVISOR_ORDER_RELOAD = 'H',  /* as SIGHUP */
	SUPERVISOR_ORDER_RESTART = 'R', /* end, and be followed */
};
/* The exit status of a worker that is to be followed by the program that is installed now, which
 * may be another program than the worker's. */
#define SUPERVISOR_RENEW 75
/* From carve's own supervisor, to a worker that root started: the link to its warden, on which the
 * first message says what the worker has (daemon/separate.h). */
#define SUPERVISOR_WARDEN "warden"
#define SUPERVISOR_ATTACH "attach"
#define SUPERVISOR_HTTP "http"

/* Reads what the supervisor left in the environment, takes it out of there, so that no child takes
 * it for its own, and connects to the supervisor. Called once, first. */
void supervisor_begin(void);
/* This process ends with carve's own supervisor. It is called again after each change of the user,
 * which the kernel takes for a reason to forget it. */
void supervisor_follow(void);
/* The address that it was told on (NOTIFY_SOCKET); NULL: none. */
const char *supervisor_address(void);
/* Whether a supervisor started this process that keeps descriptors for the next one. Otherwise the
 * process has to become a supervisor itself. */
bool supervisor_keeps(void);

/* Whether that supervisor is carve's own, which starts no other services. */
bool supervisor_is_own(void);

/* The descriptor of this name that was handed over. It is the caller's from now on; -1: there is
 * none. */
int supervisor_socket(const char *name);
/* Calls for each descriptor that was handed over, with its name: those of sockets, and those that
 * the supervisor kept for the daemon. The taker of one closes it. */
void supervisor_descriptors(void (*cb)(void *arg, const char *name, int fd), void *arg);

/* Tells it, e.g. "READY=1" or, once a second, "WATCHDOG=1". Tells nobody where there is none. */
void supervisor_tell(const char *state);
/* Also sends a descriptor (negative: none). 0 or -errno; -EAGAIN: not now. */
int supervisor_tell_with(const char *state, int fd);
/* The socket by which it is told, for an event when it takes more; -1: there is none. */
int supervisor_fd(void);
