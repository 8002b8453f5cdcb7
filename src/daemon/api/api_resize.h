/* The handler that changes a session's size: its limit, its part of a MIG instance, or its
 * instance. */
#pragma once

struct call;

/* PATCH /v1/sessions/ID. */
void api_patch_session(struct call *call, const char *id);
