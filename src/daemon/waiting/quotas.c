#include "daemon/waiting/quotas.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "core/tally.h"
#include "daemon/host/names.h"
#include "daemon/host/owner.h"
#include "daemon/host/peer.h"
#include "daemon/report/report.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"
#include "daemon/waiting/quota_near.h"

/* ---- the table --------------------------------------------------------------------------- */

/* Users before groups, each by number, so that lists have one order, after a restart too. */
static bool entry_before(const struct quota_entry *entry, enum quota_kind kind, uint32_t id)
{
	return entry->stored.kind != kind ? entry->stored.kind < kind : entry->stored.id < id;
}

static bool entry_is(const struct quota_entry *entry, enum quota_kind kind, uint32_t id)
{
	return entry && entry->stored.kind == kind && entry->stored.id == id;
}

/* Where it is, or would be. */
static struct quota_entry **entry_find(struct quotas *quotas, enum quota_kind kind, uint32_t id)
{
	struct quota_entry **at = &quotas->first;

	while (*at && entry_before(*at, kind, id))
		at = &(*at)->next;
	return at;
}

static int entry_put(struct quotas *quotas, const struct store_quota *quota)
{
	struct quota_entry **at = entry_find(quotas, quota->kind, quota->id);

	if (!entry_is(*at, quota->kind, quota->id)) {
		struct quota_entry *entry = calloc(1, sizeof(*entry));

		if (!entry)
			return -ENOMEM;
		entry->next = *at;
		*at = entry;
	}
	(*at)->stored = *quota;
	return 0;
}

static int load_one(void *arg, const struct store_quota *quota)
{
	return entry_put(arg, quota);
}

int quotas_load(struct quotas *quotas)
{
	quotas->near_rate.most = QUOTA_NEAR_PER_MINUTE;
	return store_quotas_each(quotas->sessions->store, load_one, quotas);
}

void quotas_free(struct quotas *quotas)
{
	rate_free(&quotas->near_rate);
	while (quotas->first) {
		struct quota_entry *entry = quotas->first;

		quotas->first = entry->next;
		members_free(&entry->members);
		members_free(&entry->seen);
		free(entry);
	}
}

static bool is_none(const struct quota *quota)
{
	return !memcmp(quota, &quota_none, sizeof(*quota));
}

int quotas_set(struct quotas *quotas, const struct store_quota *quota)
{
	bool gone = is_none(&quota->quota);
	int rc = gone ? store_quota_remove(quotas->sessions->store, quota->kind, quota->id)
		      : store_quota_put(quotas->sessions->store, quota);

	if (rc < 0)
		return rc;
	if (!gone)
		return entry_put(quotas, quota);
	struct quota_entry **at = entry_find(quotas, quota->kind, quota->id);
	if (entry_is(*at, quota->kind, quota->id)) {
		struct quota_entry *entry = *at;

		*at = entry->next;
		members_free(&entry->members);
		members_free(&entry->seen);
		free(entry);
	}
	return 0;
}

struct quota quotas_get(const struct quotas *quotas, enum quota_kind kind, uint32_t id)
{
	for (const struct quota_entry *e = quotas->first; e; e = e->next)
		if (e->stored.kind == kind && e->stored.id == id)
			return e->stored.quota;
	return quota_none;
}

/* ---- use --------------------------------------------------------------------------------- */

/* A group's is for all who are in it, whichever of their groups it is, and for members who left it.
 * `members`: NULL, no quota is set for it. */
static bool concerns(enum quota_kind kind, uint32_t id, const struct members *members, uid_t uid,
		     gid_t gid, const struct groups *groups)
{
	if (kind == QUOTA_OF_EVERYONE)
		return true;
	if (kind == QUOTA_OF_USER)
		return uid == id || owner_of(uid) == id;
	return gid == id || groups_have(groups, id) ||
	       (members && members_have(members, owner_of(uid)));
}

static const struct members *members_of(struct quota_entry *entry)
{
	if (!entry || (entry->stored.kind != QUOTA_OF_GROUP && entry->stored.kind != QUOTA_OF_EACH))
		return NULL;
	members_look(&entry->members, entry->stored.id);
	return &entry->members;
}

bool quotas_concern(struct quota_entry *entry, const struct peer *peer)
{
	bool does = concerns(entry->stored.kind, entry->stored.id, members_of(entry), peer->uid,
			     peer->gid, &peer->groups);

	if (does && entry->stored.kind == QUOTA_OF_GROUP)
		members_note(&entry->seen, owner_of(peer->uid));
	return does;
}

bool quotas_is_sum(const struct quota_entry *entry, const struct peer *peer)
{
	return entry->stored.kind == QUOTA_OF_GROUP ||
	       (entry->stored.kind == QUOTA_OF_USER && entry->stored.id != owner_of(peer->uid));
}

static struct quota_use use_of_session(const struct session *s)
{
	struct quota_use use = {.sessions = 1,
				.gpu_mask = session_gpu_mask(s),
				.gpu_ms = report_not_counted(s) / 1000000};

	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		use.vram_bytes += s->record.gpu[i].bytes;
	return use;
}

/* The time that was counted in this month. */
static uint64_t month_ms(const struct quotas *quotas, enum quota_kind kind, uint32_t id,
			 const struct quota_entry *entry, const struct members *members)
{
	if (!quotas->report)
		return 0;
	return (kind == QUOTA_OF_USER ? report_month_held(quotas->report, id)
				      : report_month_held_by_group(quotas->report, id, members,
								   entry ? &entry->seen : NULL)) /
	       1000000;
}

struct quota_use quotas_use(const struct quotas *quotas, enum quota_kind kind, uint32_t id)
{
	struct quota_use use = {0};
	struct quota_entry *entry = quotas->first;

	while (entry && (entry->stored.kind != kind || entry->stored.id != id))
		entry = entry->next;
	const struct members *members = members_of(entry);

	for (const struct session *s = quotas->sessions->first; s; s = s->next) {
		if (!concerns(kind, id, members, s->record.uid, s->record.gid, &s->record.groups))
			continue;
		if (entry && kind == QUOTA_OF_GROUP)
			members_note(&entry->seen, owner_of(s->record.uid));
		use = quota_add(use, use_of_session(s));
	}
	use.gpu_ms += month_ms(quotas, kind, id, entry, members);
	return use;
}

int64_t quotas_month_end(void)
{
	/* The longest month has 31 days. */
	int64_t first = tally_month(tally_day(now_realtime_ns()));

	return tally_month(first + 31) * (int64_t)TALLY_DAY_NS;
}

struct quota_use quotas_bounds(const struct quotas *quotas, const struct peer *peer,
			       struct quota_bounds *ret)
{
	quota_bounds_begin(ret);
	/* The kubelet's plugin asks as root of the pod, for the pods of all users. */
	if (!peer->of_pod)
		quota_bounds_add(ret, &quotas->defaults, QUOTA_OF_DEFAULTS, 0);
	for (struct quota_entry *e = quotas->first; e; e = e->next) {
		if (quotas_is_sum(e, peer) || !quotas_concern(e, peer) ||
		    (peer->of_pod && e->stored.kind != QUOTA_OF_USER))
			continue;
		quota_bounds_add(ret, &e->stored.quota, e->stored.kind, e->stored.id);
	}
	return quotas_use(quotas, QUOTA_OF_USER, owner_of(peer->uid));
}
