/* The row of GET /v1/limits that `show_owners` makes: who sees whose a user's sessions are. */
#pragma once

struct limits_view;

void api_owners_limits(struct limits_view *view);
