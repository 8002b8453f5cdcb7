#include "daemon/api/api_limits.h"

#include <http_parser.h>

#include "base/macros.h"
#include "daemon/api/answer.h"
#include "daemon/api/api_outside.h"
#include "daemon/api/api_owners_limits.h"
#include "daemon/api/api_place_limits.h"
#include "daemon/api/api_quota_limits.h"
#include "daemon/api/api_time_limits.h"
#include "daemon/api/http.h"
#include "daemon/api/limits_row.h"
#include "daemon/api/view.h"

/* Each policy that binds users, in the order of `carve limits`. */
static void (*const sources[])(struct limits_view *view) = {
	api_quota_limits,  api_time_limits,    api_owners_limits,
	api_living_limits, api_outside_limits, api_place_limits,
};

void api_get_limits(struct call *call, const char *unused)
{
	struct limits_view view = {.node = call->node, .whose = call->peer};
	uid_t uid;

	if (!answer_uid_argument(call, &uid))
		return;
	if (uid != (uid_t)-1 && uid != call->peer.uid)
		view.whose = (struct peer){.uid = uid, .gid = (gid_t)-1};
	view.rows = json_array();
	for (size_t i = 0; i < ARRAY_SIZE(sources); i++)
		sources[i](&view);
	call_reply(call, HTTP_STATUS_OK,
		   json_pack("{s:s, s:I, s:o}", "user", view_user(view.whose.uid), "uid",
			     (json_int_t)view.whose.uid, "limits", view.rows));
}
