/* The default and the longest time of what users ask for: sessions and jobs. Pure. */
#pragma once

#include <stdint.h>

/* As administrators set them, ns; 0: there is none. The default is at most the longest. */
struct time_limits {
	uint64_t default_ns, max_ns;
};

/* The time that a request for `asked_ns` (0: it names none) gets. A request that names none gets
 * the default; without a default the longest. 0 with *ret_ns (0: no limit), or -ERANGE: it asks for
 * more than the longest. */
int time_limits_apply(const struct time_limits *limits, uint64_t asked_ns, uint64_t *ret_ns);
