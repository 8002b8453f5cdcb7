/* The lease thread: turns, gates, clocks, and pages full of nonsense. */
#include "test_daemon_leases.h"

/* Writes whatever it likes over its page and its gate, and never stops waking. */
static void *rage(void *arg)
{
	struct fake *f = arg;
	_Atomic uint32_t *words = (void *)gate_process(&f->ledger, SLOT);
	unsigned seed = 1;

	while (!atomic_load(&f->stop)) {
		for (size_t i = 0; i < sizeof(struct gate_process) / sizeof(*words); i++)
			atomic_store(&words[i], (uint32_t)rand_r(&seed) * 2654435761u);
		atomic_store(gate_word(&f->ledger), (uint64_t)rand_r(&seed) << 20 | rand_r(&seed));
		wake(f);
		pause_ns(MS / 20);
	}
	return NULL;
}

/* Makes whoever reads its wake descriptor wait, as its flags are shared, and takes each word out of
 * it again. */
static void *plug(void *arg)
{
	struct fake *f = arg;
	int fd = leases_wake_fd(f->member);
	uint64_t count;

	(void)fcntl(fd, F_SETFL, 0);
	while (!atomic_load(&f->stop)) {
		wake(f);
		(void)!read(fd, &count, sizeof(count));
	}
	return NULL;
}

/* The part that the smaller of two had, of what both had, by the leases' own books: the GPU is none
 * here. */
static double one_at_a_time_once(void)
{
	struct leases *leases = start(COMPUTE_STRICT);
	struct fake *a = fake_start(leases, 250000, work), *b = fake_start(leases, 750000, work);
	struct lease_standing small, large;

	wait_turns(a, 500);
	wait_turns(b, 500);
	leases_standing(leases, a->member, &small);
	leases_standing(leases, b->member, &large);
	assert_true(small.sliced && large.sliced && small.stat.leases > 1);
	if (!small.stalls && !large.stalls && !small.reopened && !large.reopened)
		assert_int_equal(atomic_load(&most), 1);
	fake_end(a, leases);
	fake_end(b, leases);
	leases_stop(leases);
	print_message("# %lu and %lu ms in %lu and %lu leases\n", small.stat.held_ns / MS,
		      large.stat.held_ns / MS, small.stat.leases, large.stat.leases);
	return (double)small.stat.held_ns / (double)(small.stat.held_ns + large.stat.held_ns);
}

static void one_at_a_time(void **state)
{
	double part = 0;

	/* A client that gets no processor for its turn goes idle, and another one's time is not
	 * counted. */
	for (int i = 0; i < 3 && (part <= 0.1 || part >= 0.5); i++)
		part = one_at_a_time_once();
	assert_true(part > 0.1 && part < 0.5);
}

static void alone_it_goes_idle_and_comes_back(void **state)
{
	struct leases *leases = start(COMPUTE_FAIR);
	struct fake *a = fake_start(leases, 0, work);

	wait_turns(a, 100);
	atomic_store(&a->stop, true);
	pthread_join(a->thread, NULL);
	for (int i = 0; i < 6000 && GATE_STATE(atomic_load(gate_word(&a->ledger))) != GATE_IDLE;
	     i++)
		pause_ns(10 * MS);
	assert_int_equal(GATE_STATE(atomic_load(gate_word(&a->ledger))), GATE_IDLE);
	atomic_store(&a->stop, false);
	assert_int_equal(pthread_create(&a->thread, NULL, work, a), 0);
	wait_turns(a, 100);
	fake_end(a, leases);
	leases_stop(leases);
}

