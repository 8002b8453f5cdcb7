/* The event log over HTTP. */
#pragma once

#include <sys/types.h>

#include "base/units.h"
#include "daemon/events/event_kinds.h"

struct call;
struct node;
struct peer;
struct session;

/* An action of a user on a thing of another user's. Actions of users on their own things are no
 * event. */
struct api_deed {
	enum event_kind kind;
	const char *what, *id; /* "session", "s-1" */
	uid_t owner;
	const char *before, *after;
};
void api_deed_record(struct node *node, const struct peer *actor, const struct api_deed *deed);
/* "8 GiB on 2 GPUs" */
#define API_HELD_TEXT_SIZE (UNITS_TEXT_SIZE + 32)
const char *api_held_text(const struct session *session, char buf[static API_HELD_TEXT_SIZE]);

/* GET /v1/events?from=N&since=NS&kind=WORD&uid=N&changes=1&wait=1 */
void api_get_events(struct call *call, const char *id);
/* GET, PUT {text}, POST {seen}, DELETE /v1/notice */
void api_get_notice(struct call *call, const char *id);
void api_put_notice(struct call *call, const char *id);
void api_post_notice(struct call *call, const char *id);
void api_delete_notice(struct call *call, const char *id);
