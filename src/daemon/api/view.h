/* The answers of the API, as JSON (docs/openapi.json has the names). Results are owned by the
 * caller; NULL: no memory. Another user sees of a session its size only, or its owner and its
 * beginning, too, where view_shows_owner() allows it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

struct error;
struct node;
struct peer;
struct slice_request;
struct place_result;
struct session;
struct store_drain;
struct store;
struct store_session;
struct waiter;

/* A user's name, or where there is none the number; good until the next call. */
const char *view_user(uid_t uid);
/* The fate of a request now, and each GPU's answer to it. `err` is the refusal in words
 * (unset: it would be granted). */
json_t *view_explain(const struct node *node, const struct slice_request *request,
		     const struct place_result *result, const struct error *err,
		     const struct peer *viewer);
/* The requests that go before `waiter`, or, where that is NULL, before a new one of this priority;
 * the first 64 of them. */
json_t *view_ahead(const struct node *node, const struct waiter *waiter, int priority,
		   const struct peer *viewer);
/* units_format_time() as JSON; null of 0. */
json_t *view_time(int64_t ns);
json_t *view_version(const struct node *node);
/* {"reason", "by", "since"}; null of NULL. */
json_t *view_drain(const struct store_drain *drain);
json_t *view_gpus(const struct node *node, const struct peer *viewer);
json_t *view_session(const struct session *session, const struct peer *viewer);
/* `position`: in the row, from 1. */
json_t *view_waiter(const struct node *node, const struct waiter *waiter, unsigned position,
		    const struct peer *viewer);
/* Whether to tell the viewer how to request this session again: an ended one of the viewer's own,
 * not ephemeral, that somebody or something else ended. */
bool view_may_ask_again(const struct store_session *session, const struct peer *viewer);
/* A session that has ended. */
json_t *view_ended(struct store *store, const struct store_session *session,
		   const struct peer *viewer);
