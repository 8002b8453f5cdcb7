/* The members of a group by the machine's own files (/etc/passwd, /etc/group), whichever groups
 * their processes are in: root of an own user namespace can leave those. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>

/* Zero at first. */
struct members {
	uid_t *uid; /* in ascending order */
	size_t count, room;
	struct timespec users, groups; /* when the files had changed last as they were read */
};

/* Reads the files if they have changed. Where there is no memory, some are left out. */
void members_look(struct members *members, gid_t gid);
bool members_have(const struct members *members, uid_t uid);
/* Adds a user whom the files do not name, as of a directory server. The next reading of changed
 * files forgets it: for lists that are never read. */
void members_note(struct members *members, uid_t uid);
void members_free(struct members *members);
