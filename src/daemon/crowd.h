/* Connections of a server by user, so that nobody can take them all: a user has at most half of
 * what the others leave, however many do that. Root and the daemon's own user may have all that is
 * left. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct crowd_user;

struct crowd {
	unsigned most, total;
	struct crowd_user *users; /* those with connections */
	size_t count, room;
};

/* Empty, for `most` connections, or a quarter of the descriptors that this process may have. */
void crowd_begin(struct crowd *crowd, unsigned most);
/* One more of this user. False: too many. */
bool crowd_enter(struct crowd *crowd, uid_t uid);
/* One that had entered is gone. */
void crowd_leave(struct crowd *crowd, uid_t uid);
void crowd_free(struct crowd *crowd);
