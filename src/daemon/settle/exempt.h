/* The users and groups whose programs a policy leaves alone, as the configuration names them. A
 * name may be a directory server's, so it is looked up on the loop's threads. Until each name is
 * known nobody can say who is exempt. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/host/members.h"

struct groups;

#define EXEMPT_NAMES_MAX 32u
#define EXEMPT_NAME_SIZE 64u

/* Names, or numbers as texts. */
struct exempt_names {
	uint32_t count;
	char name[EXEMPT_NAMES_MAX][EXEMPT_NAME_SIZE];
};

struct exempt_ids {
	struct exempt_names names;
	uint32_t id[EXEMPT_NAMES_MAX];
	bool known[EXEMPT_NAMES_MAX];
};

/* Zero at first. */
struct exempt {
	struct exempt_ids users, groups;
	struct members
		members[EXEMPT_NAMES_MAX]; /* the groups' users, by the machine's own files */
};

void exempt_set(struct exempt *exempt, const struct exempt_names *users,
		const struct exempt_names *groups);
/* Looks up what is not known yet, and who is in the groups. Returns NULL where all names are known;
 * else the first one that is not, with *ret_group saying what it is the name of. */
const char *exempt_look(struct exempt *exempt, bool *ret_group);
/* Calls cb(arg, group, name) for each name that is not known; `group`: it is a group's. */
void exempt_unknown(const struct exempt *exempt,
		    void (*cb)(void *arg, bool group, const char *name), void *arg);
/* Whether a process of that user is exempt. Its user may be named, or the owner of a subordinate
 * user ID. Its groups are those that the kernel has for it, and those of the machine's own files.
 */
bool exempt_has(const struct exempt *exempt, uid_t uid, pid_t pid);
/* Likewise a session's owner, whose groups the kernel had when the session was requested. */
bool exempt_has_owner(const struct exempt *exempt, uid_t uid, gid_t gid,
		      const struct groups *groups);
void exempt_free(struct exempt *exempt);
