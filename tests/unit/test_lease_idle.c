/* How long a quiet holder is waited for: what is learned of gaps and bursts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/macros.h"
#include "daemon/lease/lease_idle.h"

#define US 1000ull
#define MS 1000000ull

struct program {
	struct lease_idle idle;
	uint64_t now;
};

static struct program program_new(void)
{
	return (struct program){.now = 3600000 * MS};
}

/* It works for so long, and is quiet. */
static void burst(struct program *p, uint64_t work, uint64_t gap)
{
	lease_idle_works(&p->idle, p->now);
	p->now += work;
	lease_idle_rests(&p->idle, p->now);
	p->now += gap;
	lease_idle_gap(&p->idle, gap);
}

static void bursts(struct program *p, unsigned count, uint64_t work, uint64_t gap)
{
	for (unsigned i = 0; i < count; i++)
		burst(p, work, gap);
}

static uint64_t waits(const struct program *p)
{
	return lease_idle_ns(&p->idle);
}

static void an_unknown_session_is_waited_for_briefly(void **state)
{
	struct program p = program_new();

	assert_int_equal(waits(&p), LEASE_IDLE_NS_MIN);
	assert_false(lease_idle_is_brief(&p.idle));
	burst(&p, MS, 100 * MS);
	assert_in_range(waits(&p), LEASE_IDLE_NS_MIN, 2 * LEASE_IDLE_NS_MIN);
}

/* The next such gap is not taken for the end. */
static void a_gap_inside_a_burst_is_learned_at_once(void **state)
{
	for (uint64_t gap = 100 * US; gap <= 2 * MS; gap += 100 * US) {
		struct program p = program_new();

		burst(&p, 3 * MS, gap);
		burst(&p, 3 * MS, gap);
		burst(&p, 20 * MS, gap);
		assert_in_range(waits(&p), gap + gap / 8, MAX(3 * gap, 2 * LEASE_IDLE_NS_MIN));
	}
}

static void gaps_inside_bursts_are_waited_for_in_spite_of_those_between(void **state)
{
	struct program p = program_new();

	for (unsigned i = 0; i < 50; i++) {
		bursts(&p, 9, 3 * MS, MS);
		assert_in_range(waits(&p), MS, 3 * MS);
		burst(&p, 3 * MS, 100 * MS);
		assert_in_range(waits(&p), MS, 3 * MS);
	}
}

/* As they do where a processor is not had at once: hardly any of them is the end. */
static void gaps_that_vary_are_covered(void **state)
{
	struct program p = program_new();
	unsigned ends = 0;

	for (unsigned i = 0; i < 1000; i++) {
		uint64_t gap = i % 17 ? 700 * US : 1200 * US;

		ends += i > 20 && gap > waits(&p);
		burst(&p, MS, i % 10 ? gap : 90 * MS);
	}
	assert_in_range(ends, 0, 10);
}

static void work_as_long_as_its_gaps_keeps_the_gpu(void **state)
{
	struct program p = program_new();

	bursts(&p, 20, 3 * MS, 2500 * US);
	assert_in_range(waits(&p), 2500 * US, 4 * MS);
}

/* 1 ms of each 10, and it waits at the gate for some of the rest: gaps look shorter than the period
 * says, and are still between bursts. */
static void short_bursts_far_apart_are_not_waited_for(void **state)
{
	struct program p = program_new();
	unsigned seed = 1;

	for (unsigned i = 0; i < 200; i++) {
		seed = seed * 1103515245 + 12345;
		burst(&p, MS, 500 * US + seed / 65536 % 8500 * US);
		assert_in_range(waits(&p), 0, i < 20 ? MS : LEASE_IDLE_NS_MIN);
	}
	/* As often as not about as long as the turn of another one leaves. */
	bursts(&p, 100, MS, 2200 * US);
	assert_in_range(waits(&p), 0, LEASE_IDLE_NS_MIN);
}

static void one_that_is_only_quiet_between_bursts_is_brief(void **state)
{
	struct program p = program_new();

	bursts(&p, 40, MS, 9 * MS);
	assert_int_equal(waits(&p), LEASE_IDLE_NS_BRIEF);
	assert_true(lease_idle_is_brief(&p.idle));
	/* It has gaps inside them now. */
	bursts(&p, 10, MS / 2, 60 * US);
	assert_in_range(waits(&p), LEASE_IDLE_NS_MIN, 2 * LEASE_IDLE_NS_MIN);
	bursts(&p, 40, 3 * MS, MS);
	assert_in_range(waits(&p), MS, 3 * MS);
}

