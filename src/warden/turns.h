/* Requests that wait, in turns by owner: each turn takes the oldest request of one owner that may
 * begin, and then that owner is the last one. So an owner's many requests delay nobody else by more
 * than one of them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct warden_message;
struct warden_owner;

struct warden_turns {
	struct warden_owner *first, *last; /* owners in the order of their turns */
	size_t total;
};

/* Takes a request over. 0; -EAGAIN: its owner, or all together, have as many as may wait; -ENOMEM.
 * Then it stays the caller's. */
int warden_turns_add(struct warden_turns *turns, struct warden_message *request);
/* The next request that may begin, which is the caller's then. NULL: there is none. An owner's
 * requests of one kind keep their order: behind one that may not begin yet, only requests of other
 * operations are looked at. */
struct warden_message *
warden_turns_next(struct warden_turns *turns,
		  bool (*may_begin)(void *arg, const struct warden_message *request), void *arg);
void warden_turns_clear(struct warden_turns *turns);
