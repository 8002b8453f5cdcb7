#include "daemon/api/api_owners_limits.h"

#include "daemon/api/limits_row.h"
#include "daemon/node.h"

void api_owners_limits(struct limits_view *view)
{
	static const char *const texts[] = {[SHOW_OWNERS_NONE] = "none",
					    [SHOW_OWNERS_GROUP] = "group",
					    [SHOW_OWNERS_ALL] = "all"};
	enum show_owners rule = view->node->config.show_owners;
	bool set = rule != SHOW_OWNERS_NONE;

	limits_add(view, &(struct limit_row){.limit = "show_owners",
					     .title = "users who see owners of sessions",
					     .unit = LIMIT_TEXT,
					     .text = texts[rule],
					     .used = LIMITS_NONE,
					     .from = set ? "carved.json" : "default",
					     .name = set ? "show_owners" : NULL});
}
