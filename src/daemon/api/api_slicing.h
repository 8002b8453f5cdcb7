/* /v1/timeslicing: how GPUs' time is sliced, and the turns that were had. */
#pragma once

#include <jansson.h>

struct call;
struct peer;
struct session;

void api_get_slicing(struct call *call, const char *id);
void api_put_slicing(struct call *call, const char *id);
void api_get_turns(struct call *call, const char *id);
/* The fate of a session's share of time; null where none of its GPUs is time-sliced. */
json_t *api_slicing_session(const struct session *session);