static void the_end_of_a_short_burst_is_known(void **state)
{
	struct program p = program_new();

	assert_int_equal(lease_idle_end(&p.idle, p.now), 0);
	bursts(&p, 100, MS, 9 * MS);
	assert_int_equal(lease_idle_end(&p.idle, p.now), 0);
	lease_idle_works(&p.idle, p.now);
	uint64_t end = lease_idle_end(&p.idle, p.now);
	assert_in_range(end, p.now + MS / 2, p.now + MS);
	assert_int_equal(lease_idle_end(&p.idle, p.now + MS), end);
	assert_int_equal(lease_idle_end(&p.idle, p.now + 2 * MS), 0);
	/* Some of it was done before. */
	p.now += 800 * US;
	lease_idle_rests(&p.idle, p.now);
	lease_idle_works(&p.idle, p.now);
	assert_in_range(lease_idle_end(&p.idle, p.now), p.now, p.now + 200 * US);
}

/* In strict mode it is a plan until the next turn, and nobody else's time. */
static void gaps_are_waited_for_where_leases_are_dear(void **state)
{
	struct program p = program_new();

	p.idle.dear = true;
	bursts(&p, 20, MS, 3 * MS);
	assert_in_range(waits(&p), 3 * MS, 4 * MS);
	bursts(&p, 100, MS, 9 * MS);
	assert_in_range(waits(&p), LEASE_IDLE_NS_MIN, 2 * LEASE_IDLE_NS_MIN);
	assert_false(lease_idle_is_brief(&p.idle));
	/* The mode changes. */
	p.idle.dear = false;
	assert_int_equal(waits(&p), LEASE_IDLE_NS_BRIEF);
}

static void gaps_of_long_ago_are_forgotten(void **state)
{
	struct program p = program_new();

	bursts(&p, 1000, 3 * MS, 2 * MS);
	bursts(&p, 64, MS, 50 * MS);
	assert_in_range(waits(&p), 0, LEASE_IDLE_NS_MIN);
	bursts(&p, 1000, MS, 50 * MS);
	bursts(&p, 64, 3 * MS, 2 * MS);
	assert_in_range(waits(&p), 2 * MS, 4 * MS);
}

/* It holds whatever a page says. */
static void nothing_is_waited_for_beyond_the_most(void **state)
{
	struct program p = program_new();
	static const uint64_t odd[] = {0,        1,          159999,     160000,    160001,
				       3199999,  3200001,    4 * MS - 1, 4 * MS,    4 * MS + 1,
				       1u << 31, 1ull << 40, 1ull << 63, UINT64_MAX};

	for (unsigned i = 0; i < 10 * ARRAY_SIZE(odd); i++) {
		burst(&p, odd[(i * 5 + i / 14) % ARRAY_SIZE(odd)], odd[i % ARRAY_SIZE(odd)]);
		assert_in_range(waits(&p), LEASE_IDLE_NS_BRIEF, LEASE_IDLE_NS_MAX);
	}
	/* Times that go back, and what is said again. */
	lease_idle_works(&p.idle, 5 * MS);
	lease_idle_works(&p.idle, 6 * MS);
	lease_idle_rests(&p.idle, MS);
	lease_idle_rests(&p.idle, MS);
	lease_idle_gap(&p.idle, MS);
	assert_in_range(waits(&p), LEASE_IDLE_NS_BRIEF, LEASE_IDLE_NS_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_unknown_session_is_waited_for_briefly),
		cmocka_unit_test(a_gap_inside_a_burst_is_learned_at_once),
		cmocka_unit_test(gaps_inside_bursts_are_waited_for_in_spite_of_those_between),
		cmocka_unit_test(gaps_that_vary_are_covered),
		cmocka_unit_test(work_as_long_as_its_gaps_keeps_the_gpu),
		cmocka_unit_test(short_bursts_far_apart_are_not_waited_for),
		cmocka_unit_test(one_that_is_only_quiet_between_bursts_is_brief),
		cmocka_unit_test(the_end_of_a_short_burst_is_known),
		cmocka_unit_test(gaps_are_waited_for_where_leases_are_dear),
		cmocka_unit_test(gaps_of_long_ago_are_forgotten),
		cmocka_unit_test(nothing_is_waited_for_beyond_the_most),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
