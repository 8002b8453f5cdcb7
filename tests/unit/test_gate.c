/* The gate's words and records: the transitions, and threads that launch while another closes.
 * Processes and daemon meet so; here it is in one process, so that a race detector sees it. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
/* After what it needs. */
#include <cmocka.h>

#include "base/macros.h"
#include "proto/gate.h"

#define SLOTS 4u
#define LAUNCHERS 3u
#define CLOSES 100
#define SLOT 1u

static struct ledger ledger;
static struct ledger_limits limits;

static int setup(void **state)
{
	size_t size = ledger_size(1, SLOTS);
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return -1;
	ledger = (struct ledger){.header = at, .limits = &limits};
	ledger_init(at, 1, SLOTS);
	ledger_slot_assign(&ledger, SLOT, 1, 1);
	return 0;
}

static int teardown(void **state)
{
	return munmap(ledger.header, ledger_size(1, SLOTS));
}

static uint64_t word(void)
{
	return atomic_load(gate_word(&ledger));
}

static void off_is_zero_and_every_change_counts(void **state)
{
	static const enum gate_state states[] = {GATE_OPEN, GATE_CONTENDED, GATE_CLOSED, GATE_IDLE};

	assert_int_equal(word(), 0);
	for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
		uint64_t before = word();

		uint64_t after = gate_set(&ledger, states[i]);

		assert_int_equal(word(), after);
		assert_int_equal(GATE_STATE(word()), states[i]);
		assert_int_equal(GATE_EPOCH(word()), GATE_EPOCH(before) + 1);
	}
	/* The same state again is another word: whoever saw the old one looks closer. */
	uint64_t before = word();
	gate_set(&ledger, GATE_STATE(before));
	assert_int_not_equal(word(), before);
	gate_set(&ledger, GATE_OFF);
	assert_int_equal(word(), 0);
}

static void replace_is_for_who_saw_the_word(void **state)
{
	uint64_t seen = gate_set(&ledger, GATE_IDLE);

	assert_true(gate_replace(&ledger, seen, GATE_CONTENDED));
	assert_int_equal(GATE_STATE(word()), GATE_CONTENDED);
	assert_false(gate_replace(&ledger, seen, GATE_CLOSED));
	assert_int_equal(GATE_STATE(word()), GATE_CONTENDED);
}

/* Changes that fronts make to the word, and those that none of them makes. */
static void each_change_of_the_word_is_told_apart(void **state)
{
	uint64_t closed = gate_set(&ledger, GATE_CLOSED);

	assert_int_equal(gate_change_of(closed, word()), GATE_SAME);
	assert_true(gate_replace(&ledger, closed, GATE_OPEN));
	assert_int_equal(gate_change_of(closed, word()), GATE_FORSAKEN);
	gate_set(&ledger, GATE_OPEN);
	assert_int_equal(gate_change_of(closed, word()), GATE_SPOILT);
	uint64_t idle = gate_set(&ledger, GATE_IDLE);
	assert_true(gate_replace(&ledger, idle, GATE_CONTENDED));
	assert_int_equal(gate_change_of(idle, word()), GATE_TAKEN_UP);
	uint64_t open = gate_set(&ledger, GATE_OPEN);
	assert_true(gate_replace(&ledger, open, GATE_CONTENDED));
	assert_int_equal(gate_change_of(open, word()), GATE_SPOILT);
	assert_int_equal(gate_change_of(closed, UINT64_MAX), GATE_SPOILT);
	gate_set(&ledger, GATE_OFF);
}

static void is_for_the_gpus_that_are_sliced(void **state)
{
	struct ledger_limits says = {.generation = 3};

	/* Nobody says: a daemon of an earlier version, or before one has. */
	assert_true(gate_is_for_all(&says));
	assert_true(gate_is_for(&says, 5));
	gate_set_unsliced(&ledger, &says, word(), 1ull << 5);
	assert_false(gate_is_for_all(&says));
	assert_false(gate_is_for(&says, 5));
	assert_true(gate_is_for(&says, 0));
	assert_true(gate_is_for(&says, LEDGER_GPUS_MAX));
	/* The word of one that is gone does not count. */
	says.generation++;
	assert_true(gate_is_for(&says, 5));
	gate_set_unsliced(&ledger, &says, word(), 0);
	assert_true(gate_is_for_all(&says));
	assert_int_equal(word(), 0);
}

static void threads_that_pass_or_wait_look_again_when_their_gpus_change(void **state)
{
	static const enum gate_state states[] = {GATE_OPEN, GATE_CLOSED};
	struct ledger_limits says = {.generation = 1};

	for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
		uint64_t before = gate_set(&ledger, states[i]);

		uint64_t after = gate_set_unsliced(&ledger, &says, before, i + 1);
		assert_int_not_equal(word(), before);
		assert_int_equal(word(), after);
		assert_int_equal(GATE_STATE(word()), states[i]);
		before = word();
		assert_int_equal(gate_set_unsliced(&ledger, &says, before, i + 1), before);
		assert_int_equal(word(), before);
	}
	/* A word that a process put there is not the daemon's to say again. */
	uint64_t own = gate_set(&ledger, GATE_CLOSED);
	assert_true(gate_replace(&ledger, own, GATE_OPEN));
	uint64_t forged = word();
	assert_int_equal(gate_set_unsliced(&ledger, &says, own, 5), own);
	assert_int_equal(word(), forged);
	/* It is its processes' to take up. */
	uint64_t idle = gate_set(&ledger, GATE_IDLE);
	assert_int_equal(gate_set_unsliced(&ledger, &says, idle, 0), idle);
	assert_int_equal(word(), idle);
}

