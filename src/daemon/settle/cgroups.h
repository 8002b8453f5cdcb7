/* The driver's own limits of sessions (backend/cgroup_limits.h), in addition to the front: each
 * cgroup that only a session's processes are in carries the session's sizes. core/leaf.h decides
 * which.
 *
 * A limit is on disk before it is set, and leaves there after the driver has none: whoever comes
 * after a daemon that died takes away what is left. Everything that may block runs on the thread
 * pool, one order at a time. On the loop's thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/process.h"

struct cgroups;
struct session;
struct sessions;

/* Reads what the last daemon left; the sessions are back. 0 or -errno. A driver without such limits
 * is no error. */
int cgroups_start(struct sessions *sessions, struct cgroups **ret);
/* No more orders are begun; those under way end with the loop. And after that. */
void cgroups_stop(struct cgroups *cgroups);
void cgroups_free(struct cgroups *cgroups);
/* Once a second: takes away limits of cgroups that nobody is in any more. */
void cgroups_tick(struct cgroups *cgroups);
/* No order is under way. */
bool cgroups_are_quiet(const struct cgroups *cgroups);

/* Told that an order is done, whatever came of it. */
typedef void (*cgroups_cb)(void *context, uint64_t number);
/* A process of the session is about to begin (`movable`: it may be put into a cgroup of the
 * session's), or has attached. True: cb(context, number) follows; false: there is nothing to do. */
bool cgroups_bind(struct session *session, struct process_id process, bool movable, cgroups_cb cb,
		  void *context, uint64_t number);
/* It has other sizes; it has ended. */
void cgroups_resized(const struct session *session);
void cgroups_ended(const struct session *session);

/* Whether limits can be set on GPU `gpu` (a position in the pool). */
bool cgroups_offer(const struct sessions *sessions, uint32_t gpu);
/* Why not, where the driver has them; "": they can, or it has none. */
const char *cgroups_problem(const struct sessions *sessions);
/* How many cgroups carry the session's limit now. */
uint32_t cgroups_held(const struct session *session);
/* Why a process of it is bound by the front alone; NULL: none is, as far as that is known. */
const char *cgroups_why_not(const struct session *session);
