/* The event log: what administrators and policies changed, and what else an administrator may want
 * to hear. Each event has the next number, which outlives restarts. Loop thread.
 *
 * A user can cause events of some kinds as often as that user likes. Those count against the user:
 * each user has EVENTS_OF_USER of them, and all users together EVENTS_OF_USERS. All other events
 * have room of their own, so no user pushes out what an administrator did. Older events go first,
 * and none stays longer than a year. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/events/event_kinds.h"
#include "daemon/store/store.h"

struct events;
struct peer;

#define EVENTS_OF_USER 1000u
#define EVENTS_OF_USERS 50000u
#define EVENTS_OF_NODE 50000u
/* The most events that one request looks at. */
#define EVENTS_PART 256u

/* An event before it has a number. Texts that are missing are "". Texts that are too long are cut,
 * and what is no UTF-8 or a control character becomes '?'. */
struct event {
	enum event_kind kind;
	const struct peer *actor; /* the client that changed it; NULL: the daemon */
	/* The user whose session, job or quota it concerns; NULL: no user's. */
	const uid_t *owner;
	const char *subject; /* the thing that changed: "user alice", "GPU 3", "session s-1" */
	const char *before, *after; /* the old value and the new one */
	const char *text;           /* a reason, or the rest */
};

/* `store` is lent. 0 or -errno. */
int events_start(struct store *store, struct events **ret);
/* Takes NULL. */
void events_stop(struct events *events);
/* Each second: forgets what is older than a year. */
void events_tick(struct events *events);
/* Tells the listeners of new events; in each round of the loop. */
void events_round(struct events *events);

/* Writes the event to the log of the daemon and to the database. An event that the database does
 * not take is in the log of the daemon alone. Not within a transaction of the store's. Takes
 * `events` NULL: then it is in the log alone. */
void events_add(struct events *events, const struct event *event);

/* The ID of the database whose numbers these are. */
const char *events_database(const struct events *events);
/* The number that the next event will have, or a larger one. */
uint64_t events_next(const struct events *events);
/* The number of the first event that is not older than that moment (CLOCK_REALTIME, ns);
 * events_next() where there is none. 0 or -errno. */
int events_since(const struct events *events, int64_t at, uint64_t *ret);
/* Calls for the events from a number on, EVENTS_PART at most, and until a callback returns a
 * positive number. *ret_next: from where to go on. 0, -errno, or a callback's negative result. */
int events_each(const struct events *events, uint64_t from, store_event_cb cb, void *arg,
		uint64_t *ret_next);
/* Whether this peer may see an event. `events_admin`: it is an administrator of this daemon. */
bool events_admin(const struct peer *viewer);
bool events_visible(const struct store_event *event, const struct peer *viewer);

/* Calls once at the next event. 0 or -ENOMEM. */
typedef void (*events_cb)(void *arg);
int events_listen(struct events *events, events_cb cb, void *arg);
void events_unlisten(struct events *events, const void *arg);