static void drained_and_submitted(void **state)
{
	struct gate_process *p = gate_process(&ledger, SLOT);

	assert_non_null(p);
	assert_true(gate_drained(p));
	p->streams = 2;
	p->stream[0].submitted = UINT32_MAX;
	p->stream[0].done = UINT32_MAX;
	p->stream[1].submitted = 5;
	assert_false(gate_drained(p));
	assert_int_equal(gate_submitted(p), 4); /* numbers wrap round */
	p->stream[1].done = 5;
	assert_true(gate_drained(p));
	/* A process that says that it has more than there can be is not followed there. */
	p->streams = UINT32_MAX;
	assert_true(gate_drained(p));
	p->threads = UINT32_MAX;
	assert_false(gate_launching(p));
	p->thread[GATE_THREADS_MAX - 1].in_launch = 1;
	assert_true(gate_launching(p));
	p->thread[GATE_THREADS_MAX - 1].in_launch = 0;
	p->launching_others = 1;
	assert_true(gate_launching(p));
	p->launching_others = 0;
}

/* ---- threads that launch, one that closes ---------------------------------------------------- */

/* Written by the launching threads, with nothing but the gate to keep them from the closer, which
 * writes it while the gate is closed and drained. A launch that got through is a race, and a wrong
 * sum. */
static unsigned long guarded[LAUNCHERS];
static unsigned long seen[LAUNCHERS];
static _Atomic bool stop;

static void *launch(void *data)
{
	uintptr_t self = (uintptr_t)data;
	struct gate_process *p = gate_process(&ledger, SLOT);
	struct gate_thread *thread = &p->thread[self];
	struct gate_stream *stream = &p->stream[self];

	while (!atomic_load(&stop)) {
		/* As before a process is registered for the closer's barrier: ordered by itself. */
		atomic_store(&thread->in_launch, 1);
		if (GATE_STATE(atomic_load(gate_word(&ledger))) == GATE_CLOSED) {
			atomic_store_explicit(&thread->in_launch, 0, memory_order_release);
			sched_yield();
			continue;
		}
		if (++guarded[self] % 8 == 0)
			sched_yield();
		atomic_fetch_add(&stream->submitted, 1);
		atomic_store_explicit(&thread->in_launch, 0, memory_order_release);
		/* The GPU is done with it some time later. */
		if (guarded[self] % 8 == 1)
			sched_yield();
		atomic_store_explicit(&stream->done, stream->submitted, memory_order_release);
	}
	return NULL;
}

static void close_and_look(struct gate_process *p)
{
	gate_set(&ledger, GATE_CLOSED);
	while (gate_launching(p) || !gate_drained(p))
		sched_yield();
	for (uint32_t i = 0; i < LAUNCHERS; i++)
		seen[i] = guarded[i];
	uint32_t submitted = gate_submitted(p);
	for (int i = 0; i < 5; i++) {
		sched_yield();
		assert_int_equal(gate_submitted(p), submitted);
		assert_true(gate_drained(p));
	}
	for (uint32_t i = 0; i < LAUNCHERS; i++)
		assert_int_equal(seen[i], guarded[i]);
	gate_set(&ledger, GATE_OPEN);
}

static void nothing_passes_while_closed_and_drained(void **state)
{
	struct gate_process *p = gate_process(&ledger, SLOT);
	pthread_t threads[LAUNCHERS];
	unsigned long sum = 0;

	atomic_store(&p->threads, LAUNCHERS);
	atomic_store(&p->streams, LAUNCHERS);
	gate_set(&ledger, GATE_OPEN);
	for (uintptr_t i = 0; i < LAUNCHERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, launch, (void *)i), 0);
	for (int i = 0; i < CLOSES; i++) {
		uint32_t before = gate_submitted(p);
		while (i % 16 == 0 && gate_submitted(p) == before)
			sched_yield(); /* however late they come to run */
		close_and_look(p);
		sched_yield();
	}
	atomic_store(&stop, true);
	for (uint32_t i = 0; i < LAUNCHERS; i++) {
		pthread_join(threads[i], NULL);
		sum += guarded[i];
	}
	assert_true(sum > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(off_is_zero_and_every_change_counts, setup,
						teardown),
		cmocka_unit_test_setup_teardown(replace_is_for_who_saw_the_word, setup, teardown),
		cmocka_unit_test_setup_teardown(each_change_of_the_word_is_told_apart, setup,
						teardown),
		cmocka_unit_test_setup_teardown(is_for_the_gpus_that_are_sliced, setup, teardown),
		cmocka_unit_test_setup_teardown(
			threads_that_pass_or_wait_look_again_when_their_gpus_change, setup,
			teardown),
		cmocka_unit_test_setup_teardown(drained_and_submitted, setup, teardown),
		cmocka_unit_test_setup_teardown(nothing_passes_while_closed_and_drained, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
