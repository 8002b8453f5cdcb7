/* The quotas of this daemon's users and groups: kept in the store, looked up for each grant. */
#pragma once

#include <stdint.h>

#include "core/place.h"
#include "core/quota.h"
#include "daemon/host/members.h"
#include "daemon/store/store.h"

struct error;
struct peer;
struct session;
struct sessions;

/* One user's or group's. */
struct quota_entry {
	struct quota_entry *next;
	struct store_quota stored;
	struct members members; /* the members of a group */
};

struct quotas {
	struct sessions *sessions; /* lent: who holds what */
	struct quota_entry *first;
};

/* Reads them from the store. 0 or -errno. */
int quotas_load(struct quotas *quotas);
void quotas_free(struct quotas *quotas);
/* Sets a quota, or with all fields QUOTA_NONE removes it: on disk first. 0 or -errno. */
int quotas_set(struct quotas *quotas, const struct store_quota *quota);
/* The limits that are set; QUOTA_NONE in all fields: none is. */
struct quota quotas_get(const struct quotas *quotas, enum quota_kind kind, uint32_t id);
/* The present use by the users that a quota is for. */
struct quota_use quotas_use(const struct quotas *quotas, enum quota_kind kind, uint32_t id);

/* Whether this user may be granted that. 0; -EAGAIN: not on top of what is held; -EPERM: never. The
 * latter two with *err in words. */
int quotas_check(const struct quotas *quotas, const struct peer *peer,
		 const struct place_result *result, struct error *err);
/* Whether a session may become that large on its GPUs. Likewise. */
int quotas_check_resize(const struct quotas *quotas, const struct session *session,
			const uint64_t *bytes, struct error *err);
