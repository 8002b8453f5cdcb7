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
};

typedef bool locks_filter(const struct mark *mark, const void *context);

/* Adds those in /proc/locks of which `wanted` is true. *ret_whole: none is missing. Of a long list
 * the kernel gives a page at a time, and what lies where others came or went in between may be
 * passed over, so that it takes several readings to say that something is not there. 0 or -errno,
 * some added or not. Allocates, and blocks for no longer than the kernel takes. */
int locks_read(struct locks *l, locks_filter *wanted, const void *context, bool *ret_whole);
bool locks_have(const struct locks *l, const struct mark *mark);
void locks_free(struct locks *l);
