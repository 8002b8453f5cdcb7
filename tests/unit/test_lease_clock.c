/* The clock of leases where a GPU's own clock stands still, falls behind and catches up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/lease/lease_clock.h"

#define MS 1000000ull
#define START (3600000 * MS)

/* A GPU, looked at each millisecond. */
struct gpu {
	struct lease_clock clock;
	uint64_t monotonic, lag;
};

/* So many milliseconds pass, of which the GPU goes on for `permille`. Returns by how much the time
 * went on. */
static uint64_t pass(struct gpu *g, unsigned ms, unsigned permille)
{
	uint64_t before = lease_clock_look(&g->clock, g->monotonic, g->lag), last = before;

	for (unsigned i = 0; i < ms; i++) {
		g->monotonic += MS;
		g->lag += MS - MS / 1000 * permille;
		uint64_t now = lease_clock_look(&g->clock, g->monotonic, g->lag);

		assert_true(now >= last);
		last = now;
	}
	return last - before;
}

static struct gpu gpu_start(uint64_t lag)
{
	struct gpu g = {.monotonic = START, .lag = lag};

	assert_int_equal(lease_clock_look(&g.clock, g.monotonic, g.lag), START - lag);
	return g;
}

static void without_lag_it_is_the_machines(void **state)
{
	struct gpu g = gpu_start(0);

	assert_int_equal(pass(&g, 1000, 1000), 1000 * MS);
	assert_int_equal(g.clock.now, START + 1000 * MS);
}

static void it_goes_as_the_gpu_goes(void **state)
{
	struct gpu g = gpu_start(5000 * MS);

	assert_int_equal(pass(&g, 1000, 1000), 1000 * MS);
	assert_int_equal(pass(&g, 10000, 500), 5000 * MS);
	assert_int_equal(pass(&g, 10000, 250), 2500 * MS);
	assert_int_equal(pass(&g, 100, 0), 0);
	assert_int_equal(pass(&g, 1000, 1000), 1000 * MS);
}

/* The holder of the GPU may be stopped: nobody waits for that any longer than this; and then it
 * counts no less. */
static void standing_still_is_borne_for_a_while(void **state)
{
	struct gpu g = gpu_start(0);

	assert_int_equal(pass(&g, 10000, 0), 10000 * MS - LEASE_CLOCK_STILL_NS);
	assert_int_equal(pass(&g, 1000, 1000), 1000 * MS);
	assert_int_equal(pass(&g, 10000, 0), 10000 * MS - LEASE_CLOCK_STILL_NS);
}

/* It stands still again and again and hardly goes on in between. */
static void hardly_going_on_is_no_going_on(void **state)
{
	struct gpu g = gpu_start(0);
	uint64_t went = 0;

	for (unsigned i = 0; i < 100; i++)
		went += pass(&g, 199, 0) + pass(&g, 1, 1000);
	assert_true(went > 15000 * MS);
}

static void time_that_a_clock_catches_up_counts(void **state)
{
	struct gpu g = gpu_start(0);

	assert_int_equal(pass(&g, 40, 0), 0);
	g.monotonic += MS;
	g.lag = 0;
	assert_int_equal(lease_clock_look(&g.clock, g.monotonic, g.lag), START + 41 * MS);
}

/* The thread that should have looked did not run: nobody's turn took that time. */
static void a_pause_does_not_count(void **state)
{
	struct gpu g = gpu_start(0);

	g.clock.due = g.monotonic + 5 * MS;
	g.monotonic += 3000 * MS;
	assert_int_equal(lease_clock_look(&g.clock, g.monotonic, 0), START + 5 * MS);
	/* The next one to look, before what is due is known anew. */
	assert_int_equal(pass(&g, 100, 1000), 100 * MS);
	/* Late, as on a busy machine. */
	g.clock.due = g.monotonic + 5 * MS;
	g.monotonic += 400 * MS;
	assert_int_equal(lease_clock_look(&g.clock, g.monotonic, 0), START + 505 * MS);
	/* Nothing was due. */
	g.clock.due = 0;
	g.monotonic += 3000 * MS;
	assert_int_equal(lease_clock_look(&g.clock, g.monotonic, 0), START + 3505 * MS);
	/* A GPU that stood still as well. */
	g.clock.due = g.monotonic + 5 * MS;
	g.monotonic += 3000 * MS;
	g.lag = 3000 * MS;
	assert_int_equal(lease_clock_look(&g.clock, g.monotonic, g.lag), START + 3505 * MS);
}

/* Clocks that are nonsense do no harm. */
static void it_never_goes_back(void **state)
{
	struct gpu g = gpu_start(0);
	uint64_t last = g.clock.now;

	for (unsigned i = 0; i < 1000; i++) {
		g.monotonic += i % 7 * MS;
		uint64_t now =
			lease_clock_look(&g.clock, g.monotonic - i % 3, i * 7919 % 1000 * MS);

		assert_true(now >= last);
		last = now;
	}
	assert_true(last <= g.monotonic + 1000 * 1000 * MS);
	struct lease_clock raised = {0};
	(void)lease_clock_look(&raised, START, 0);
	lease_clock_raise(&raised, START + MS);
	lease_clock_raise(&raised, START);
	assert_int_equal(lease_clock_look(&raised, START + MS, 0), START + 2 * MS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_lag_it_is_the_machines),
		cmocka_unit_test(it_goes_as_the_gpu_goes),
		cmocka_unit_test(standing_still_is_borne_for_a_while),
		cmocka_unit_test(hardly_going_on_is_no_going_on),
		cmocka_unit_test(time_that_a_clock_catches_up_counts),
		cmocka_unit_test(a_pause_does_not_count),
		cmocka_unit_test(it_never_goes_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
