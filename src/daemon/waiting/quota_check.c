#include "daemon/waiting/quota_check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "base/units.h"
#include "daemon/host/names.h"
#include "daemon/host/peer.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"
#include "daemon/waiting/quotas.h"

/* ---- words ------------------------------------------------------------------------------- */

struct whose {
	char before[128]; /* "your group students's quota" */
	const char *after;
};

static void whose_fill(enum quota_kind kind, uint32_t id, struct whose *ret)
{
	static const char *const before[] = {
		[QUOTA_OF_USER] = "your quota",
		[QUOTA_OF_EVERYONE] = "the quota of each user",
		[QUOTA_OF_DEFAULTS] = "the quota of each user, by the defaults in carved.json,",
		[QUOTA_OF_NOBODY] = "the quota",
	};
	static const char *const after[] = {
		[QUOTA_OF_GROUP] = " for all its members together",
		[QUOTA_OF_EACH] = " for each member",
		[QUOTA_OF_NOBODY] = NULL,
	};

	if (before[kind])
		snprintf(ret->before, sizeof(ret->before), "%s", before[kind]);
	else
		snprintf(ret->before, sizeof(ret->before), "your group %.64s's quota",
			 names_of(NAMES_OF_GROUPS, id));
	ret->after = after[kind] ? after[kind] : "";
}

/* A limit that a grant would exceed. */
struct excess {
	enum quota_limit limit;
	uint64_t most;
	enum quota_kind kind;
	uint32_t id;
	struct quota_use held, more;
};

static const char *hours_text(uint64_t ms, char buf[static UNITS_TEXT_SIZE])
{
	char hours[UNITS_TEXT_SIZE];

	snprintf(buf, UNITS_TEXT_SIZE, "%.32s GPU-hours", quota_format_hours(ms, hours));
	return buf;
}

const char *quotas_month_text(char buf[static UNITS_TEXT_SIZE])
{
	char moment[UNITS_TEXT_SIZE];

	snprintf(buf, UNITS_TEXT_SIZE, "%.10s (UTC)",
		 units_format_time(quotas_month_end(), UNITS_SECONDS, moment));
	return buf;
}

static void word(const struct excess *e, struct error *err)
{
	char may[UNITS_TEXT_SIZE], holds[UNITS_TEXT_SIZE], asks[UNITS_TEXT_SIZE];
	uint64_t held = quota_used(e->held, e->limit);
	struct whose whose;

	whose_fill(e->kind, e->id, &whose);
	switch (e->limit) {
	case QUOTA_VRAM:
		error_set(err, EXIT_CODE_NOT_PERMITTED,
			  "%s is %s of GPU memory%s: %s are held, %s more were asked", whose.before,
			  units_format_bytes(e->most, may), whose.after,
			  units_format_bytes(held, holds),
			  units_format_bytes(e->more.vram_bytes, asks));
		break;
	case QUOTA_SESSIONS:
		error_set(err, EXIT_CODE_NOT_PERMITTED, "%s is %s%s: %" PRIu64 " %s held",
			  whose.before, units_format_count(e->most, "session", may), whose.after,
			  held, held == 1 ? "is" : "are");
		break;
	case QUOTA_HOURS:
		error_set(err, EXIT_CODE_NOT_PERMITTED,
			  "%s is %s in a month%s, and it is used up (%s): the month starts anew on "
			  "%s",
			  whose.before, hours_text(e->most, may), whose.after,
			  hours_text(held, holds), quotas_month_text(asks));
		error_hint(err, "carve limits shows what is used; an administrator can raise the "
				"quota (carve quota set --gpu-hours)");
		return;
	default:
		error_set(err, EXIT_CODE_NOT_PERMITTED,
			  "%s is %s%s: %" PRIu64 " %s used, %" PRIu64 " in all would be",
			  whose.before, units_format_count(e->most, "GPU", may), whose.after, held,
			  held == 1 ? "is" : "are", quota_gpus(quota_add(e->held, e->more)));
		break;
	}
	error_hint(err, "release what is not needed, or ask an administrator (carve limits)");
}

