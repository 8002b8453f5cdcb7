/* The lease thread with processes that are threads of this one: what tools for races can see, and
 * pages full of nonsense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/lease/lease_service.h"
#include "proto/gate.h"

#define SLOTS 4u
#define SLOT 1u
#define WORK_NS 200000L
#define MS 1000000l

struct fake {
	long work_ns, gap_ns;
	struct ledger_limits limits;
	struct ledger ledger;
	struct ledger_header shape;
	struct lease_member *member;
	pthread_t thread;
	atomic_bool stop, hostile;
	atomic_uint_fast64_t turns;
};

static atomic_int running; /* sessions that are on the GPU now */
static atomic_int most;

static void pause_ns(long ns)
{
	struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

	nanosleep(&t, NULL);
}

static void wake(const struct fake *f)
{
	uint64_t one = 1;

	(void)!write(leases_wake_fd(f->member), &one, sizeof(one));
}

/* ---- a front, in its plainest form ------------------------------------------------------- */

static bool pass(struct fake *f, struct gate_process *page)
{
	bool counted = false;

	while (!atomic_load(&f->stop)) {
		atomic_store(&page->thread[0].in_launch, 1);
		uint64_t word = atomic_load(gate_word(&f->ledger));
		enum gate_state state = GATE_STATE(word);

		if (state == GATE_IDLE && gate_replace(&f->ledger, word, GATE_CONTENDED)) {
			wake(f);
			continue;
		}
		if (state != GATE_CLOSED && state != GATE_IDLE) {
			if (counted)
				atomic_fetch_sub(&page->waiting, 1);
			return true;
		}
		atomic_store(&page->thread[0].in_launch, 0);
		if (!counted) {
			atomic_fetch_add(&page->waiting, 1);
			wake(f);
		}
		counted = true;
		pause_ns(MS / 10);
	}
	return false;
}

static void on_gpu(struct fake *f)
{
	int now = atomic_fetch_add(&running, 1) + 1, before = atomic_load(&most);

	while (before < now && !atomic_compare_exchange_weak(&most, &before, now))
		;
	pause_ns(WORK_NS);
	atomic_fetch_sub(&running, 1);
	atomic_fetch_add(&f->turns, 1);
}

static void *work(void *arg)
{
	struct fake *f = arg;
	struct gate_process *page = gate_process(&f->ledger, SLOT);

	atomic_store(&page->threads, 1);
	atomic_store(&page->streams, 1);
	while (pass(f, page)) {
		atomic_fetch_add(&page->stream[0].submitted, 1);
		atomic_fetch_add(&page->stream[0].marked, 1);
		atomic_store(&page->thread[0].in_launch, 0);
		on_gpu(f);
		atomic_fetch_add(&page->stream[0].done, 1);
	}
	atomic_store(&page->thread[0].in_launch, 0);
	return NULL;
}

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

/* ---- sessions ---------------------------------------------------------------------------- */

static struct fake *fake_new(void)
{
	struct fake *f = calloc(1, sizeof(*f));
	size_t size = ledger_size(1, SLOTS);

	assert_non_null(f);
	f->ledger.header = aligned_alloc(4096, ALIGN_UP(size, 4096));
	assert_non_null(f->ledger.header);
	memset(f->ledger.header, 0, size);
	ledger_init(f->ledger.header, 1, SLOTS);
	f->shape = *f->ledger.header;
	f->ledger.shape = &f->shape;
	f->ledger.limits = &f->limits;
	return f;
}

static void fake_join(struct fake *f, struct leases *leases, uint32_t fraction)
{
	const struct lease_joining joining = {.id = "s-fake",
					      .owner = (uintptr_t)f,
					      .ledger = &f->ledger,
					      .limits = &f->limits,
					      .gpus = 1,
					      .fraction = fraction,
					      .wake_fd = -1};

	assert_int_equal(leases_join(leases, &joining, &f->member), 0);
	leases_process_add(leases, f->member, SLOT, true);
}

static struct fake *fake_start(struct leases *leases, uint32_t fraction, void *(*run)(void *))
{
	struct fake *f = fake_new();

	fake_join(f, leases, fraction);
	assert_int_equal(pthread_create(&f->thread, NULL, run, f), 0);
	return f;
}

static void fake_end(struct fake *f, struct leases *leases)
{
	atomic_store(&f->stop, true);
	pthread_join(f->thread, NULL);
	leases_process_gone(leases, f->member, SLOT);
	leases_leave(leases, f->member);
	free(f->ledger.header);
	free(f);
}

static struct leases *start(enum compute_mode mode)
{
	const struct lease_setting setting = {mode, 20 * MS, 100000};
	struct leases *leases;

	assert_int_equal(leases_start(&leases), 0);
	leases_set(leases, 0, &setting);
	atomic_store(&most, 0);
	return leases;
}

/* Until it had so many more turns on the GPU; fails after a minute. */
static void wait_turns(struct fake *f, uint64_t more)
{
	uint64_t wanted = atomic_load(&f->turns) + more;

	for (int i = 0; i < 6000 && atomic_load(&f->turns) < wanted; i++)
		pause_ns(10 * MS);
	assert_true(atomic_load(&f->turns) >= wanted);
}

/* ---- tests ------------------------------------------------------------------------------- */

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

static struct lease_standing standing_of(struct leases *leases, const struct fake *f)
{
	struct lease_standing standing;

	leases_standing(leases, f->member, &standing);
	return standing;
}

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

/* Where the thread looks without sleeping it still looks at the clock each time, and lets others at
 * the lock: a pass, which is told one time, is over after one look. Without the thread. */
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
	struct fake *f = fake_start(leases, 500000, work);

	do /* the gate stands open until the turns' thread had a processor */
		wait_turns(f, 50);
	while (!standing_of(leases, f).stat.leases);
	json_t *left = leases_leave_member(leases, f->member);
	uint64_t held = standing_of(leases, f).stat.held_ns;
	fake_end(f, leases);
	leases_stop(leases);

	atomic_store(&still_since, now_monotonic_ns() - 1000 * MS);
	leases = start(COMPUTE_STRICT);
	leases_clock(leases, clock_lag, NULL);
	f = fake_new();
	fake_join(f, leases, 500000);
	leases_take_up_member(leases, f->member, left);
	assert_true(standing_of(leases, f).stat.leases > 0);
	assert_true(standing_of(leases, f).stat.held_ns <= held);
	assert_true(standing_of(leases, f).stat.held_ns > held / 2);
	atomic_store(&still_since, 0);
	json_decref(left);
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

/* Whoever waits at a gate may have to open it himself, from the first moment that it is closed. */
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
		cmocka_unit_test(work_that_waits_for_launches_at_the_gate_has_them_soon),
		cmocka_unit_test(kernels_as_long_as_known_do_not_reopen_the_gate),
		cmocka_unit_test(gaps_are_waited_for_as_far_as_they_are_worth_it),
		cmocka_unit_test(a_waiter_that_does_not_come_keeps_nobody_waiting),
		cmocka_unit_test(leases_go_by_the_gpus_clock),
	};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(alone_it_goes_idle_and_comes_back),
		cmocka_unit_test(a_gate_that_was_opened_without_a_daemon_is_closed_again),
		cmocka_unit_test(a_gate_that_is_opened_against_the_plan_is_shut_and_charged),
		cmocka_unit_test(a_wake_descriptor_that_blocks_holds_nobody_up),
		cmocka_unit_test(work_that_outlives_a_drain_is_charged),
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
