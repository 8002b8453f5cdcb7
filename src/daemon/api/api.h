/* The requests of the HTTP API (/v1). */
#pragma once

struct call;

/* Answers the call, now or later. */
void api_handle(struct call *call);
/* Answers POST /v1/upgrade from now on. An upgrade hands over the API too, so it lies above it. */
void api_upgrade_with(void (*answer)(struct call *call, const char *id));