/* As waiters do that find no daemon, while the next one is about to come. */
static void a_gate_that_was_opened_without_a_daemon_is_closed_again(void **state)
{
	struct leases *leases = start(COMPUTE_STRICT);
	struct fake *other = fake_start(leases, 750000, work), *f = fake_new();
	struct lease_standing standing = {0};

	fake_join(f, leases, 250000);
	leases_process_add(leases, f->member, SLOT, false);
	assert_int_equal(GATE_STATE(atomic_load(gate_word(&f->ledger))), GATE_CLOSED);
	gate_set(&f->ledger, GATE_OPEN);
	assert_int_equal(pthread_create(&f->thread, NULL, work, f), 0);
	for (int i = 0; i < 6000 && standing.stat.leases < 5; i++) {
		pause_ns(10 * MS);
		leases_standing(leases, f->member, &standing);
	}
	assert_true(standing.stat.leases >= 5);
	wait_turns(other, 100);
	fake_end(f, leases);
	fake_end(other, leases);
	leases_stop(leases);
}

/* A waiter without a connection takes a daemon for gone that has not beaten for 1.5 s. Returns how
 * often the gate counts as forged that it opens, the last beat being so long ago. */
static uint64_t forged_after(uint64_t silent_ns)
{
	struct leases *leases = start(COMPUTE_STRICT);
	struct fake *other = fake_start(leases, 500000, work), *f = fake_new();
	uint64_t opened;

	fake_join(f, leases, 500000);
	wait_turns(other, 100);
	pthread_mutex_lock(&leases->lock);
	leases->missed_until = 0;
	leases->beat_ns = now_monotonic_ns() - silent_ns;
	gate_set(&f->ledger, GATE_OPEN);
	opened = atomic_load(gate_word(&f->ledger));
	pthread_mutex_unlock(&leases->lock);
	for (int i = 0; i < 6000 && atomic_load(gate_word(&f->ledger)) == opened; i++)
		pause_ns(10 * MS);
	assert_true(atomic_load(gate_word(&f->ledger)) != opened);
	uint64_t forged = standing_of(leases, f).forged;
	leases_process_gone(leases, f->member, SLOT);
	leases_leave(leases, f->member);
	free(f->ledger.header);
	free(f);
	fake_end(other, leases);
	leases_stop(leases);
	return forged;
}

static void a_waiter_that_misses_the_beats_forges_nothing(void **state)
{
	assert_int_equal(forged_after(1500 * MS), 0);
	assert_int_equal(forged_after(0), 1);
}

static void a_wake_descriptor_that_blocks_holds_nobody_up(void **state)
{
	struct leases *leases = start(COMPUTE_STRICT);
	struct fake *other = fake_start(leases, 500000, work);
	struct fake *f = fake_start(leases, 500000, plug);

	wait_turns(other, 1000);
	fake_end(f, leases);
	fake_end(other, leases);
	leases_stop(leases);
}

/* The gate of one that is shut out is shut again as often as it opens that. */
static void *open_again(void *arg)
{
	struct fake *f = arg;

	while (!atomic_load(&f->stop)) {
		if (GATE_STATE(atomic_load(gate_word(&f->ledger))) == GATE_CLOSED)
			gate_set(&f->ledger, GATE_OPEN);
		pause_ns(MS / 10);
	}
	return NULL;
}

static void a_gate_that_is_opened_against_the_plan_is_shut_and_charged(void **state)
{
	struct leases *leases = start(COMPUTE_STRICT);
	struct fake *other = fake_start(leases, 500000, work), *f = fake_new();
	struct lease_standing standing = {0};

	pthread_mutex_lock(&leases->lock);
	leases->missed_until = 0;
	pthread_mutex_unlock(&leases->lock);
	fake_join(f, leases, 500000);
	assert_int_equal(pthread_create(&f->thread, NULL, open_again, f), 0);
	for (int i = 0; i < 6000 && standing.forged < 20; i++) {
		pause_ns(10 * MS);
		leases_standing(leases, f->member, &standing);
	}
	assert_true(standing.forged >= 20);
	assert_true(standing.stat.overrun_ns > 0);
	wait_turns(other, 100);
	fake_end(f, leases);
	fake_end(other, leases);
	leases_stop(leases);
}

/* One that waits and never comes, as a stopped process: its turns are short and few, until it says
 * again that it waits. */
