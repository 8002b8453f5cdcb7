/* Which thread this is, without thread-local storage, of which the front has none: the address of
 * the C library's block of the thread, which is the thread's alone while it lives. */
#pragma once

#include <stdint.h>

#if defined(__x86_64__)
#include "front/x86_64/thread.h"
#else
#error "no thread pointer for this machine yet: see src/front/x86_64/thread.h"
#endif
