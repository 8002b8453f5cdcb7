/* What the API shows, as JSON (names: spec, "JSON names"). Results are owned by the caller; NULL:
 * no memory. Another user sees of a session its size only. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

struct node;
struct session;
struct store_session;
struct waiter;

json_t *view_version(const struct node *node);
json_t *view_gpus(const struct node *node);
json_t *view_session(const struct session *session, uid_t viewer);
json_t *view_waiter(const struct node *node, const struct waiter *waiter, uid_t viewer);
/* A session that has ended. */
json_t *view_ended(const struct store_session *session, uid_t viewer);
/* Whether this user may see and change what belongs to `owner`. */
bool view_permitted(uid_t viewer, uid_t owner);
