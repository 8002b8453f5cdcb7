/* The requests of the HTTP API (/v1). */
#pragma once

struct call;

/* Answers the call, now or later. */
void api_handle(struct call *call);
