/* Quotas over HTTP: everybody sees the own ones, administrators see and set all. `name` is a user's
 * or group's name or number, and nothing for everyone's quota. */
#pragma once

struct call;

void api_get_quotas(struct call *call, const char *name);
/* Shows one, also where no limit is set. */
void api_get_quota(struct call *call, const char *name);
/* PUT sets all limits (what is left out: none), PATCH those that are named (null: none). */
void api_put_quota(struct call *call, const char *name);
void api_patch_quota(struct call *call, const char *name);
void api_delete_quota(struct call *call, const char *name);
