/* Handlers of the API for MIG: routes of api.c. */
#pragma once

struct call;

void api_get_mig(struct call *call, const char *id);
void api_put_mig_roles(struct call *call, const char *id);
void api_post_mig_gc(struct call *call, const char *id);
