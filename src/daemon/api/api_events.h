/* The event log over HTTP. */
#pragma once

struct call;

/* GET /v1/events?from=N&since=NS&kind=WORD&uid=N&changes=1&wait=1 */
void api_get_events(struct call *call, const char *id);
