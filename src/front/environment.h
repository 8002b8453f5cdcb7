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

/* A variable's value, NULL: not set. Valid until the program changes it. Where the mount namespace
 * carries the slice (slice_file.h), carve's own variables are read there and not in the
 * environment. A process that has rights which its caller has not (base/trust.h) has no variables
 * but those. */
const char *environment_get(const char *name);

/* entry is "NAME=VALUE" and must stay. 0 or -ENOMEM. */
int environment_swap_begin(struct environment_swap *swap, char *entry);
void environment_swap_end(struct environment_swap *swap);
