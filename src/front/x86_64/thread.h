/* x86-64: see front/thread.h. The first word of a thread's block is its own address. */
#pragma once

#include <stdint.h>

static inline uint64_t thread_pointer(void)
{
	uint64_t at;

	__asm__("mov %%fs:0, %0" : "=r"(at));
	return at;
}
