/* The rows of GET /v1/limits that quotas make: the limits of the user alone, and those of groups.
 */
#pragma once

struct limits_view;

void api_quota_limits(struct limits_view *view);
/* The row of the sessions that the user may have beside those of others (docs/dev/daemon.md,
 * "Budgets"). */
void api_living_limits(struct limits_view *view);
