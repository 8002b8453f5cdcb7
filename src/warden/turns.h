/* Requests that wait, in turns by owner (core/turns.h): each turn takes the oldest request of an
 * owner that may begin. So an owner's many requests delay nobody else by more than one of them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "core/turns.h"

struct warden_message;

struct warden_turns {
	struct turns waiting;
	size_t total;
};

/* Takes a request over. 0; -EAGAIN: its owner, or all together, have as many as may wait. Then it
 * stays the caller's. */
int warden_turns_add(struct warden_turns *turns, struct warden_message *request);
/* The next request that may begin, which is the caller's then. NULL: there is none. */
struct warden_message *
warden_turns_next(struct warden_turns *turns,
		  bool (*may_begin)(void *arg, const struct warden_message *request), void *arg);
void warden_turns_clear(struct warden_turns *turns);
