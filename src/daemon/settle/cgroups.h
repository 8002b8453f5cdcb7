/* The driver's own limits of sessions (backend/cgroup_limits.h), in addition to the front: each
 * cgroup that only a session's processes are in carries the session's sizes. core/leaf.h decides
 * which.
 *
 * A limit is on disk before it is set, and leaves there after the driver has none: whoever comes
 * after a daemon that died takes away what is left. Everything that may block runs on the thread
 * pool (cgroup_order.h), one order at a time, in the turns of the sessions' owners. Where limits
 * can be set, nothing goes on without one: an order that fails, or that is not done within
 * CGROUPS_PATIENCE_NS, is refused. On the loop's thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/process.h"
#include "core/leaf.h"

struct cgroups;
struct session;
struct sessions;

/* An order is refused at the first cgroups_tick() after this time: within what a client waits
 * (slice_register() and the front: 5 s). */
#define CGROUPS_PATIENCE_NS 3000000000ull
/* Room for a refusal, which is one line for users. */
#define CGROUPS_REFUSAL_SIZE 200

/* Reads what the last daemon left; the sessions are back. 0 or -errno. A driver without such limits
 * is no error. */
int cgroups_start(struct sessions *sessions, struct cgroups **ret);
/* No more orders are begun or answered; the one under way ends with the loop. And after that. */
void cgroups_stop(struct cgroups *cgroups);
void cgroups_free(struct cgroups *cgroups);
/* Once a second: refuses orders that have waited for too long, and looks at a bounded number of
 * cgroups with limits: those that nobody is in any more lose them. */
void cgroups_tick(struct cgroups *cgroups);

/* Told what came of an order. refusal: NULL: the process may go on. */
typedef void (*cgroups_cb)(void *context, uint64_t ticket, const char *refusal);
/* A process of the session is about to begin, or to attach. Returns 1 if cb(context, ticket)
 * follows, maybe before this returns. Returns 0 if there is no limit to wait for. With an error the
 * process may not go on: -EAGAIN: the session's owner has too many orders waiting; -ENOMEM. A
 * second order for one process replaces its first one, which is refused. */
int cgroups_bind(struct session *session, struct process_id process, enum leaf_asker asker,
		 cgroups_cb cb, void *context, uint64_t ticket);
/* The line that goes with an error of cgroups_bind(). */
const char *cgroups_bind_refusal(int error);
/* The session has other sizes. */
void cgroups_resized(const struct session *session);

/* Whether limits can be set on GPU `gpu` (a position in the pool). */
bool cgroups_offer(const struct sessions *sessions, uint32_t gpu);
/* Why not, where the driver has them; "": they can, or it has none. */
const char *cgroups_problem(const struct sessions *sessions);
/* Where limits are used, why commands of `carve run` may have none; "": they have one. */
const char *cgroups_gap(const struct sessions *sessions);
/* How many cgroups carry the session's limit now. */
uint32_t cgroups_held(const struct session *session);
/* Why a process of it is bound by the front alone; NULL: none is, as far as that is known. */
const char *cgroups_why_not(const struct session *session);
