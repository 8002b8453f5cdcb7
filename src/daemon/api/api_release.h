/* The handler that ends a session, or gives up a request that waits. */
#pragma once

struct call;

/* DELETE /v1/sessions/ID. Answered when the session has ended. */
void api_delete_session(struct call *call, const char *id);
