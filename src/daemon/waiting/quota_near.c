#include "daemon/waiting/quota_near.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/units.h"
#include "daemon/events/events.h"
#include "daemon/host/names.h"
#include "daemon/host/owner.h"
#include "daemon/host/peer.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"
#include "daemon/store/rate.h"
#include "daemon/waiting/quotas.h"

static struct peer owner_peer(const struct session *s)
{
	return (struct peer){
		.uid = s->record.uid, .gid = s->record.gid, .groups = s->record.groups};
}

static struct quota_use use_of(const struct session *s)
{
	struct quota_use use = {.sessions = 1, .gpu_mask = session_gpu_mask(s)};

	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		use.vram_bytes += s->record.gpu[i].bytes;
	return use;
}

/* The use of all others for whom the entry is; NULL: of the other sessions of the user. */
static struct quota_use use_of_others(const struct quotas *quotas, struct quota_entry *entry,
				      const struct session *s)
{
	struct quota_use use = {0};
	uid_t owner = owner_of(s->record.uid);

	for (const struct session *other = quotas->sessions->first; other; other = other->next) {
		struct peer peer = owner_peer(other);

		if (other != s &&
		    (entry ? quotas_concern(entry, &peer) : owner_of(other->record.uid) == owner))
			use = quota_add(use, use_of(other));
	}
	return use;
}

/* ---- telling ------------------------------------------------------------------------------- */

/* A limit that was crossed. */
struct crossing {
	enum quota_kind kind;
	uint32_t id; /* the user or group that the quota is for */
	enum quota_limit limit;
	uint64_t used, most;
};

static const char *amount_text(enum quota_limit limit, uint64_t amount,
			       char buf[static UNITS_TEXT_SIZE])
{
	if (limit == QUOTA_VRAM)
		return units_format_bytes(amount, buf);
	return units_format_count(amount, limit == QUOTA_GPUS ? "GPU" : "session", buf);
}

static void tell(struct quotas *quotas, const struct session *s, const struct crossing *c)
{
	bool of_group = c->kind == QUOTA_OF_GROUP;
	char subject[NAMES_SIZE + 16], after[2 * UNITS_TEXT_SIZE + 8];
	char has[UNITS_TEXT_SIZE], may[UNITS_TEXT_SIZE];
	uid_t owner = owner_of(s->record.uid);

	if (rate_note(&quotas->near_rate, owner, now_monotonic_ns()) != RATE_WITHIN)
		return;
	snprintf(subject, sizeof(subject), "%s %s", of_group ? "group" : "user",
		 names_of(of_group ? NAMES_OF_GROUPS : NAMES_OF_USERS, of_group ? c->id : owner));
	snprintf(after, sizeof(after), "%s of %s", amount_text(c->limit, c->used, has),
		 amount_text(c->limit, c->most, may));
	events_add(quotas->sessions->events, &(struct event){.kind = EVENT_QUOTA_NEAR,
							     .owner = &s->record.uid,
							     .subject = subject,
							     .after = after,
							     .text = "90% of a quota are used"});
}

/* ---- looking ------------------------------------------------------------------------------- */

static bool is_near(uint64_t used, uint64_t most)
{
	/* No product overflows: a limit may be any number. A limit of one session or of one GPU is
	 * used up whenever it is used, and nobody is told of it. */
	return quota_is_limit(most) && most > 1 && used >= most - most / 10;
}

static void limits_look(struct quotas *quotas, const struct session *s,
			const struct quota_bounds *bounds, struct quota_use others, uint64_t grown)
{
	struct quota_use own = use_of(s);
	struct quota_use after = quota_add(others, own), before = others;

	if (grown) {
		before = after;
		before.vram_bytes -= grown;
	}
	/* Hours pass by themselves. */
	for (enum quota_limit limit = 0; limit < QUOTA_HOURS; limit++) {
		struct crossing crossing = {
			.kind = bounds->from[limit].kind,
			.id = bounds->from[limit].id,
			.limit = limit,
			.used = quota_used(after, limit),
			.most = bounds->most.most[limit],
		};

		if (!is_near(quota_used(before, limit), crossing.most) &&
		    is_near(crossing.used, crossing.most))
			tell(quotas, s, &crossing);
	}
}

void quota_near_look(struct quotas *quotas, const struct session *s, uint64_t grown)
{
	struct peer peer = owner_peer(s);
	struct quota_bounds bounds;

	(void)quotas_bounds(quotas, &peer, &bounds);
	limits_look(quotas, s, &bounds, use_of_others(quotas, NULL, s), grown);
	for (struct quota_entry *e = quotas->first; e; e = e->next) {
		if (!quotas_is_sum(e, &peer) || !quotas_concern(e, &peer))
			continue;
		quota_bounds_begin(&bounds);
		quota_bounds_add(&bounds, &e->stored.quota, e->stored.kind, e->stored.id);
		limits_look(quotas, s, &bounds, use_of_others(quotas, e, s), grown);
	}
}