static void waiter_that_does_not_come(uint64_t lease_ns)
{
	const struct lease_setting setting = {COMPUTE_FAIR, lease_ns, 100000};
	struct leases *leases = start(COMPUTE_FAIR);

	leases_set(leases, 0, &setting);
	struct fake *other = fake_start(leases, 500000, work), *f = fake_new();
	struct gate_process *page = gate_process(&f->ledger, SLOT);

	fake_join(f, leases, 500000);
	atomic_store(&page->waiting, 1);
	wake(f);
	for (int i = 0; i < 6000 && !standing_of(leases, f).stat.leases; i++)
		pause_ns(MS);
	uint64_t before = standing_of(leases, other).stat.held_ns;
	pause_ns(2000 * MS);
	uint64_t had = standing_of(leases, other).stat.held_ns - before;
	assert_true(standing_of(leases, f).stat.held_ns < had / 4);
	atomic_store(&page->waiting, 0);
	assert_int_equal(pthread_create(&f->thread, NULL, work, f), 0);
	wait_turns(f, 100);
	wait_turns(other, 100);
	fake_end(f, leases);
	fake_end(other, leases);
	leases_stop(leases);
}

static void a_waiter_that_does_not_come_keeps_nobody_waiting(void **state)
{
	waiter_that_does_not_come(20 * MS);
	waiter_that_does_not_come(5 * MS);
}

/* A program can close the descriptor that its front would write to: it gets its turns all the same.
 * The other keeps the gate shut in between. */
static void a_waiter_that_nobody_heard_gets_its_turn(void **state)
{
	struct leases *leases = start(COMPUTE_STRICT);
	struct fake *other = fake_start(leases, 500000, work), *f = fake_new();
	struct gate_process *page = gate_process(&f->ledger, SLOT);

	fake_join(f, leases, 500000);
	for (unsigned i = 0; i < 3; i++) {
		uint64_t before = standing_of(leases, f).stat.leases;

		/* The reason for the look is over. */
		wait_turns(other, 500);
		atomic_store(&page->waiting, 1);
		for (int j = 0; j < 6000 && standing_of(leases, f).stat.leases == before; j++)
			pause_ns(10 * MS);
		assert_true(standing_of(leases, f).stat.leases > before);
		atomic_store(&page->waiting, 0);
	}
	fake_end(other, leases);
	leases_process_gone(leases, f->member, SLOT);
	leases_leave(leases, f->member);
	free(f->ledger.header);
	free(f);
	leases_stop(leases);
}

/* A thread that looks without sleeping still looks at the clock each time, and lets others at the
 * lock. So a pass, which is told one time, is over after one look. Without the thread. */
static void a_pass_looks_once_at_a_turn_that_begins(void **state)
{
	const struct lease_setting setting = {COMPUTE_STRICT, 20 * MS, 100000};
	struct leases leases = {.poll_fd = epoll_create1(EPOLL_CLOEXEC),
				.timer_fd = -1,
				.kick_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC),
				.next_number = 16,
				.table = lease_table_new(),
				.spin_ns = MS};
	struct fake *f = fake_new();

	pthread_mutex_init(&leases.lock, NULL);
	leases_set(&leases, 0, &setting);
	fake_join(f, &leases, 500000);
	atomic_store(&gate_process(&f->ledger, SLOT)->waiting, 1);
	uint64_t now = now_monotonic_ns(), next = turns_run(&leases, now);
	enum gate_state gate = GATE_STATE(atomic_load(gate_word(&f->ledger)));
	assert_true(gate == GATE_OPEN || gate == GATE_CONTENDED);
	assert_in_range(next, now + 1, now + MS / 100);
	leases_process_gone(&leases, f->member, SLOT);
	leases_leave(&leases, f->member);
	free(f->ledger.header);
	free(f);
	lease_table_free(leases.table);
	pthread_mutex_destroy(&leases.lock);
	close(leases.poll_fd);
	close(leases.kick_fd);
}

