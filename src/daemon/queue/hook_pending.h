/* Changes that an agent's hook has not been told of: a bounded list for each user, so that one
 * user's many changes are told in turns with the others' few. Ends beyond a list's length are on
 * the disk and are read again from there; other changes beyond it are dropped and counted. Users of
 * a range of subordinate IDs are one. */
#pragma once

#include <stdint.h>

#include "daemon/queue/queue_private.h"

struct hook_event {
	struct hook_event *next;
	struct queue_event event;
};

struct hook_user {
	struct hook_user *next;
	uid_t owner;
	struct hook_event *first, *last;
	uint32_t count;
	/* Ends that are to be read from the disk, by their numbers: those behind the first, up to
	 * the second. 0: none. */
	int64_t owed_from, owed_to;
	uint64_t dropped, dropped_untold; /* since the list was empty; and since the last change */
};

/* Users who have some, the next one to be told first. All zero: nobody. */
struct hook_pending {
	struct hook_user *first, *last;
};

void hook_pending_clear(struct hook_pending *pending);
/* Puts a change behind those of its user, or among what is dropped or owed. `from_disk`: it is an
 * owed end, for which there is room. *ret: its user. 0; 1: it was dropped; or -ENOMEM. */
int hook_pending_add(struct hook_pending *pending, const struct queue_event *event, bool from_disk,
		     struct hook_user **ret);
/* A change that was told in vain is its user's first again. It is freed where there is no memory.
 */
void hook_pending_return(struct hook_pending *pending, struct hook_event *event);
/* Takes the first change of the user whose turn it is; the user's next turn comes after all
 * others'. */
struct hook_event *hook_pending_take(struct hook_pending *pending);
/* The user whose turn it is has no change any more, neither here nor on the disk. */
void hook_pending_forget(struct hook_pending *pending);
/* The lowest number of an end in it; `otherwise` where that is lower. */
int64_t hook_pending_lowest(const struct hook_pending *pending, int64_t otherwise);
