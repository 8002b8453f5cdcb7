/* The environment of a process whose other threads may be reading it.
 *
 * A swap gives one variable another value for a while, as other threads read the environment:
 * no string or array that somebody may be reading is freed or changed. */
#pragma once

#include "front/lock.h"

/* Zeroed: not swapped. Calls may nest or overlap between threads: the first sets, the last
 * restores. */
struct environment_swap {
	struct lock lock;
	_Atomic unsigned int inside;
	char **before, **during;
	char *entry,
		*old; /* the variable as it is during the swap, and as it was (NULL: not set) */
};

/* A variable's value, NULL: not set. Valid until the program changes it. Carve's own variables have
 * the value of the slice's file (slice_file.h) where the program was started without them. */
const char *environment_get(const char *name);

/* entry is "NAME=VALUE" and must stay. 0 or -ENOMEM. */
int environment_swap_begin(struct environment_swap *swap, char *entry);
void environment_swap_end(struct environment_swap *swap);
