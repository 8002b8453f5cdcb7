/* The warden: the process of a system daemon that has root's rights, while the daemon's worker,
 * which talks to everybody, has none. It does a closed table of operations (operations.c) for one
 * worker at a time, which asks by messages of proto/warden.h. Requests wait in turns by owner, a
 * bounded number for each. An operation that may block runs in a child process, and its answer
 * follows when that child has ended it. So the warden's loop waits for nobody.
 *
 * The warden lives in a process of root's, whose poll() loop calls the functions below. That is
 * carve's own supervisor (daemon/supervisor) or, where systemd runs carved, a service. Children of
 * the warden, and shims, are children of that process, which has to wait for them. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct jobs_place;
struct pollfd;
struct warden;

/* Users that nobody is: IDs that neither Debian nor systemd give to anybody. */
#define WARDEN_ID_FIRST 60706u
#define WARDEN_ID_LAST 60737u
/* The real user of a child while it signals in a user's name. No process has it, so none may signal
 * that child. */
#define WARDEN_ID_SIGNALS (WARDEN_ID_LAST + 1)

/* The warden's own knowledge; nothing of it comes from a worker. */
struct warden_place {
	int dir_fd;              /* the runtime directory, root's */
	struct jobs_place *jobs; /* as jobs.h has it; lent. NULL: this warden starts none */
};

/* A warden without a worker. The descriptor becomes its own. 0 or -errno. */
int warden_open(const struct warden_place *place, struct warden **ret);
/* Frees it. Its children end by themselves; its jobs' place stays the caller's. Takes NULL. */
void warden_close(struct warden *warden);
/* Its worker is at the other end of this socket, which becomes its own, in place of the worker
 * before. -1: it has no worker now. */
void warden_link(struct warden *warden, int link_fd);
/* Whether it has a worker, which has not hung up and is not broken. */
bool warden_is_linked(const struct warden *warden);

/* The most descriptors that a warden waits for. */
#define WARDEN_POLLS_MAX 1041u
/* Fills in the descriptors to wait for, at most WARDEN_POLLS_MAX of `ret`. Lowers *timeout_ms (as
 * of poll(); -1: none) where the warden has something to do by then. Returns their number. */
unsigned warden_poll_fill(struct warden *warden, struct pollfd *ret, int *timeout_ms);
/* After poll(): does what there is to do, in bounded steps. `fds`: the same ones. */
void warden_poll_run(struct warden *warden, const struct pollfd *fds, unsigned count);

/* The process of a warden that is a service of its own. */
#define WARDEN_NAME "carve-warden"
/* In the runtime directory, of a warden that is a service of its own. */
#define WARDEN_SOCKET "warden.sock"
