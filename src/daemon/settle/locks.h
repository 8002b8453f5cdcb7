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
	char *text; /* the last reading; kept for the next time */
	size_t text_room;
	uint64_t until_ns; /* the thread's own time at which a reading is given up */
};

/* No more than this many are kept. */
#define LOCKS_MOST 2048u

typedef bool locks_filter(const struct mark *mark, const void *context);
/* Whether one that should be there, by what else is known, is not among those found so far. */
typedef bool locks_misses(const struct locks *found, const void *context);

/* Replaces the contents of `l` by the locks in /proc/locks for which `wanted` is true. Allocates.
 *
 * The kernel gives a long list a page at a time. If locks come or go in between, it passes over
 * others. So the list is read several times, each time in other pieces, until a reading tells
 * nothing new. It is read more often while `misses` is true.
 *
 * 0 or -errno, some found or not. -ETIME: it takes more of the thread's time than `most_ns`. Any
 * user can make any number of locks, and the kernel takes long for many. */
int locks_read(struct locks *l, uint64_t most_ns, locks_filter *wanted, locks_misses *misses,
	       const void *context);
bool locks_have(const struct locks *l, const struct mark *mark);
void locks_free(struct locks *l);
