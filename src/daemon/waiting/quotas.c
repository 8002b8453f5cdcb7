#include "daemon/waiting/quotas.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/units.h"
#include "daemon/host/log.h"
#include "daemon/host/names.h"
#include "daemon/host/owner.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"

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
	return store_quotas_each(quotas->sessions->store, load_one, quotas);
}

void quotas_free(struct quotas *quotas)
{
	while (quotas->first) {
		struct quota_entry *entry = quotas->first;

		quotas->first = entry->next;
		members_free(&entry->members);
		free(entry);
	}
}

static bool is_none(const struct quota *quota)
{
	return quota->vram_bytes == QUOTA_NONE && quota->sessions == QUOTA_NONE &&
	       quota->gpus == QUOTA_NONE;
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
		free(entry);
	}
	return 0;
}

struct quota quotas_get(const struct quotas *quotas, enum quota_kind kind, uint32_t id)
{
	for (const struct quota_entry *e = quotas->first; e; e = e->next)
		if (e->stored.kind == kind && e->stored.id == id)
			return e->stored.quota;
	return (struct quota){QUOTA_NONE, QUOTA_NONE, QUOTA_NONE};
}

/* ---- use --------------------------------------------------------------------------------- */

/* A group's is for all who are in it, whichever of their groups it is, and for members who left it.
 * `members`: NULL, no quota is set for it. */
static bool concerns(enum quota_kind kind, uint32_t id, const struct members *members, uid_t uid,
		     gid_t gid, const struct groups *groups)
{
	if (kind == QUOTA_OF_USER)
		return uid == id || owner_of(uid) == id;
	return gid == id || groups_have(groups, id) ||
	       (members && members_have(members, owner_of(uid)));
}

static const struct members *members_of(struct quota_entry *entry)
{
	if (!entry || entry->stored.kind != QUOTA_OF_GROUP)
		return NULL;
	members_look(&entry->members, entry->stored.id);
	return &entry->members;
}

struct quota_use quotas_use(const struct quotas *quotas, enum quota_kind kind, uint32_t id)
{
	struct quota_use use = {0};
	struct quota_entry *entry = quotas->first;

	while (entry && (entry->stored.kind != kind || entry->stored.id != id))
		entry = entry->next;
	const struct members *members = members_of(entry);

	for (const struct session *s = quotas->sessions->first; s; s = s->next) {
		struct quota_use one = {.sessions = 1, .gpu_mask = session_gpu_mask(s)};

		if (!concerns(kind, id, members, s->record.uid, s->record.gid, &s->record.groups))
			continue;
		for (uint32_t i = 0; i < s->record.gpu_count; i++)
			one.vram_bytes += s->record.gpu[i].bytes;
		use = quota_add(use, one);
	}
	return use;
}

static struct quota_use use_of_result(const struct place_result *result)
{
	struct quota_use use = {.sessions = 1};

	for (uint32_t i = 0; i < result->count; i++) {
		use.vram_bytes += result->grant[i].bytes;
		use.gpu_mask |= 1ull << result->grant[i].gpu;
	}
	return use;
}

/* ---- checking ---------------------------------------------------------------------------- */

static void word(const struct quota_entry *entry, enum quota_verdict verdict, struct quota_use held,
		 struct quota_use more, struct error *err)
{
	const struct quota *quota = &entry->stored.quota;
	char may[UNITS_TEXT_SIZE], holds[UNITS_TEXT_SIZE], asks[UNITS_TEXT_SIZE];
	char whose[96] = "your";

	if (entry->stored.kind == QUOTA_OF_GROUP)
		snprintf(whose, sizeof(whose), "your group %s's",
			 names_of(NAMES_OF_GROUPS, entry->stored.id));

	switch (verdict) {
	case QUOTA_VRAM:
		error_set(err, EXIT_CODE_NOT_PERMITTED,
			  "%s quota is %s of GPU memory: %s are held, %s more were asked", whose,
			  units_format_bytes(quota->vram_bytes, may),
			  units_format_bytes(held.vram_bytes, holds),
			  units_format_bytes(more.vram_bytes, asks));
		break;
	case QUOTA_SESSIONS:
		error_set(err, EXIT_CODE_NOT_PERMITTED, "%s quota is %s: %" PRIu64 " %s held",
			  whose, units_format_count(quota->sessions, "session", may), held.sessions,
			  held.sessions == 1 ? "is" : "are");
		break;
	case QUOTA_GPUS:
	case QUOTA_WITHIN:
		error_set(err, EXIT_CODE_NOT_PERMITTED,
			  "%s quota is %s: %" PRIu64 " %s used, %" PRIu64 " in all would be", whose,
			  units_format_count(quota->gpus, "GPU", may), quota_gpus(held),
			  quota_gpus(held) == 1 ? "is" : "are", quota_gpus(quota_add(held, more)));
		break;
	}
	error_hint(err, "release what is not needed, or ask an administrator (carve quota)");
}

int quotas_check(const struct quotas *quotas, const struct peer *peer,
		 const struct place_result *result, struct error *err)
{
	struct quota_use more = use_of_result(result);

	if (!budget_has_room(&quotas->sessions->living, peer->uid)) {
		error_set(err, EXIT_CODE_NOT_PERMITTED,
			  "you have as many sessions as one user may have on this machine");
		error_hint(err, "release those that are not needed (carve session list), or have "
				"an administrator raise living_sessions in carved.json");
		return -EAGAIN;
	}
	for (struct quota_entry *e = quotas->first; e; e = e->next) {
		if (!concerns(e->stored.kind, e->stored.id, members_of(e), peer->uid, peer->gid,
			      &peer->groups))
			continue;
		struct quota_use held = quotas_use(quotas, e->stored.kind, e->stored.id);
		enum quota_verdict verdict = quota_check(&e->stored.quota, quota_add(held, more));
		if (verdict == QUOTA_WITHIN)
			continue;
		word(e, verdict, held, more, err);
		return quota_check(&e->stored.quota, more) == QUOTA_WITHIN ? -EAGAIN : -EPERM;
	}
	return 0;
}

int quotas_check_resize(const struct quotas *quotas, const struct session *s, const uint64_t *bytes,
			struct error *err)
{
	uint64_t before = 0, after = 0;

	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		before += s->record.gpu[i].bytes;
		after += bytes[i];
	}
	for (struct quota_entry *e = quotas->first; e && after > before; e = e->next) {
		struct quota_use more = {.vram_bytes = after - before};

		if (!concerns(e->stored.kind, e->stored.id, members_of(e), s->record.uid,
			      s->record.gid, &s->record.groups))
			continue;
		struct quota_use held = quotas_use(quotas, e->stored.kind, e->stored.id);
		if (held.vram_bytes + more.vram_bytes <= e->stored.quota.vram_bytes)
			continue;
		word(e, QUOTA_VRAM, held, more, err);
		return -EPERM;
	}
	return 0;
}
