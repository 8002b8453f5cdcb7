/* The quotas of this daemon's users and groups: kept in the store, looked up for each grant.
 * core/quota.h says which of them holds for a user. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/quota.h"
#include "daemon/host/members.h"
#include "daemon/store/rate.h"
#include "daemon/store/store.h"

struct peer;
struct quota_hours_told;
struct report;
struct sessions;

/* That of one user or group, or of everyone. */
struct quota_entry {
	struct quota_entry *next;
	struct store_quota stored;
	struct members members; /* the members of a group, by the machine's files */
	/* Users who were in the group by the kernel, for hours that their ended sessions held. */
	struct members seen;
};

struct quotas {
	struct sessions *sessions;   /* lent: who holds what, */
	const struct report *report; /* and held in this month; NULL: nobody counts */
	struct quota_entry *first;
	struct quota defaults;         /* for each user, by carved.json */
	struct rate near_rate;         /* events of quota_near.h, by user */
	struct quota_hours_told *told; /* users and groups whose hours are nearly used up */
	uint64_t turn; /* the session whose user is looked at next (quota_hours.h) */
};

/* Reads them from the store. 0 or -errno. */
int quotas_load(struct quotas *quotas);
void quotas_free(struct quotas *quotas);
/* Sets a quota, or with all fields QUOTA_NONE removes it: on disk first. 0 or -errno. */
int quotas_set(struct quotas *quotas, const struct store_quota *quota);
/* The limits that are set; QUOTA_NONE in all fields: none is. */
struct quota quotas_get(const struct quotas *quotas, enum quota_kind kind, uint32_t id);
/* Whether an entry is for this user, alone or with others. */
bool quotas_concern(struct quota_entry *entry, const struct peer *peer);
/* Whether the use of all whom an entry is for counts together: a group's, and that of one
 * subordinate user ID. All other entries limit each user, by quotas_bounds(). */
bool quotas_is_sum(const struct quota_entry *entry, const struct peer *peer);
/* The present use by the user or the group that a quota is for. */
struct quota_use quotas_use(const struct quotas *quotas, enum quota_kind kind, uint32_t id);
/* The moment at which the present month ends (CLOCK_REALTIME, ns), and hours count anew. */
int64_t quotas_month_end(void);
/* The limits that hold for this user alone, and what the user holds. */
struct quota_use quotas_bounds(const struct quotas *quotas, const struct peer *peer,
			       struct quota_bounds *ret);
