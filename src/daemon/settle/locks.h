/* The marks (proto/mark.h) among the locks that the kernel lists. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/mark.h"

/* A marked descriptor that is open somewhere. */
struct descriptor {
	struct mark mark;
	uint64_t bytes;
};

/* Each of them once, by mark_start(); zero-initialised it is empty. */
struct locks {
	struct descriptor *list;
	size_t count, room;
	char *text; /* what was read last; kept for the next time */
	size_t text_room;
	uint64_t until_ns; /* of the thread's own time: then a reading is given up */
};

/* No more than so many are kept. */
#define LOCKS_MOST 2048u

typedef bool locks_filter(const struct mark *mark, const void *context);
/* Whether one that should be there, by what else is known, is not among those found so far. */
typedef bool locks_misses(const struct locks *found, const void *context);

/* Those in /proc/locks of which `wanted` is true, in place of what was there. Of a long list the
 * kernel gives a page at a time and passes over what lies where others come or go in between, so it
 * is read several times, each time in other pieces, until that tells nothing new; and more often
 * where `misses` is true. 0 or -errno, some found or not; -ETIME: that takes more of the
 * thread's time than `most_ns`, as any user can make any number of locks, and the kernel takes long
 * for many. Allocates. */
int locks_read(struct locks *l, uint64_t most_ns, locks_filter *wanted, locks_misses *misses,
	       const void *context);
bool locks_have(const struct locks *l, const struct mark *mark);
void locks_free(struct locks *l);