/* A GPU's own clock, which stands still where this is not 0. */
static atomic_uint_fast64_t still_since;

static uint64_t clock_lag(const void *arg, uint64_t now_ns)
{
	uint64_t still = atomic_load(&still_since);

	return still && still < now_ns ? now_ns - still : 0;
}

/* Two that always want, on a GPU whose clock goes half as fast, and then never again: that does not
 * keep them. */
static uint64_t half_lag(const void *arg, uint64_t now_ns)
{
	const uint64_t *began = arg;
	uint64_t still = atomic_load(&still_since);

	return still ? now_ns - (*began + (still - *began) / 2) : (now_ns - *began) / 2;
}

static void leases_go_by_the_gpus_clock(void **state)
{
	const uint64_t began = now_monotonic_ns();
	struct leases *leases = start(COMPUTE_STRICT);

	atomic_store(&still_since, 0);
	leases_clock(leases, half_lag, &began);
	struct fake *a = fake_start(leases, 500000, work), *b = fake_start(leases, 500000, work);

	uint64_t first = leases_now(leases), before = now_monotonic_ns();
	wait_turns(a, 100);
	wait_turns(b, 100);
	uint64_t last = leases_now(leases), after = now_monotonic_ns();
	/* Between two looks time can pass unseen, no more than the GPU may stand still. */
	assert_true(last - first >= (after - before) / 2 - MS);
	assert_true(last - first <= (after - before) / 2 + MS || after - before > 10000 * MS);
	atomic_store(&still_since, now_monotonic_ns());
	wait_turns(a, 500);
	wait_turns(b, 500);
	fake_end(a, leases);
	fake_end(b, leases);
	leases_clock(leases, NULL, NULL);
	leases_stop(leases);
}

/* The next program's clock is further behind than this one's was: it goes on where this one's
 * stopped. */
static void turns_are_taken_up_by_a_clock_further_behind(void **state)
{
	struct leases *leases = start(COMPUTE_STRICT);
	int fd = leases_accounts(leases, -1);
	struct fake *f = fake_start(leases, 500000, work);

	assert_true(fd >= 0);
	do /* the gate stands open until the turns' thread had a processor */
		wait_turns(f, 50);
	while (!standing_of(leases, f).stat.leases);
	wait_turns(f, 500);
	/* It is written each second at the latest. */
	const struct lease_entry *account = f->member->account;
	for (uint64_t sequence = account->sequence; account->sequence < sequence + 2;)
		pause_ns(MS);
	/* As a daemon that is killed: its accounts stay as they are. */
	int kept = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	pthread_mutex_lock(&leases->lock);
	leases->accounts = NULL;
	f->member->account = NULL;
	pthread_mutex_unlock(&leases->lock);
	/* Turns go on, so this is at least what was written last. */
	uint64_t held = standing_of(leases, f).stat.held_ns;
	fake_end(f, leases);
	leases_stop(leases);

	atomic_store(&still_since, now_monotonic_ns() - 1000 * MS);
	leases = start(COMPUTE_STRICT);
	leases_clock(leases, clock_lag, NULL);
	assert_true(leases_accounts(leases, kept) >= 0);
	f = fake_new();
	counted_from += 1000;
	fake_join(f, leases, 500000);
	/* The time that is counted goes with the turns that are. */
	assert_int_equal(standing_of(leases, f).counted_from, 1000);
	assert_true(standing_of(leases, f).stat.leases > 0);
	assert_true(standing_of(leases, f).stat.held_ns <= held);
	assert_true(standing_of(leases, f).stat.held_ns > held / 2);
	atomic_store(&still_since, 0);
	assert_int_equal(pthread_create(&f->thread, NULL, work, f), 0);
	wait_turns(f, 50);
	fake_end(f, leases);
	leases_clock(leases, NULL, NULL);
	leases_stop(leases);
}

