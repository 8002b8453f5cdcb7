/* Commands that are recorded with a session, as JSON. */
#pragma once

#include <jansson.h>

struct store;

/* Oldest first; the caller's. */
json_t *view_recorded(struct store *store, const char *session);