/* ---- checking ---------------------------------------------------------------------------- */

/* Limits of the number of sessions and GPUs do not matter to a session that grows. */
static struct quota limits_for(const struct quota_bounds *bounds, struct quota_use more)
{
	struct quota quota = bounds->most;

	if (!more.sessions)
		quota.most[QUOTA_SESSIONS] = quota.most[QUOTA_GPUS] = QUOTA_NONE;
	return quota;
}

/* 0; -EAGAIN or -EPERM with *err, as quotas_check() has them. */
static int check(const struct quota_bounds *bounds, struct quota_use held, struct quota_use more,
		 struct error *err)
{
	struct quota quota = limits_for(bounds, more);
	struct excess e = {.held = held, .more = more, .limit = quota_check(&quota, more)};
	bool never = e.limit != QUOTA_WITHIN;

	if (!never)
		e.limit = quota_check(&quota, quota_add(held, more));
	if (e.limit == QUOTA_WITHIN)
		return 0;
	e.most = quota.most[e.limit];
	e.kind = bounds->from[e.limit].kind;
	e.id = bounds->from[e.limit].id;
	word(&e, err);
	return never ? -EPERM : -EAGAIN;
}

static int check_sum(const struct quotas *quotas, const struct store_quota *quota,
		     struct quota_use more, struct error *err)
{
	struct quota_bounds bounds;

	quota_bounds_begin(&bounds);
	quota_bounds_add(&bounds, &quota->quota, quota->kind, quota->id);
	return check(&bounds, quotas_use(quotas, quota->kind, quota->id), more, err);
}

static int check_all(const struct quotas *quotas, const struct peer *peer, struct quota_use more,
		     struct error *err)
{
	struct quota_bounds bounds;
	struct quota_use held = quotas_bounds(quotas, peer, &bounds);
	int rc = check(&bounds, held, more, err);

	for (struct quota_entry *e = quotas->first; rc == 0 && e; e = e->next)
		if (quotas_is_sum(e, peer) && quotas_concern(e, peer))
			rc = check_sum(quotas, &e->stored, more, err);
	return rc;
}

bool quotas_hours_used_up(const struct quotas *quotas, const struct peer *peer, bool *ret_of_group)
{
	struct quota_bounds bounds;
	struct quota_use use = quotas_bounds(quotas, peer, &bounds);
	bool used_up = use.gpu_ms >= bounds.most.most[QUOTA_HOURS];

	*ret_of_group = false;
	for (struct quota_entry *e = quotas->first; !used_up && e; e = e->next) {
		uint64_t most = e->stored.quota.most[QUOTA_HOURS];

		if (!quota_is_limit(most) || !quotas_is_sum(e, peer) || !quotas_concern(e, peer))
			continue;
		used_up = quotas_use(quotas, e->stored.kind, e->stored.id).gpu_ms >= most;
		*ret_of_group = used_up && e->stored.kind == QUOTA_OF_GROUP;
	}
	return used_up;
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

int quotas_check(const struct quotas *quotas, const struct peer *peer,
		 const struct place_result *result, struct error *err)
{
	if (!budget_has_room(&quotas->sessions->living, peer->uid)) {
		error_set(err, EXIT_CODE_NOT_PERMITTED,
			  "you have as many sessions as one user may have on this machine");
		error_hint(err, "release those that are not needed (carve session list), or have "
				"an administrator raise living_sessions in carved.json");
		return -EAGAIN;
	}
	return check_all(quotas, peer, use_of_result(result), err);
}

int quotas_check_resize(const struct quotas *quotas, const struct session *s, const uint64_t *bytes,
			struct error *err)
{
	const struct peer peer = {
		.uid = s->record.uid, .gid = s->record.gid, .groups = s->record.groups};
	uint64_t before = 0, after = 0;

	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		before += s->record.gpu[i].bytes;
		after += bytes[i];
	}
	/* A quota may have been lowered below the use: a session may become smaller then. */
	if (after <= before)
		return 0;
	return check_all(quotas, &peer, (struct quota_use){.vram_bytes = after - before}, err) < 0
		       ? -EPERM
		       : 0;
}
