#include "front/lock.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define SPINS 200
#define NAP_NS 1000000L
/* Where the barrier was taken away from a process that had it: longer than any store is on its way
 * to memory. */
#define BARRIER_NAP_NS 10000000L

/* Until it is known better: many. */
static const char many_threads;
const char *lock_single_threaded = &many_threads;

/* No cancellation point. */
static void nap_on(_Atomic uint32_t *word, uint32_t seen, long ns)
{
	const struct timespec nap = {.tv_nsec = ns};

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, &nap, NULL, 0);
}

void lock_wait(struct lock *lock)
{
	for (int i = 0; i < SPINS; i++)
		if (!atomic_load_explicit(&lock->held, memory_order_relaxed) && lock_try(lock))
			return;
	atomic_fetch_add(&lock->waiters, 1);
	while (!lock_try(lock))
		nap_on(&lock->held, 1, NAP_NS);
	atomic_fetch_sub(&lock->waiters, 1);
}

void lock_wake(struct lock *lock)
{
	syscall(SYS_futex, &lock->held, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Also where signals end naps. */
static void sleep_on_nothing(long ns)
{
	_Atomic uint32_t never = 0;
	uint64_t end = now_monotonic_ns() + (uint64_t)ns;

	for (int64_t left = ns; left > 0; left = (int64_t)(end - now_monotonic_ns()))
		nap_on(&never, 0, left);
}

/* Old kernels and filters of system calls have none. */
static bool has_barrier_of_others(void)
{
	long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);

	return commands > 0 && commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED;
}

/* Every other thread of the process has passed a full barrier when this returns. */
static void barrier_of_others(void)
{
	syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) < 0)
		sleep_on_nothing(BARRIER_NAP_NS);
}

/* Takes it by `lock`, or becomes its owner. An owner's thread pointer may be that of a later
 * thread, when the owner has ended: it is then the owner. */
void owned_lock_wait(struct owned_lock *lock)
{
	lock_acquire(&lock->lock);
	const void *owner = atomic_load(&lock->owner);
	if (!owner && !has_barrier_of_others()) {
		owner = LOCK_OWNER_NONE;
		atomic_store(&lock->owner, owner);
	}
	if (!owner) {
		atomic_store(&lock->inside, 1);
		atomic_store(&lock->owner, lock_self());
		lock_release(&lock->lock);
		return;
	}
	if (owner != LOCK_OWNER_NONE) {
		atomic_store(&lock->owner, LOCK_OWNER_NONE);
		barrier_of_others();
		while (atomic_load(&lock->inside))
			nap_on(&lock->inside, 1, NAP_NS / 20);
	}
	lock->plain = true;
}
