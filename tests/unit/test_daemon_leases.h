/* Sessions of the lease thread whose processes are threads of this one: what tools for races can
 * see. */
#pragma once

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

/* A daemon's start; each one is later than the one before. */
static int64_t counted_from = 1000;

static void fake_join(struct fake *f, struct leases *leases, uint32_t fraction)
{
	const struct lease_joining joining = {.id = "s-fake",
					      .owner = (uintptr_t)f,
					      .ledger = &f->ledger,
					      .limits = &f->limits,
					      .gpus = 1,
					      .fraction = fraction,
					      .wake_fd = -1,
					      .counted_from = counted_from};

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

static struct lease_standing standing_of(struct leases *leases, const struct fake *f)
{
	struct lease_standing standing;

	leases_standing(leases, f->member, &standing);
	return standing;
}
