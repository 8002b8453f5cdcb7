/* The rows of GET /v1/limits that say which GPU a request gets, and which GPUs it does not get. */
#pragma once

struct limits_view;

void api_place_limits(struct limits_view *view);
