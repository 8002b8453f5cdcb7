/* The event log over HTTP. */
#pragma once

struct call;

/* GET /v1/events?from=N&since=NS&kind=WORD&uid=N&changes=1&wait=1 */
void api_get_events(struct call *call, const char *id);
/* GET, PUT {text}, POST {seen}, DELETE /v1/notice */
void api_get_notice(struct call *call, const char *id);
void api_put_notice(struct call *call, const char *id);
void api_post_notice(struct call *call, const char *id);
void api_delete_notice(struct call *call, const char *id);
