/* Free stretches of a space, in order of their offsets and never two side by side. The caller
 * locks. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct gap {
	struct gap *next;
	uint64_t offset, size;
};

/* First fit. False: no stretch is long enough. */
bool gap_take(struct gap **list, uint64_t size, uint64_t *ret_offset);
/* Gives a stretch back; without memory to note it, it is lost. */
void gap_give(struct gap **list, uint64_t offset, uint64_t size);
