/* Rows of `carve limits` about the times of sessions and jobs, and about idle sessions. */
#pragma once

struct limits_view;

void api_time_limits(struct limits_view *view);
