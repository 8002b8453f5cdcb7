/* A mutex of two words for threads of one process: free when zero, so that memory the kernel zeroes
 * in a forked child holds free ones. Held for a few dozen instructions, never over a call into a
 * driver.
 *
 * While the process has one thread, as the C library knows, taking it needs no locked instruction:
 * nobody can appear in between, since it is that thread that would have to start another.
 *
 * Releasing is a plain store, because a locked instruction there would be a third of what charging
 * an allocation costs. The store can pass the look for waiters on its way to memory; a waiter that
 * went to sleep in between wakes by itself after LOCK_NAP_NS. */
#pragma once

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOCK_SPINS 200
#define LOCK_NAP_NS 1000000L

/* The C library's __libc_single_threaded, where it has one; else a constant 0. Found by dl_init().
 */
extern const char *lock_single_threaded;

struct lock {
	_Atomic uint32_t held;
	_Atomic uint32_t waiters;
};

static inline int lock_try(struct lock *lock)
{
	uint32_t nobody = 0;

	return atomic_compare_exchange_strong_explicit(&lock->held, &nobody, 1,
						       memory_order_acquire, memory_order_relaxed);
}

static inline void lock_acquire(struct lock *lock)
{
	const struct timespec nap = {.tv_nsec = LOCK_NAP_NS};

	if (*lock_single_threaded) {
		atomic_store_explicit(&lock->held, 1, memory_order_relaxed);
		return;
	}
	for (int i = 0; i < LOCK_SPINS; i++)
		if (!atomic_load_explicit(&lock->held, memory_order_relaxed) && lock_try(lock))
			return;
	atomic_fetch_add(&lock->waiters, 1);
	while (!lock_try(lock))
		syscall(SYS_futex, &lock->held, FUTEX_WAIT_PRIVATE, 1, &nap, NULL, 0);
	atomic_fetch_sub(&lock->waiters, 1);
}

static inline void lock_release(struct lock *lock)
{
	atomic_store_explicit(&lock->held, 0, memory_order_release);
	if (atomic_load_explicit(&lock->waiters, memory_order_relaxed))
		syscall(SYS_futex, &lock->held, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