static void settings_change_while_sessions_come_and_go(void **state)
{
	struct leases *leases = start(COMPUTE_FAIR);
	struct fake *stays = fake_start(leases, 300000, work);

	for (unsigned i = 0; i < 12; i++) {
		const struct lease_setting setting = {(enum compute_mode)(i % 3), 5 * MS, 50000};
		struct fake *guest = fake_start(leases, i % 2 ? 400000 : 0, work);
		struct lease_turn turns[16];
		uint64_t next;

		leases_set(leases, 0, &setting);
		leases_share(leases, stays->member, 200000 + i * 10000);
		wait_turns(stays, 20);
		wait_turns(guest, 20);
		(void)leases_turns(leases, 0, turns, ARRAY_SIZE(turns), &next);
		(void)leases_turns_open(leases, turns, ARRAY_SIZE(turns));
		fake_end(guest, leases);
	}
	fake_end(stays, leases);
	leases_stop(leases);
}

static bool beats(const struct fake *f)
{
	uint32_t beat = atomic_load(&f->limits.beat);

	return beat && beat >> LEDGER_BEAT_COUNT_BITS == atomic_load(&f->limits.generation);
}

/* A waiter at a gate may have to open it itself, from the first moment that it is closed. */
static void a_gate_is_not_closed_before_the_daemon_beats(void **state)
{
	struct leases *leases = start(COMPUTE_OFF);
	const struct lease_setting strict = {COMPUTE_STRICT, 20 * MS, 100000};
	struct fake *first = fake_new(), *second = fake_new();

	atomic_store(&first->limits.generation, 1);
	atomic_store(&second->limits.generation, 70000);
	fake_join(first, leases, 500000);
	assert_false(beats(first));
	leases_set(leases, 0, &strict);
	assert_true(beats(first));
	fake_join(second, leases, 500000);
	assert_int_equal(atomic_load(&second->limits.beat) >> LEDGER_BEAT_COUNT_BITS,
			 (uint16_t)70000);
	for (int i = 0; i < 2; i++) {
		struct fake *f = i ? second : first;

		leases_process_gone(leases, f->member, SLOT);
		leases_leave(leases, f->member);
		free(f->ledger.header);
		free(f);
	}
	leases_stop(leases);
}

static void a_hostile_session_keeps_nobody_from_his_turns(void **state)
{
	struct leases *leases = start(COMPUTE_FAIR);
	struct fake *honest = fake_start(leases, 500000, work);
	struct fake *hostile = fake_start(leases, 500000, rage);

	wait_turns(honest, 300);
	fake_end(hostile, leases);
	wait_turns(honest, 100);
	fake_end(honest, leases);
	leases_stop(leases);
}

/* With an argument: those that judge times, by a clock that runs on while this machine stands
 * still. */
int main(int argc, char **argv)
{
	(void)argv;
	const struct CMUnitTest timed[] = {
		cmocka_unit_test(one_at_a_time),
		cmocka_unit_test(a_waiter_that_does_not_come_keeps_nobody_waiting),
		cmocka_unit_test(leases_go_by_the_gpus_clock),
	};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(alone_it_goes_idle_and_comes_back),
		cmocka_unit_test(a_gate_that_was_opened_without_a_daemon_is_closed_again),
		cmocka_unit_test(a_gate_that_is_opened_against_the_plan_is_shut_and_charged),
		cmocka_unit_test(a_waiter_that_misses_the_beats_forges_nothing),
		cmocka_unit_test(a_wake_descriptor_that_blocks_holds_nobody_up),
		cmocka_unit_test(a_waiter_that_nobody_heard_gets_its_turn),
		cmocka_unit_test(a_pass_looks_once_at_a_turn_that_begins),
		cmocka_unit_test(turns_are_taken_up_by_a_clock_further_behind),
		cmocka_unit_test(settings_change_while_sessions_come_and_go),
		cmocka_unit_test(a_gate_is_not_closed_before_the_daemon_beats),
		cmocka_unit_test(a_hostile_session_keeps_nobody_from_his_turns),
	};

	if (argc > 1)
		return cmocka_run_group_tests(timed, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
