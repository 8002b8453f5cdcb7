/* Lists of sessions, in parts, so that no answer is long in the making. */
#pragma once

struct call;

/* GET /v1/sessions. */
void api_get_sessions(struct call *call, const char *id);
