/* The simulated host that programs of a test run on. libc only. */
#pragma once

#include <stdbool.h>

/* Whether this process was started on a simulated host that has ended since. Such a host ends with
 * all that is on it, and its directory goes. */
bool simulated_host_is_gone(void);
