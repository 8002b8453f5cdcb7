/* The ledger's promise: never over the limit, never refused while room was free, and exact books
 * after a death at any instruction. The last is tried at every instruction, by a tracer. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/macros.h"
#include "proto/ledger.h"

#define GPUS 2
#define SLOTS 24

static struct ledger ledger_new(uint64_t limit)
{
	size_t size = ledger_size(GPUS, SLOTS);
	struct ledger_limits *limits = mmap(NULL, sizeof(*limits), PROT_READ | PROT_WRITE,
					    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct ledger_header *header =
		mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ledger_init(header, GPUS, SLOTS);
	assert_int_equal(ledger_check(header, size), 0);
	for (int i = 0; i < GPUS; i++)
		limits->gpu[i].limit_bytes = limit;
	return (struct ledger){limits, header};
}

static void ledger_drop(struct ledger *l)
{
	munmap((void *)l->limits, sizeof(*l->limits));
	munmap(l->header, ledger_size(GPUS, SLOTS));
}

/* The sum of what the slots say; the committed word must agree whenever nobody is inside. */
static uint64_t slots_sum(const struct ledger *l, uint32_t gpu)
{
	uint64_t sum = 0;

	for (uint32_t slot = 0; slot < SLOTS; slot++)
		sum += ledger_slot_bytes(l, slot, gpu);
	return sum;
}

static void charges_stop_at_the_limit(void **state)
{
	struct ledger l = ledger_new(MIB(10));

	assert_int_equal(ledger_charge(&l, 1, 0, MIB(6)), 0);
	assert_int_equal(ledger_charge(&l, 2, 0, MIB(4)), 0);
	assert_int_equal(ledger_charge(&l, 1, 0, 1), -ENOMEM);
	assert_int_equal(ledger_committed(&l, 0), MIB(10));
	assert_int_equal(ledger_committed(&l, 1), 0);
	assert_int_equal(ledger_charge(&l, 1, 1, MIB(10)), 0);
	ledger_uncharge(&l, 2, 0, MIB(4));
	assert_int_equal(ledger_charge(&l, 1, 0, MIB(4) + 1), -ENOMEM);
	assert_int_equal(ledger_charge(&l, 1, 0, MIB(4) - 511), 0);
	assert_int_equal(ledger_committed(&l, 0), MIB(10));
	assert_int_equal(ledger_gpu(&l, 0)->peak_bytes, MIB(10));
	assert_int_equal(slots_sum(&l, 0), MIB(10));
	assert_int_equal(ledger_charge(&l, 1, 0, UINT64_MAX), -ENOMEM);
	assert_int_equal(ledger_charge(&l, 1, 0, INT64_MAX), -ENOMEM);
	ledger_drop(&l);
}

static void limit_need_not_be_a_multiple(void **state)
{
	struct ledger l = ledger_new(1001);

	assert_int_equal(ledger_charge(&l, 1, 0, 512), 0);
	assert_int_equal(ledger_charge(&l, 1, 0, 1), -ENOMEM);
	ledger_drop(&l);
}

static void settling_and_release(void **state)
{
	struct ledger l = ledger_new(MIB(10));

	ledger_slot_assign(&l, 3, 1234, 99);
	assert_int_equal(ledger_charge(&l, 3, 0, MIB(5)), 0);
	ledger_settle(&l, 3, 0, MIB(7)); /* the driver's word: beyond the limit, and still true */
	assert_int_equal(ledger_committed(&l, 0), MIB(12));
	assert_int_equal(ledger_charge(&l, 3, 0, 512), -ENOMEM);
	ledger_settle(&l, 3, 0, -(int64_t)MIB(1));
	assert_int_equal(ledger_committed(&l, 0), MIB(4));
	ledger_settle(&l, 3, 0, -(int64_t)MIB(100)); /* never below nothing */
	assert_int_equal(ledger_committed(&l, 0), 0);
	ledger_settle(&l, 3, 0, 3);
	assert_int_equal(ledger_committed(&l, 0), MIB(5) + 512);
	ledger_slot_release(&l, 3);
	assert_int_equal(ledger_committed(&l, 0), 0);
	assert_int_equal(ledger_slot(&l, 3)->state, LEDGER_SLOT_FREE);
	ledger_drop(&l);
}

