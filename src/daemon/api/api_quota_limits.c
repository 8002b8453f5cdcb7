#include "daemon/api/api_quota_limits.h"

#include "daemon/api/limits_row.h"
#include "daemon/node.h"
#include "daemon/waiting/quota_fields.h"
#include "daemon/waiting/quotas.h"

/* Other users' processes are not here to say their groups, but their sessions have the groups of
 * the process that asked. */
static void groups_find(const struct node *node, struct peer *peer)
{
	const struct session *s = node->sessions.first;

	while (s && s->record.uid != peer->uid)
		s = s->next;
	if (s && peer->gid == (gid_t)-1) {
		peer->gid = s->record.gid;
		peer->groups = s->record.groups;
	}
}

static void limit_show(struct limits_view *view, enum quota_limit limit,
		       const struct quota_bounds *bounds, struct quota_use use)
{
	uint64_t most = bounds->most.most[limit];
	enum quota_kind kind = bounds->from[limit].kind;
	const char *name = quota_fields_owner(kind, bounds->from[limit].id);

	limits_add(view, &(struct limit_row){
				 .limit = quota_fields_name(limit),
				 .title = quota_fields_title(limit),
				 .unit = limit == QUOTA_VRAM    ? LIMIT_BYTES
					 : limit == QUOTA_HOURS ? LIMIT_HOURS
								: LIMIT_COUNT,
				 .most = quota_is_limit(most) ? most : LIMITS_NONE,
				 .used = quota_used(use, limit),
				 .from = quota_fields_kind(kind),
				 .renews = limit == QUOTA_HOURS ? quotas_month_end() : 0,
				 .name = *name ? name : NULL,
			 });
}

void api_quota_limits(struct limits_view *view)
{
	const struct quotas *quotas = &view->node->quotas;
	struct quota_bounds bounds;

	groups_find(view->node, &view->whose);
	struct quota_use use = quotas_bounds(quotas, &view->whose, &bounds);
	for (enum quota_limit i = 0; i < QUOTA_LIMITS; i++)
		limit_show(view, i, &bounds, use);
	for (struct quota_entry *e = quotas->first; e; e = e->next) {
		if (!quotas_is_sum(e, &view->whose) || !quotas_concern(e, &view->whose))
			continue;
		quota_bounds_begin(&bounds);
		quota_bounds_add(&bounds, &e->stored.quota, e->stored.kind, e->stored.id);
		use = quotas_use(quotas, e->stored.kind, e->stored.id);
		for (enum quota_limit i = 0; i < QUOTA_LIMITS; i++)
			if (quota_is_limit(e->stored.quota.most[i]))
				limit_show(view, i, &bounds, use);
	}
}

void api_living_limits(struct limits_view *view)
{
	unsigned has;
	unsigned most = budget_share(&view->node->sessions.living, view->whose.uid, &has);

	limits_add(view,
		   &(struct limit_row){
			   .limit = "living_sessions",
			   .title = "sessions, by the budget of this machine",
			   .unit = LIMIT_COUNT,
			   .most = most,
			   .used = has,
			   .from = view->node->config.living_sessions == LIVING_SESSIONS_DEFAULT
					   ? "default"
					   : "carved.json",
			   .name = "living_sessions",
		   });
}
