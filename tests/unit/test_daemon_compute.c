/* Time that a GPU promises: what a daemon says to a mode that would promise it twice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/units.h"
#include "daemon/gpu/pool.h"
#include "daemon/session/session.h"
#include "daemon/slicing/compute.h"

#define SESSIONS 40

static struct pool pool;
static struct session *first;
static struct session sessions[SESSIONS];
static int positions[SESSIONS][2];

/* A session on one GPU of the pool, or on both (gpu -1). */
static void session_on(int number, int gpu, uint32_t compute)
{
	struct session *s = &sessions[number];

	*s = (struct session){.next = first, .pool_gpu = positions[number]};
	snprintf(s->record.id, sizeof(s->record.id), "s-test%02u", (unsigned)number % 100);
	s->record.compute = compute;
	s->record.gpu_count = gpu < 0 ? 2 : 1;
	positions[number][0] = gpu < 0 ? 0 : gpu;
	positions[number][1] = 1;
	first = s;
	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		pool.gpu[positions[number][i]].share += compute;
}

static int fresh_pool(void **state)
{
	memset(&pool, 0, sizeof(pool));
	first = NULL;
	pool.count = 2;
	pool.gpu[0].info.index = 0;
	pool.gpu[1].info.index = 7;
	return 0;
}

static void all_of_the_time_may_be_promised(void **state)
{
	struct error err = {0};

	assert_int_equal(compute_switch_check(&pool, first, POOL_ALL, &err), 0);
	session_on(0, 0, SHARE_ONE / 2);
	session_on(1, -1, SHARE_ONE / 2);
	session_on(2, 1, 0);
	assert_int_equal(compute_switch_check(&pool, first, POOL_ALL, &err), 0);
}

static void more_is_refused_and_says_whose_it_is(void **state)
{
	struct error err = {0};

	session_on(0, 1, SHARE_ONE * 6 / 10);
	session_on(1, -1, SHARE_ONE / 2);
	session_on(2, 1, 0); /* sized by memory: no part of it */
	session_on(3, 0, SHARE_ONE / 4);
	assert_int_equal(compute_switch_check(&pool, first, 1, &err),
			 0); /* not the GPU in question */
	assert_true(compute_switch_check(&pool, first, POOL_ALL, &err) < 0);
	assert_int_equal(err.code, EXIT_CODE_FAILED);
	assert_string_equal(err.message,
			    "GPU 7: its sessions ask for 110% of its time: s-test01 (50%), "
			    "s-test00 (60%)");
	assert_true(err.hint[0] != '\0');
}

static void some_of_many_sessions_are_named(void **state)
{
	struct error err = {0};

	for (int i = 0; i < SESSIONS; i++)
		session_on(i, 0, SHARE_ONE);
	assert_true(compute_switch_check(&pool, first, 1, &err) < 0);
	assert_non_null(strstr(err.message, "4000% of its time"));
	assert_non_null(strstr(err.message, " more"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(all_of_the_time_may_be_promised, fresh_pool),
		cmocka_unit_test_setup(more_is_refused_and_says_whose_it_is, fresh_pool),
		cmocka_unit_test_setup(some_of_many_sessions_are_named, fresh_pool),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
