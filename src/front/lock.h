/* A mutex of two words for threads of one process: free when zero, so that memory the kernel zeroes
 * in a forked child holds free ones. Held for a few dozen instructions, never over a call into a
 * driver, but for those that say so.
 *
 * While the process has one thread, as the C library knows, taking it needs no locked instruction.
 * Nobody can appear in between, since it is that thread that would have to start another.
 *
 * Releasing is a plain store, because a locked instruction there would be a third of what charging
 * an allocation costs. The store can pass the look for waiters on its way to memory; a waiter that
 * went to sleep in between wakes by itself after a millisecond. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

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

/* Spins, then sleeps. */
void lock_wait(struct lock *lock);
void lock_wake(struct lock *lock);

static inline void lock_acquire(struct lock *lock)
{
	if (*lock_single_threaded)
		atomic_store_explicit(&lock->held, 1, memory_order_relaxed);
	else if (atomic_load_explicit(&lock->held, memory_order_relaxed) || !lock_try(lock))
		lock_wait(lock);
}

static inline void lock_release(struct lock *lock)
{
	atomic_store_explicit(&lock->held, 0, memory_order_release);
	if (atomic_load_explicit(&lock->waiters, memory_order_relaxed))
		lock_wake(lock);
}

/* The same for what mostly one thread takes. The first to take it owns it, and takes it without any
 * locked instruction, each of which costs as much as a fifth of charging an allocation otherwise.
 * The first other thread to want it ends that for good. It waits until no thread of the process can
 * believe that it is the owner any more, which may take milliseconds, once. Zeroed: free, nobody's.
 * If the kernel has no such barrier, nobody ever owns it.
 *
 * The owner says that it is inside, then looks whether it still is the owner. The thread that ends
 * that changes the owner, has all threads pass a barrier, then looks whether somebody is inside.
 */
struct owned_lock {
	struct lock lock;            /* guards all but the owner */
	_Atomic uint32_t inside;     /* the owner holds it */
	bool plain;                  /* it is held by `lock`; written and read by who holds it */
	_Atomic(const void *) owner; /* its thread pointer; NULL: nobody so far */
};

/* For good: nobody. */
#define LOCK_OWNER_NONE ((const void *)1)

static inline const void *lock_self(void)
{
#ifdef __x86_64__
	const void *self;

	__asm__("mov %%fs:0, %0" : "=r"(self));
	return self;
#else
	return __builtin_thread_pointer();
#endif
}

void owned_lock_wait(struct owned_lock *lock);

static inline void owned_lock_acquire(struct owned_lock *lock)
{
	const void *self = lock_self();

	if (atomic_load_explicit(&lock->owner, memory_order_relaxed) == self &&
	    !atomic_load_explicit(&lock->inside, memory_order_relaxed)) {
		atomic_store_explicit(&lock->inside, 1, memory_order_relaxed);
		atomic_signal_fence(memory_order_seq_cst);
		if (__builtin_expect(
			    atomic_load_explicit(&lock->owner, memory_order_acquire) == self, 1))
			return;
		atomic_store_explicit(&lock->inside, 0, memory_order_release);
	}
	owned_lock_wait(lock);
}

static inline void owned_lock_release(struct owned_lock *lock)
{
	if (!lock->plain) {
		atomic_store_explicit(&lock->inside, 0, memory_order_release);
		return;
	}
	lock->plain = false;
	lock_release(&lock->lock);
}
