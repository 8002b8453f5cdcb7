#include "core/time_limits.h"

#include <errno.h>

int time_limits_apply(const struct time_limits *limits, uint64_t asked_ns, uint64_t *ret_ns)
{
	if (limits->max_ns && asked_ns > limits->max_ns)
		return -ERANGE;
	*ret_ns = asked_ns ? asked_ns : limits->default_ns ? limits->default_ns : limits->max_ns;
	return 0;
}
