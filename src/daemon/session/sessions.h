/* All sessions of a daemon that have not ended, and the parts of the daemon that this room uses.
 * The daemon's root owns and fills it in (rooms.c). On the loop's thread only. */
#pragma once

#include <stdint.h>
#include <uv.h>

#include "daemon/host/budget.h"
#include "daemon/session/session_hooks.h"

struct cgroups;
struct drain;
struct leases;
struct mig;
struct device_access;
struct pool;
struct privileges;
struct session;
struct settling;
struct store;

/* Sessions are found by ID, and current ones by user, in hash tables of this many buckets. */
#define SESSIONS_BUCKETS 4096u

struct sessions {
	/* Lent, for as long as there are sessions. */
	uv_loop_t *loop;
	struct pool *pool;
	struct store *store;
	struct events *events; /* lent */
	struct leases *leases;
	struct privileges *privileges;
	/* Books of rooms above, which this one does not read. */
	struct settling *settling;
	struct mig *mig;         /* NULL until the inventory is in */
	struct cgroups *cgroups; /* NULL: not yet */
	struct device_access *access;
	const struct session_hooks *hooks;
	void *context; /* the hooks' argument */
	/* All; with an ID; a user's current one; with a ledger. */
	struct session *first;
	struct session *by_id[SESSIONS_BUCKETS];
	struct session *current[SESSIONS_BUCKETS];
	struct session *attached;
	uint64_t attaches; /* the attaches of processes so far */
	uint32_t count, timed_count;
	uint32_t dead_count; /* processes that ended and still have a slot */
	/* Memory of ended sessions that stays promised until the driver's figures are newer. */
	struct drain *drains;
	struct budget watched; /* descriptors of commands in slices, and of who asked for one */
	struct budget living;  /* sessions that have not ended, by user */
	uv_timer_t reap;       /* looks again whether the driver has dead processes' memory back */
	uint64_t reap_delay_ms;
};

/* Begins without sessions; what is lent was filled in. At most `most` of them live at a time. */
void sessions_begin(struct sessions *sessions, uint32_t most);
/* Requests that wait may be granted now. */
static inline void sessions_room_made(const struct sessions *sessions)
{
	sessions->hooks->room_made(sessions->context);
}
