/* The inside of the room: what its files have of each other. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct session;
struct sessions;

/* Frees a session that is in no table. Takes NULL. */
void session_free(struct session *session);
/* Into the tables of all sessions, and out of them (sessions.c). */
void sessions_insert(struct sessions *sessions, struct session *session);
void sessions_remove(struct sessions *sessions, struct session *session);
/* The session is counted among those that the clock ends, so that the tick knows how fine it has to
 * be. */
void sessions_set_timed(struct session *session);

/* Promises part `position` of the session (session_promise.c). */
void session_promise_add(struct session *session, uint32_t position);
/* The share of time of a GPU (its position in the pool) that sessions were promised grows by `more`
 * and shrinks by `less`. */
void session_promise_share(struct sessions *sessions, int position, uint32_t more, uint32_t less);
/* Whether no part before `position` is on the same GPU: a session with several instances of a GPU
 * is one on it. */
bool session_promise_first(const struct session *session, uint32_t position);
/* The session has ended. Memory that its processes held stays promised until the driver's figures
 * are newer (session_drain()). */
void session_promises_drop(struct session *session);
/* Forgets promises of ended sessions: the daemon stops. */
void session_promises_free(struct sessions *sessions);
