/* The end of a turn in the lease thread: drains, work that waits for later launches, gaps. */
#include "test_daemon_leases.h"

/* A kernel that takes longer than a drain is waited for: the next one gets its turn, and what the
 * kernel takes from it is paid for when it ends. */
static void work_that_outlives_a_drain_is_charged(void **state)
{
	struct leases *leases = start(COMPUTE_FAIR);
	struct fake *other = fake_start(leases, 500000, work), *f = fake_new();
	struct gate_process *page = gate_process(&f->ledger, SLOT);

	fake_join(f, leases, 500000);
	atomic_store(&page->threads, 1);
	atomic_store(&page->streams, 1);
	assert_true(pass(f, page));
	atomic_store(&page->stream[0].submitted, 1);
	atomic_store(&page->stream[0].marked, 1);
	atomic_store(&page->thread[0].in_launch, 0);
	for (int i = 0; i < 6000 && !standing_of(leases, f).stalls; i++)
		pause_ns(10 * MS);
	uint64_t before = standing_of(leases, f).stat.overrun_ns;
	uint64_t turns = atomic_load(&other->turns);
	pause_ns(300 * MS);
	wait_turns(other, 10);
	assert_true(atomic_load(&other->turns) > turns);
	/* It is still at it. */
	assert_int_equal(standing_of(leases, f).stat.overrun_ns, before);
	atomic_store(&page->stream[0].done, 1);
	for (int i = 0; i < 6000 && standing_of(leases, f).stat.overrun_ns == before; i++)
		pause_ns(10 * MS);
	/* No more than a plan of what nobody expected to be so long. */
	uint64_t paid = standing_of(leases, f).stat.overrun_ns - before;
	assert_int_equal(paid, 200 * MS);
	fake_end(other, leases);
	leases_process_gone(leases, f->member, SLOT);
	leases_leave(leases, f->member);
	free(f->ledger.header);
	free(f);
	leases_stop(leases);
}

/* ---- work that waits for what is handed in later ------------------------------------------- */

#define WAITS_FOR 40u /* launches */

static atomic_uint room_us_most; /* as processes were told while they waited */

static bool waits_for_gate(struct fake *f, enum gate_state state)
{
	while (!atomic_load(&f->stop) && GATE_STATE(atomic_load(gate_word(&f->ledger))) != state)
		pause_ns(MS / 10);
	return !atomic_load(&f->stop);
}

static void one_launch(struct gate_process *page, unsigned stream)
{
	atomic_fetch_add(&page->stream[stream].submitted, 1);
	atomic_fetch_add(&page->stream[stream].marked, 1);
	atomic_store(&page->thread[0].in_launch, 0);
}

/* Something that waits for many launches of which none is in when the turn ends. */
static void *wait_for_later(void *arg)
{
	struct fake *f = arg;
	struct gate_process *page = gate_process(&f->ledger, SLOT);

	atomic_store(&page->threads, 1);
	atomic_store(&page->streams, 2);
	while (pass(f, page)) {
		one_launch(page, 0);
		if (!waits_for_gate(f, GATE_CLOSED))
			break;
		for (unsigned i = 0; i < WAITS_FOR && pass(f, page); i++) {
			unsigned us = atomic_load(&f->limits.in_flight_us);

			if (us > atomic_load(&room_us_most))
				atomic_store(&room_us_most, us);
			one_launch(page, 1);
			pause_ns(WORK_NS);
			atomic_fetch_add(&page->stream[1].done, 1);
		}
		atomic_fetch_add(&page->stream[0].done, 1);
		atomic_fetch_add(&f->turns, 1);
		/* It has to hear of that before it goes on. */
		pause_ns(2 * MS);
	}
	atomic_store(&page->thread[0].in_launch, 0);
	return NULL;
}

/* Its turn has ended, and what it waits for gets in all the same; it pays for that time. */
static bool has_them_soon(void)
{
	struct leases *leases = start(COMPUTE_FAIR);
	struct fake *other = fake_start(leases, 500000, work);
	struct fake *f = fake_start(leases, 500000, wait_for_later);
	const unsigned rounds = 12;

	atomic_store(&room_us_most, 0);
	wait_turns(f, rounds);
	wait_turns(other, 20);
	struct lease_standing standing = standing_of(leases, f);
	uint64_t others = standing_of(leases, other).stat.held_ns;
	/* The bound that fits doubles. */
	bool soon = standing.stalls <= rounds / 3 + standing.reopened / 8 &&
		    standing.reopened >= rounds / 2 && others > standing.stat.held_ns / 2 &&
		    atomic_load(&room_us_most) > 5000;
	if (!soon)
		print_message("# stalls %lu, reopened %lu, held %lu and %lu ms, room %u us\n",
			      standing.stalls, standing.reopened, standing.stat.held_ns / MS,
			      others / MS, atomic_load(&room_us_most));
	/* Afterwards it is what it was. */
	for (int i = 0; i < 6000 && atomic_load(&f->limits.in_flight_us) != 5000; i++)
		pause_ns(MS);
	assert_int_equal(atomic_load(&f->limits.in_flight_us), 5000);
	fake_end(f, leases);
	fake_end(other, leases);
	leases_stop(leases);
	return soon;
}

