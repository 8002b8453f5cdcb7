/* Child processes of the warden, in which operations run that may block. A child belongs to a room
 * and answers one request at a time. It lives on for a moment, as it may have opened the driver. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct warden_message;
struct warden_place;
struct warden_room;

#define WARDEN_CHILDREN_MAX 16u

enum warden_child_state {
	WARDEN_CHILD_NONE = 0,
	WARDEN_CHILD_IDLE,
	WARDEN_CHILD_BUSY,
	WARDEN_CHILD_ENDING, /* it was told to end, and its link is not closed yet */
};

struct warden_child {
	enum warden_child_state state;
	pid_t pid;
	int fd;
	const struct warden_room *room;
	struct warden_message *request; /* a busy one's; NULL: its worker is gone */
	uint32_t owner;                 /* the request's */
	uint64_t since_ns;              /* CLOCK_MONOTONIC, since when it is idle, or busy */
};

struct warden_children {
	struct warden_child slot[WARDEN_CHILDREN_MAX];
};

/* Whether a request of the owner may begin in the room. */
bool warden_children_may(const struct warden_children *children, const struct warden_room *room,
			 uint32_t owner);
/* Begins a request, which warden_children_may() allowed; it is the child's then. 0, or -errno and
 * it is still the caller's. -ETIMEDOUT: children whose time is over have all places. */
int warden_children_begin(struct warden_children *children, struct warden_place *place,
			  const struct warden_room *room, struct warden_message *request);
/* Whether a busy or idle child has said something, or has hung up, is `readable`. The answer, which
 * is the caller's; NULL: there is none. A child that died while it worked has answered ECHILD, and
 * one whose time is over ETIMEDOUT. */
struct warden_message *warden_child_take(struct warden_child *child, bool readable);
/* The answers of all that are busy for the worker are nobody's. */
void warden_children_forget(struct warden_children *children);
/* Ends children that have been idle for long, and notes which have ended. Returns in how many
 * milliseconds it has to be called again; -1: not. */
int warden_children_tend(struct warden_children *children);
/* Closes the links of all children, which end by themselves. */
void warden_children_leave(struct warden_children *children);
