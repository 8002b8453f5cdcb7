/* Fields of the API about sessions that leave their GPUs unused. */
#pragma once

#include <jansson.h>

struct session;

/* Adds the fields idle_since, idle_release_at, idle_warned, idle_timeout_ns, idle_warning_ns and
 * idle_unknown. `session`: NULL for one
 * that has ended. */
void api_idle_add(const struct session *session, json_t *json);
