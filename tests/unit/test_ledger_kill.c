/* Processes of a session charge and free as fast as they can, and are killed at random. After every
 * death the books must be exact, and the survivors must have gone on working meanwhile. The number
 * of kills is the first argument (default 300). */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../programs/fork_bound.h"
#include "base/macros.h"
#include "proto/ledger.h"

#define WORKERS 6
#define LIMIT (512ull * 1000)

static int kills = 300;

struct shared {
	atomic_ulong operations[WORKERS];
	atomic_ulong over; /* times somebody saw the sum above the limit */
};

static void work(const struct ledger *l, struct shared *shared, unsigned me, unsigned seed)
{
	uint32_t slot = me + 1;
	uint64_t held[8] = {0};

	for (;;) {
		unsigned i = rand_r(&seed) % ARRAY_SIZE(held);

		if (held[i]) {
			ledger_uncharge(l, slot, 0, held[i]);
			held[i] = 0;
		} else {
			uint64_t bytes = 512ull * (1 + rand_r(&seed) % 60);

			if (ledger_charge(l, slot, 0, bytes) == 0)
				held[i] = bytes;
		}
		if (ledger_committed(l, 0) > LIMIT)
			atomic_fetch_add(&shared->over, 1);
		atomic_fetch_add_explicit(&shared->operations[me], 1, memory_order_relaxed);
	}
}

static pid_t worker_start(const struct ledger *l, struct shared *shared, unsigned me)
{
	ledger_slot_assign(l, me + 1, 1, 1);
	pid_t pid = fork_bound();

	if (pid == 0)
		work(l, shared, me, (unsigned)rand());
	return pid;
}

static void pause_us(unsigned us)
{
	nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static uint64_t slots_sum(const struct ledger *l)
{
	uint64_t sum = 0;

	for (uint32_t slot = 0; slot < l->header->slot_count; slot++)
		sum += ledger_slot_bytes(l, slot, 0);
	return sum;
}

static void survivors_and_books(void **state)
{
	size_t size = ledger_size(1, WORKERS + 2);
	void *memory =
		mmap(NULL, size + sizeof(struct ledger_limits) + sizeof(struct shared) + 8192,
		     PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct ledger_limits *limits = (void *)((char *)memory + ALIGN_UP(size, 4096));
	struct shared *shared = (void *)(limits + 1);
	struct ledger l = {limits, memory};
	pid_t pids[WORKERS];

	srand(7);
	ledger_init(memory, 1, WORKERS + 2);
	limits->gpu[0].limit_bytes = LIMIT;
	for (unsigned i = 0; i < WORKERS; i++)
		pids[i] = worker_start(&l, shared, i);
	for (int round = 0; round < kills; round++) {
		unsigned victim = (unsigned)rand() % WORKERS;
		unsigned long before = atomic_load(&shared->operations[(victim + 1) % WORKERS]);

		pause_us((unsigned)rand() % 300);
		kill(pids[victim], SIGKILL);
		waitpid(pids[victim], NULL, 0);
		ledger_slot_release(&l, victim + 1);
		assert_int_equal(ledger_slot_bytes(&l, victim + 1, 0), 0);
		pids[victim] = worker_start(&l, shared, victim);
		for (int i = 0; atomic_load(&shared->operations[(victim + 1) % WORKERS]) == before;
		     i++) {
			assert_true(i < 100000);
			pause_us(100);
		}
	}
	for (unsigned i = 0; i < WORKERS; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
		ledger_recover(&l, i + 1);
	}
	assert_int_equal(slots_sum(&l), ledger_committed(&l, 0));
	for (unsigned i = 0; i < WORKERS; i++)
		ledger_slot_release(&l, i + 1);
	assert_int_equal(ledger_committed(&l, 0), 0);
	assert_int_equal(atomic_load(&shared->over), 0);
	munmap(memory, size + sizeof(struct ledger_limits) + sizeof(struct shared) + 8192);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(survivors_and_books)};

	if (argc > 1)
		kills = atoi(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