static void work_that_waits_for_launches_at_the_gate_has_them_soon(void **state)
{
	bool soon = false;

	/* A machine that stands still may be too slow for one or the other. */
	for (int i = 0; i < 3 && !soon; i++)
		soon = has_them_soon();
	assert_true(soon);
}

/* Long work, known to be as long, while another thread of the process waits at the gate. */
static void *long_work(void *arg)
{
	struct fake *f = arg;
	struct gate_process *page = gate_process(&f->ledger, SLOT);

	atomic_store(&page->threads, 1);
	atomic_store(&page->streams, 1);
	while (pass(f, page)) {
		atomic_store(&page->in_flight_ns, 100 * MS);
		one_launch(page, 0);
		atomic_fetch_add(&page->waiting, 1);
		pause_ns(60 * MS);
		atomic_fetch_sub(&page->waiting, 1);
		atomic_store(&page->in_flight_ns, 0);
		atomic_fetch_add(&page->stream[0].done, 1);
		atomic_fetch_add(&f->turns, 1);
	}
	atomic_store(&page->thread[0].in_launch, 0);
	return NULL;
}

static void kernels_as_long_as_known_do_not_reopen_the_gate(void **state)
{
	struct leases *leases = start(COMPUTE_FAIR);
	struct fake *other = fake_start(leases, 500000, work);
	struct fake *f = fake_start(leases, 500000, long_work);

	wait_turns(f, 10);
	wait_turns(other, 20);
	/* But where this machine stood still. */
	assert_in_range(standing_of(leases, f).reopened, 0, 3);
	fake_end(f, leases);
	fake_end(other, leases);
	leases_stop(leases);
}

/* ---- gaps ---------------------------------------------------------------------------------- */

/* So much work, and then none for a while, again and again. */
static void *work_with_gaps(void *arg)
{
	struct fake *f = arg;
	struct gate_process *page = gate_process(&f->ledger, SLOT);

	atomic_store(&page->threads, 1);
	atomic_store(&page->streams, 1);
	while (pass(f, page)) {
		one_launch(page, 0);
		pause_ns(f->work_ns);
		atomic_fetch_add(&page->stream[0].done, 1);
		atomic_fetch_add(&f->turns, 1);
		pause_ns(f->gap_ns);
	}
	atomic_store(&page->thread[0].in_launch, 0);
	return NULL;
}

/* How long it is waited for, once it is known. */
static uint64_t waited_for(enum compute_mode mode, long work_ns, long gap_ns)
{
	struct leases *leases = start(mode);
	struct fake *other = fake_start(leases, 500000, work), *f = fake_new();

	f->work_ns = work_ns;
	f->gap_ns = gap_ns;
	fake_join(f, leases, 500000);
	assert_int_equal(pthread_create(&f->thread, NULL, work_with_gaps, f), 0);
	wait_turns(f, 80);
	uint64_t ns = standing_of(leases, f).idle_ns;
	fake_end(f, leases);
	fake_end(other, leases);
	leases_stop(leases);
	return ns;
}

/* On a machine that stands still gaps and work are others: then again. */
static void waited_for_within(enum compute_mode mode, long work_ns, long gap_ns, uint64_t from,
			      uint64_t to)
{
	uint64_t ns = 0;
	bool within = false;

	for (int i = 0; i < 3 && !within; i++) {
		ns = waited_for(mode, work_ns, gap_ns);
		within = ns >= from && ns <= to;
	}
	assert_in_range(ns, from, to);
}

static void gaps_are_waited_for_as_far_as_they_are_worth_it(void **state)
{
	waited_for_within(COMPUTE_FAIR, 3 * MS, MS, MS, 4 * MS);
	waited_for_within(COMPUTE_FAIR, MS / 5, 5 * MS / 2, 0, 2 * LEASE_IDLE_NS_MIN);
	waited_for_within(COMPUTE_FAIR, MS, 20 * MS, 0, 2 * LEASE_IDLE_NS_MIN);
	waited_for_within(COMPUTE_STRICT, MS / 5, 5 * MS / 2, 5 * MS / 2, 4 * MS);
}

/* With an argument: those that judge times. */
int main(int argc, char **argv)
{
	(void)argv;
	const struct CMUnitTest timed[] = {
		cmocka_unit_test(work_that_waits_for_launches_at_the_gate_has_them_soon),
		cmocka_unit_test(kernels_as_long_as_known_do_not_reopen_the_gate),
		cmocka_unit_test(gaps_are_waited_for_as_far_as_they_are_worth_it),
	};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(work_that_outlives_a_drain_is_charged),
	};

	if (argc > 1)
		return cmocka_run_group_tests(timed, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
