/* Counts what a server has of one kind (connections, descriptors, bytes of answers), by user, so
 * that nobody can take it all. A user has at most half of what the others leave, however many do
 * that. Subordinate users count as their owner (daemon/host/owner.h). Root may have what is left of
 * three quarters: nobody's program, root's neither, takes the last quarter from the users. All
 * roots of containers (daemon/host/bounded_root.h) together have three quarters at most, however
 * many they are. A user's own daemon serves that user alone, who may have all. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct crowd_user;

struct crowd {
	unsigned most, total;
	struct crowd_user *users; /* those that have any */
	size_t count, room;
};

/* Empty, for `most` descriptors, or a quarter of those that this process may have;
 * half where they are few and the last ones are kept (limited_last()). */
void crowd_begin(struct crowd *crowd, unsigned most);
/* Empty, for `most` of anything else. */
void crowd_begin_any(struct crowd *crowd, unsigned most);
/* One more of this user. False: too many. *ret_owner: to whom it counts, for crowd_leave(). */
bool crowd_enter(struct crowd *crowd, uid_t uid, uid_t *ret_owner);
/* The same for several, all or none; in all no more than `most`. */
bool crowd_enter_many(struct crowd *crowd, uid_t uid, unsigned count, uid_t *ret_owner);
/* Whether crowd_enter() would let one more in. */
bool crowd_has_room(const struct crowd *crowd, uid_t uid);
/* One more, or several, whether there is room or not. Returns to whom they count. */
uid_t crowd_add(struct crowd *crowd, uid_t uid);
uid_t crowd_add_many(struct crowd *crowd, uid_t uid, unsigned count);
/* Some that had entered are gone. */
void crowd_leave(struct crowd *crowd, uid_t owner);
void crowd_leave_many(struct crowd *crowd, uid_t owner, unsigned count);
void crowd_free(struct crowd *crowd);
