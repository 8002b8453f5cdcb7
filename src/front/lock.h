/* A mutex of one word for threads of one process: free when zero, so that memory the kernel zeroes
 * in a forked child holds free ones. Held for a few dozen instructions, never over a call into a
 * driver. */
#pragma once

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

struct lock {
	_Atomic uint32_t word; /* 0: free, 1: held, 2: held, and somebody may be waiting */
};

static inline void lock_acquire(struct lock *lock)
{
	uint32_t free_word = 0;

	if (atomic_compare_exchange_strong_explicit(&lock->word, &free_word, 1,
						    memory_order_acquire, memory_order_relaxed))
		return;
	while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire))
		syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

static inline void lock_release(struct lock *lock)
{
	if (atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2)
		syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