static void hostile_headers_are_refused(void **state)
{
	struct ledger l = ledger_new(MIB(1));
	struct ledger_header *h = l.header, good = *h;
	size_t size = ledger_size(GPUS, SLOTS);

	assert_int_equal(ledger_check(h, 16), -EPROTO);
	assert_int_equal(ledger_check(h, size - 1), -EPROTO);
#define REFUSED(field, value)                   \
	h->field = (value);                     \
	assert_true(ledger_check(h, size) < 0); \
	*h = good
	REFUSED(magic, 1);
	REFUSED(version, 0);
	REFUSED(version_oldest, LEDGER_VERSION + 1);
	REFUSED(gpu_count, 0);
	REFUSED(gpu_count, LEDGER_GPUS_MAX + 1);
	REFUSED(slot_count, 1);
	REFUSED(slot_count, UINT32_MAX);
	REFUSED(slot_stride, 64);
	REFUSED(slot_stride, UINT32_MAX);
	REFUSED(gpu_offset, 0);
	REFUSED(gpu_offset, UINT32_MAX - 63);
	REFUSED(slot_offset, 0);
	REFUSED(slot_offset, UINT32_MAX - 63);
	REFUSED(size, UINT64_MAX);
	assert_int_equal(ledger_check(h, size), 0);
	ledger_drop(&l);
}

/* ---- racing threads; the same code under TSan ---- */

struct racer {
	struct ledger *l;
	uint32_t slot;
	unsigned seed;
	uint64_t grants;
	_Atomic unsigned *running, *shrunk;
};

static void *race(void *arg)
{
	struct racer *me = arg;
	uint64_t held = 0;

	/* A thread that finds the room taken by some that do not run now goes on until it gets
	 * some. */
	for (int i = 0; i < 20000 || !me->grants; i++) {
		uint64_t bytes = 512ull * (1 + rand_r(&me->seed) % 64);

		if (held && rand_r(&me->seed) % 2) {
			ledger_uncharge(me->l, me->slot, 0, held);
			held = 0;
		} else if (!held && ledger_charge(me->l, me->slot, 0, bytes) == 0) {
			held = bytes;
			me->grants++;
		}
		assert_true(ledger_committed(me->l, 0) <= ledger_limit(me->l, 0));
	}
	ledger_uncharge(me->l, me->slot, 0, held);
	return NULL;
}

static void racers_never_pass_the_limit(void **state)
{
	struct ledger l = ledger_new(512 * 100);
	struct racer racers[8];
	pthread_t threads[8];

	for (unsigned i = 0; i < 8; i++) {
		racers[i] = (struct racer){.l = &l, .slot = i + 1, .seed = i * 77 + 1};
		pthread_create(&threads[i], NULL, race, &racers[i]);
	}
	for (unsigned i = 0; i < 8; i++) {
		pthread_join(threads[i], NULL);
		assert_true(racers[i].grants > 0);
	}
	assert_int_equal(ledger_committed(&l, 0), 0);
	assert_int_equal(slots_sum(&l, 0), 0);
	ledger_drop(&l);
}

#define HELD (512ull * 30)
#define HIGH (512ull * 100)

static void *race_unchecked(void *arg)
{
	struct racer *me = arg;

	for (int i = 0; i < 50000 || !atomic_load(me->shrunk); i++)
		if (ledger_charge(me->l, me->slot, 0, HELD) == 0)
			ledger_uncharge(me->l, me->slot, 0, HELD);
	atomic_fetch_sub(me->running, 1);
	return NULL;
}

