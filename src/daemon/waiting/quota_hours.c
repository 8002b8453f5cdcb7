#include "daemon/waiting/quota_hours.h"

#include <stdio.h>
#include <stdlib.h>

#include "daemon/events/events.h"
#include "daemon/host/names.h"
#include "daemon/host/owner.h"
#include "daemon/host/peer.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"
#include "daemon/waiting/quotas.h"

static void tell(const struct quotas *quotas, enum quota_kind kind, uint32_t id, uid_t user,
		 uint64_t used, uint64_t most)
{
	char subject[NAMES_SIZE + 8], after[96];
	char held[UNITS_TEXT_SIZE], limit[UNITS_TEXT_SIZE];
	bool of_user = kind == QUOTA_OF_USER;

	snprintf(subject, sizeof(subject), "%s %s", of_user ? "user" : "group",
		 names_of(of_user ? NAMES_OF_USERS : NAMES_OF_GROUPS, id));
	snprintf(after, sizeof(after), "%.24s of %.24s GPU-hours in this month",
		 quota_format_hours(used, held), quota_format_hours(most, limit));
	events_add(quotas->sessions->events, &(struct event){.kind = EVENT_QUOTA_NEAR,
							     .owner = &user,
							     .subject = subject,
							     .after = after,
							     .text = "90% of a quota are used"});
}

static struct quota_hours_told *told_get(struct quotas *quotas, enum quota_kind kind, uint32_t id)
{
	struct quota_hours_told *told = quotas->told;

	while (told && (told->kind != kind || told->id != id))
		told = told->next;
	if (told || !(told = calloc(1, sizeof(*told))))
		return told;
	told->kind = kind;
	told->id = id;
	told->next = quotas->told;
	quotas->told = told;
	return told;
}

/* `user` holds some of it. */
static void look(struct quotas *quotas, enum quota_kind kind, uint32_t id, uid_t user,
		 uint64_t used, uint64_t most)
{
	int64_t month = quotas_month_end();
	struct quota_hours_told *told;

	if (!most || !quota_is_limit(most) || used < most - most / 10 ||
	    !(told = told_get(quotas, kind, id)) || told->month == month)
		return;
	told->month = month;
	tell(quotas, kind, id, user, used, most);
}

static const struct session *session_next(struct quotas *quotas)
{
	const struct session *s = quotas->sessions->first;

	for (uint64_t i = 0; s && i < quotas->turn; i++)
		s = s->next;
	quotas->turn = s ? quotas->turn + 1 : 0;
	return s ? s : quotas->sessions->first;
}

void quota_hours_tick(struct quotas *quotas)
{
	const struct session *s = session_next(quotas);
	struct quota_bounds bounds;

	if (!s)
		return;
	const struct peer peer = {
		.uid = s->record.uid, .gid = s->record.gid, .groups = s->record.groups};
	struct quota_use use = quotas_bounds(quotas, &peer, &bounds);
	look(quotas, QUOTA_OF_USER, owner_of(peer.uid), peer.uid, use.gpu_ms,
	     bounds.most.most[QUOTA_HOURS]);
	for (struct quota_entry *e = quotas->first; e; e = e->next) {
		uint64_t most = e->stored.quota.most[QUOTA_HOURS];

		if (e->stored.kind == QUOTA_OF_GROUP && quota_is_limit(most) &&
		    quotas_concern(e, &peer))
			look(quotas, QUOTA_OF_GROUP, e->stored.id, peer.uid,
			     quotas_use(quotas, QUOTA_OF_GROUP, e->stored.id).gpu_ms, most);
	}
}

void quota_hours_free(struct quotas *quotas)
{
	while (quotas->told) {
		struct quota_hours_told *told = quotas->told;

		quotas->told = told->next;
		free(told);
	}
}
