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

struct budget_user;

struct budget {
	unsigned most, total;
	struct budget_user *users; /* those that have any */
	size_t count, room;
};

/* Empty, for `most` descriptors, or a quarter of those that this process may have;
 * half where they are few and the last ones are kept (limited_last()). */
void budget_begin(struct budget *budget, unsigned most);
/* Empty, for `most` of anything else. */
void budget_begin_any(struct budget *budget, unsigned most);
/* One more of this user. False: too many. *ret_owner: to whom it counts, for budget_leave(). */
bool budget_enter(struct budget *budget, uid_t uid, uid_t *ret_owner);
/* The same for several, all or none; in all no more than `most`. */
bool budget_enter_many(struct budget *budget, uid_t uid, unsigned count, uid_t *ret_owner);
/* Whether budget_enter() would let one more in. */
bool budget_has_room(const struct budget *budget, uid_t uid);
/* The most that this user may have now, and in *ret_has what the user has. */
unsigned budget_share(const struct budget *budget, uid_t uid, unsigned *ret_has);
/* One more, or several, whether there is room or not. Returns to whom they count. */
uid_t budget_add(struct budget *budget, uid_t uid);
uid_t budget_add_many(struct budget *budget, uid_t uid, unsigned count);
/* Some that had entered are gone. */
void budget_leave(struct budget *budget, uid_t owner);
void budget_leave_many(struct budget *budget, uid_t owner, unsigned count);
void budget_free(struct budget *budget);