static void nobody_charges_by_a_limit_that_was_lowered(void **state)
{
	struct ledger l = ledger_new(HIGH);
	struct ledger_limits *limits = (struct ledger_limits *)l.limits;
	_Atomic unsigned running = 4, shrunk = 0;
	struct racer racers[4];
	pthread_t threads[4];

	for (unsigned i = 0; i < 4; i++) {
		racers[i] = (struct racer){
			.l = &l, .slot = i + 1, .running = &running, .shrunk = &shrunk};
		pthread_create(&threads[i], NULL, race_unchecked, &racers[i]);
	}
	while (atomic_load(&running)) {
		uint64_t low = 512ull * (shrunk % 3 * 30);
		int rc = ledger_shrink(&l, limits, 0, low);

		assert_true(rc == 0 || rc == -EBUSY);
		assert_int_equal(ledger_limit(&l, 0), rc == 0 ? low : HIGH);
		for (int look = 0; rc == 0 && look < 200; look++)
			assert_true(ledger_committed(&l, 0) <= low);
		shrunk += rc == 0;
		limits->gpu[0].limit_bytes = HIGH;
	}
	for (unsigned i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(ledger_committed(&l, 0), 0);
	assert_int_equal(slots_sum(&l, 0), 0);
	ledger_drop(&l);
}

/* Equal requests that fit in number must all succeed: a loser of the race may not be refused while
 * there is room. */
static void *take_one(void *arg)
{
	struct racer *me = arg;

	me->grants = ledger_charge(me->l, me->slot, 0, 512) == 0;
	return NULL;
}

static void room_is_never_refused(void **state)
{
	for (int round = 0; round < 200; round++) {
		struct ledger l = ledger_new(512 * 16);
		struct racer racers[16];
		pthread_t threads[16];

		for (unsigned i = 0; i < 16; i++) {
			racers[i] = (struct racer){.l = &l, .slot = i + 1};
			pthread_create(&threads[i], NULL, take_one, &racers[i]);
		}
		for (unsigned i = 0; i < 16; i++) {
			pthread_join(threads[i], NULL);
			assert_int_equal(racers[i].grants, 1);
		}
		ledger_drop(&l);
	}
}

/* ---- death at every instruction; not of sanitized code, which is not what processes run ---- */

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
/* Where an architecture's breakpoint does not step over itself, this test has nothing to say yet.
 */
#define BREAKPOINT() __asm__ volatile("int3" ::: "memory")

enum victim_work { WORK_CHARGE, WORK_UNCHARGE, WORK_REFUSED, WORK_SETTLE, WORK_REAP };

static void victim_do(const struct ledger *l, enum victim_work work)
{
	switch (work) {
	case WORK_CHARGE:
		ledger_charge(l, 1, 0, MIB(2));
		break;
	case WORK_UNCHARGE:
		ledger_uncharge(l, 1, 0, MIB(1));
		break;
	case WORK_REFUSED:
		ledger_charge(l, 1, 0, MIB(100));
		break;
	case WORK_SETTLE:
		ledger_settle(l, 1, 0, MIB(3));
		break;
	case WORK_REAP:
		ledger_slot_release(l, 1);
		break;
	}
}

/* Starts a traced child that traps right before its work, and sets *done right after it. */
static pid_t victim_start(const struct ledger *l, enum victim_work work, atomic_int *done)
{
	pid_t pid = fork();

	if (pid == 0) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGTRAP);
		BREAKPOINT();
		victim_do(l, work);
		atomic_store(done, 1);
		for (;;)
			pause();
	}
	return pid;
}

/* Steps the child `steps` instructions into its work; false when the work was done before. */
static bool victim_step(pid_t pid, int steps, const atomic_int *done)
{
	int status;

	waitpid(pid, &status, 0); /* the first trap, with the library's way out of raise() ahead */
	ptrace(PTRACE_CONT, pid, NULL, NULL);
	waitpid(pid, &status, 0); /* the second: the work is next */
	while (steps--) {
		if (atomic_load(done))
			return false;
		ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL);
		waitpid(pid, &status, 0);
	}
	return true;
}

/* Kills the work after every number of instructions, `others` acting in between, and looks at the
 * books. Returns the number of instructions. */
