#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/macros.h"
#include "front/cuda/visible.h"
#include "front/environment.h"

#define A "GPU-aaaa1111-0000-0000-0000-000000000001"
#define B "GPU-aaaa2222-0000-0000-0000-000000000002"
#define C "MIG-cccc0000-0000-0000-0000-000000000003"

static void list_follows_the_slice_and_the_user(void **state)
{
	static const struct {
		const char *user, *list;
	} cases[] = {
		{NULL, A "," B "," C},
		{"", ""},
		{"0", A},
		{"2,0", C "," A},
		{" 1 , 0 ", B "," A},
		{"0,7,1", A},
		{"-1", ""},
		{"1,-1,0", B},
		{"x", ""},
		{"0x1", A},
		{"1gpu2,2ampere", B "," C},
		{"+1,0", B "," A},
		{"1 x,0", B "," A},
		{"-0,1", A "," B},
		{"+,0", ""},
		{"--1", ""},
		{"1,,0", B},
		{"GPU-aaaa2", B},
		{"gpu-AAAA2222", B},
		{"GPU-aaaa", ""},
		{"GPU-", ""},
		{"MIG-c,GPU-aaaa1", C "," A},
		{B "," A, B "," A},
		{A "0", ""},
		{"99999999999999999999", ""},
	};
	struct ledger_limits *limits = calloc(1, sizeof(*limits));
	char list[VISIBLE_SIZE];

	assert_non_null(limits);
	limits->gpu_count = 3;
	strcpy(limits->gpu[0].uuid_text, A);
	strcpy(limits->gpu[1].uuid_text, B);
	strcpy(limits->gpu[2].uuid_text, C);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		visible_list(limits, cases[i].user, list);
		assert_string_equal(list, cases[i].list);
	}
	free(limits);
}

static void all_gpus_fit(void **state)
{
	struct ledger_limits *limits = calloc(1, sizeof(*limits));
	char list[VISIBLE_SIZE];

	assert_non_null(limits);
	limits->gpu_count = LEDGER_GPUS_MAX;
	for (uint32_t i = 0; i < LEDGER_GPUS_MAX; i++)
		memset(limits->gpu[i].uuid_text, 'x', sizeof(limits->gpu[i].uuid_text) - 1);
	visible_list(limits, NULL, list);
	assert_int_equal(strlen(list), LEDGER_GPUS_MAX * 48 - 1);
	free(limits);
}

static char entry[] = "FRONT_TEST=during";

static void swap_is_undone(void **state)
{
	struct environment_swap swap = {0};
	char **before;

	setenv("FRONT_TEST", "before", 1);
	before = environ;
	assert_int_equal(environment_swap_begin(&swap, entry), 0);
	assert_int_equal(environment_swap_begin(&swap, entry), 0);
	assert_string_equal(getenv("FRONT_TEST"), "during");
	assert_string_equal(getenv("PATH"), environment_get("PATH"));
	environment_swap_end(&swap);
	assert_string_equal(environment_get("FRONT_TEST"), "during");
	environment_swap_end(&swap);
	assert_ptr_equal(environ, before);
	assert_string_equal(getenv("FRONT_TEST"), "before");
}

/* The driver sets a variable of its own meanwhile: it stays, ours goes. */
static void swap_is_undone_in_a_changed_environment(void **state)
{
	struct environment_swap swap = {0};

	setenv("FRONT_TEST", "before", 1);
	assert_int_equal(environment_swap_begin(&swap, entry), 0);
	setenv("FRONT_TEST_DRIVER", "kept", 1);
	environment_swap_end(&swap);
	assert_string_equal(getenv("FRONT_TEST"), "before");
	assert_string_equal(getenv("FRONT_TEST_DRIVER"), "kept");

	/* The same where it only replaces one that is there. */
	assert_int_equal(environment_swap_begin(&swap, entry), 0);
	setenv("FRONT_TEST_DRIVER", "replaced", 1);
	environment_swap_end(&swap);
	assert_string_equal(getenv("FRONT_TEST"), "before");
	assert_string_equal(getenv("FRONT_TEST_DRIVER"), "replaced");

	unsetenv("FRONT_TEST");
	unsetenv("FRONT_TEST_DRIVER");
	assert_int_equal(environment_swap_begin(&swap, entry), 0);
	assert_string_equal(getenv("FRONT_TEST"), "during");
	setenv("FRONT_TEST_DRIVER", "kept", 1);
	environment_swap_end(&swap);
	assert_null(getenv("FRONT_TEST"));
	assert_null(environment_get("FRONT_TEST_DRIVE"));
	assert_string_equal(getenv("FRONT_TEST_DRIVER"), "kept");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(list_follows_the_slice_and_the_user),
		cmocka_unit_test(all_gpus_fit),
		cmocka_unit_test(swap_is_undone),
		cmocka_unit_test(swap_is_undone_in_a_changed_environment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
