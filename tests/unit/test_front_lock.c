/* The lock that one thread owns: it excludes, whoever comes and whenever. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
/* After what it needs. */
#include <cmocka.h>

#include "base/macros.h"
#include "front/lock.h"

#define THREADS 4u
#define TURNS 20000u
#define ROUNDS 50

/* Guarded by nothing but the lock: a race detector sees who else is inside. */
struct shared {
	struct owned_lock lock;
	unsigned long turns, doubled;
	_Atomic unsigned long outside; /* turns of the owner so far */
};

static void turn(struct shared *shared)
{
	owned_lock_acquire(&shared->lock);
	shared->turns++;
	shared->doubled = 2 * shared->turns;
	owned_lock_release(&shared->lock);
}

static void *take_turns(void *data)
{
	for (unsigned i = 0; i < TURNS; i++)
		turn(data);
	return NULL;
}

static void *take_one(void *data)
{
	turn(data);
	return NULL;
}

static void the_first_thread_owns_it(void **state)
{
	struct shared shared = {0};

	turn(&shared);
	assert_ptr_equal(atomic_load(&shared.lock.owner), lock_self());
	take_turns(&shared);
	assert_ptr_equal(atomic_load(&shared.lock.owner), lock_self());
	assert_int_equal(shared.turns, TURNS + 1);
	assert_int_equal(atomic_load(&shared.lock.inside), 0);
}

static void another_thread_ends_that(void **state)
{
	struct shared shared = {0};
	pthread_t other;

	turn(&shared);
	assert_int_equal(pthread_create(&other, NULL, take_one, &shared), 0);
	assert_int_equal(pthread_join(other, NULL), 0);
	assert_ptr_equal(atomic_load(&shared.lock.owner), LOCK_OWNER_NONE);
	turn(&shared);
	assert_int_equal(shared.turns, 3);
	assert_int_equal(atomic_load(&shared.lock.lock.held), 0);
}

static void *take_and_count(void *data)
{
	struct shared *shared = data;

	for (unsigned i = 0; i < TURNS; i++) {
		turn(shared);
		atomic_fetch_add(&shared->outside, 1);
	}
	return NULL;
}

/* Beside one whose turn it was before. */
static void take_turns_together(struct shared *shared)
{
	pthread_t threads[THREADS];

	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_and_count, shared), 0);
	take_turns(shared);
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(shared->turns, (THREADS + 1) * TURNS + 1);
	assert_int_equal(shared->doubled, 2 * shared->turns);
}

/* The owner is in the middle of its turns when the others come. */
static void nobody_meets_anybody_inside(void **state)
{
	for (int round = 0; round < ROUNDS; round++) {
		struct shared shared = {0};

		turn(&shared);
		assert_ptr_equal(atomic_load(&shared.lock.owner), lock_self());
		take_turns_together(&shared);
	}
}

/* From now on, in this thread and those it starts. */
static bool forbid_barriers(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {ARRAY_SIZE(filter), filter};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* The last test: what is forbidden stays so. */
static void nobody_owns_it_where_there_is_no_barrier(void **state)
{
	struct shared before = {0}, after = {0};

	turn(&before);
	if (!forbid_barriers()) {
		print_message("# not tried: cannot forbid itself a system call here\n");
		return;
	}
	take_turns_together(&before);
	turn(&after);
	assert_ptr_equal(atomic_load(&after.lock.owner), LOCK_OWNER_NONE);
	take_turns_together(&after);
	assert_int_equal(atomic_load(&after.lock.lock.held), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_thread_owns_it),
		cmocka_unit_test(another_thread_ends_that),
		cmocka_unit_test(nobody_meets_anybody_inside),
		cmocka_unit_test(nobody_owns_it_where_there_is_no_barrier),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