static int die_everywhere(enum victim_work work, bool others)
{
	bool by_daemon = work == WORK_SETTLE || work == WORK_REAP;
	atomic_int *done = mmap(NULL, sizeof(*done), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t alone = MIB(5); /* what slots 2 and 3 hold at the end */
	int steps;

	for (steps = 0;; steps++) {
		struct ledger l = ledger_new(MIB(20));
		ledger_slot_assign(&l, 1, 1, 1);
		assert_int_equal(ledger_charge(&l, 1, 0, MIB(4)), 0);
		assert_int_equal(ledger_charge(&l, 2, 0, MIB(5)), 0);
		if (work == WORK_REAP)
			ledger_settle(&l, 1, 0, MIB(1));

		atomic_store(done, 0);
		pid_t pid = victim_start(&l, work, done);
		bool alive = victim_step(pid, steps, done);
		if (others) { /* the word is overwritten: its operation has to be helped */
			assert_int_equal(ledger_charge(&l, 3, 0, MIB(1)), 0);
			ledger_uncharge(&l, 2, 0, MIB(1));
		}
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		ledger_recover(&l, by_daemon ? LEDGER_SLOT_DAEMON : 1);
		if (slots_sum(&l, 0) != ledger_committed(&l, 0))
			fail_msg("work %d, others %d, instruction %d: slots hold %llu, the sum "
				 "says %llu",
				 work, others, steps, (unsigned long long)slots_sum(&l, 0),
				 (unsigned long long)ledger_committed(&l, 0));
		ledger_slot_release(&l, 1);
		assert_int_equal(ledger_committed(&l, 0), alone);
		assert_int_equal(slots_sum(&l, 0), alone);
		/* The slot's next user starts from clean books. */
		ledger_slot_assign(&l, 1, 2, 2);
		assert_int_equal(ledger_charge(&l, 1, 0, MIB(15)), 0);
		assert_int_equal(ledger_charge(&l, 1, 0, 512), -ENOMEM);
		ledger_slot_release(&l, 1);
		assert_int_equal(ledger_committed(&l, 0), alone);
		ledger_drop(&l);
		if (!alive) {
			munmap(done, sizeof(*done));
			return steps;
		}
	}
}

static void death_at_every_instruction(void **state)
{
	for (int work = WORK_CHARGE; work <= WORK_REAP; work++) {
		for (int others = 0; others < 2; others++) {
			int steps = die_everywhere(work, others);

			/* Far fewer would mean that the tracer saw nothing of the work. */
			assert_true(steps > 20);
		}
	}
}

#endif

/* Memory of which the driver had less than was charged is given back as it was charged. */
static void sum_below_nothing(void **state)
{
	struct ledger l = ledger_new(MIB(20));

	ledger_slot_assign(&l, 1, 1, 1);
	ledger_slot_assign(&l, 2, 2, 2);
	assert_int_equal(ledger_charge(&l, 1, 0, MIB(10)), 0);
	ledger_settle(&l, 1, 0, -(int64_t)MIB(4));
	ledger_uncharge(&l, 1, 0, MIB(10));
	assert_int_equal(ledger_committed(&l, 0), 0);
	assert_int_equal(ledger_charge(&l, 2, 0, MIB(3)), 0);
	assert_int_equal(ledger_committed(&l, 0), 0);
	assert_int_equal(ledger_charge(&l, 2, 0, MIB(3)), 0);
	assert_int_equal(ledger_committed(&l, 0), MIB(2));
	ledger_settle(&l, 1, 0, 0);
	assert_int_equal(ledger_committed(&l, 0), MIB(6));
	/* The same with the end of the process in between. */
	assert_int_equal(ledger_charge(&l, 1, 0, MIB(10)), 0);
	ledger_settle(&l, 1, 0, -(int64_t)MIB(9));
	ledger_uncharge(&l, 1, 0, MIB(10));
	ledger_slot_release(&l, 2);
	ledger_slot_release(&l, 1);
	assert_int_equal(ledger_committed(&l, 0), 0);
	ledger_slot_assign(&l, 1, 3, 3);
	assert_int_equal(ledger_charge(&l, 1, 0, MIB(20)), 0);
	assert_int_equal(ledger_charge(&l, 1, 0, 512), -ENOMEM);
	ledger_drop(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(charges_stop_at_the_limit),
		cmocka_unit_test(limit_need_not_be_a_multiple),
		cmocka_unit_test(settling_and_release),
		cmocka_unit_test(sum_below_nothing),
		cmocka_unit_test(hostile_headers_are_refused),
		cmocka_unit_test(racers_never_pass_the_limit),
		cmocka_unit_test(nobody_charges_by_a_limit_that_was_lowered),
		cmocka_unit_test(room_is_never_refused),
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
		cmocka_unit_test(death_at_every_instruction),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
