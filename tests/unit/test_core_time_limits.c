#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/time_limits.h"

static void applied(void **state)
{
	static const struct {
		struct time_limits limits;
		uint64_t asked;
		int rc;
		uint64_t gets;
	} cases[] = {
		{{0, 0}, 0, 0, 0},       {{0, 0}, 7, 0, 7}, {{5, 0}, 0, 0, 5},
		{{5, 0}, 9, 0, 9},       {{0, 8}, 0, 0, 8}, {{0, 8}, 8, 0, 8},
		{{0, 8}, 9, -ERANGE, 0}, {{5, 8}, 0, 0, 5}, {{5, 8}, 1, 0, 1},
		{{5, 8}, 9, -ERANGE, 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t gets = 0;

		assert_int_equal(time_limits_apply(&cases[i].limits, cases[i].asked, &gets),
				 cases[i].rc);
		assert_int_equal(gets, cases[i].gets);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(applied)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
