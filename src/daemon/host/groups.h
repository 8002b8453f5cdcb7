/* The groups that a user's process is in, as the kernel noted them when it connected. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* More than these the kernel may have; those beyond are not known. */
#define PEER_GROUPS_MAX 256

struct groups {
	unsigned count;
	gid_t gid[PEER_GROUPS_MAX]; /* `count` of them: the supplementary ones */
};

static inline bool groups_have(const struct groups *groups, gid_t gid)
{
	for (unsigned i = 0; i < groups->count; i++)
		if (groups->gid[i] == gid)
			return true;
	return false;
}
