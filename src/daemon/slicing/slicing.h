/* How each GPU's time is sliced: what was set by the verb (on disk), what the configuration says
 * for the others, and sessions as members of the leases. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/lease.h"

struct error;
struct peer;
struct leases;
struct pool;
struct session;
struct sessions;

/* All that slicing knows besides the pool's GPUs and the sessions. The daemon's root owns and fills
 * it in; slicing_reload() takes up a change of the settings. */
struct slicing {
	/* Lent. */
	struct sessions *sessions;
	struct pool *pool;
	struct leases *leases;
	struct lease_setting wanted; /* the configuration's mode of GPUs that nobody set */
	bool kills;                  /* processes that take more than their turns */
};

/* The changes; the rest stays. */
struct slicing_change {
	bool mode, lease, granularity; /* whether it is given */
	struct lease_setting to;
};

/* Reads {"mode": "fair", "lease": "250ms", "granularity": "5%"}, any of them; `ignored` (or NULL)
 * is a key that is somebody else's. 0; negative with *err. */
int slicing_change_read(const json_t *object, const char *ignored, struct slicing_change *ret,
			struct error *err);
void slicing_change_apply(const struct slicing_change *change, struct lease_setting *to);

/* Gives the pool's GPUs their settings, once the inventory is in. 0 or -errno. */
int slicing_load(struct slicing *slicing);
/* The configuration may be another. */
void slicing_reload(struct slicing *slicing);
/* GPUs went into MIG mode, in which no time is sliced, or left it: then what was set is theirs
 * again.
 */
void slicing_mig_changed(struct slicing *slicing);
/* A session ended, or asks for less: where too much time was promised for the configuration's mode,
 * that may begin. */
void slicing_retry(struct slicing *slicing);
/* Changes the GPUs of `mask` (bits: positions in the pool), on disk first; all or none. 0; negative
 * with *err. */
int slicing_set(struct slicing *slicing, uint64_t mask, const struct slicing_change *change,
		const struct peer *actor, struct error *err);

/* The owner who is charged for the GPU time of this user's processes, and barred for them. */
static inline uint64_t slicing_owner(uid_t uid)
{
	return uid;
}

/* The session has a ledger from now on: its processes take turns where its GPUs' modes say so. */
void slicing_join(struct session *session);
void slicing_leave(struct session *session);
/* Says in its ledger which of its GPUs take turns: they are others now, or this daemon is new. */
void slicing_tell(struct session *session);
void slicing_say(struct slicing *slicing);

/* The share of its GPUs' time that it had since it was granted, in millionths; -1: nobody measured.
 */
int64_t slicing_received(const struct session *session);
/* Request and limit as they follow from the modes of its GPUs, in millionths. */
void slicing_shares(const struct session *session, uint32_t *ret_request, uint32_t *ret_limit);
