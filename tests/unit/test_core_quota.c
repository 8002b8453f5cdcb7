#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/macros.h"
#include "core/quota.h"

static void limits(void **state)
{
	struct quota quota = {{GIB(16), 4, 2, 1000}};
	struct quota_use use = {.vram_bytes = GIB(16), .sessions = 4, .gpu_mask = 0x5};

	assert_int_equal(quota_check(&quota, use), QUOTA_WITHIN);
	use.vram_bytes++;
	assert_int_equal(quota_check(&quota, use), QUOTA_VRAM);
	use.vram_bytes--;
	use.sessions++;
	assert_int_equal(quota_check(&quota, use), QUOTA_SESSIONS);
	use.sessions--;
	use.gpu_mask |= 1ull << 63;
	assert_int_equal(quota_check(&quota, use), QUOTA_GPUS);
	/* Hours are used up when none is left, and are told first. */
	use.gpu_ms = 999;
	assert_int_equal(quota_check(&quota, use), QUOTA_GPUS);
	use.gpu_ms = 1000;
	assert_int_equal(quota_check(&quota, use), QUOTA_HOURS);
	quota = quota_none;
	assert_int_equal(quota_check(&quota, use), QUOTA_WITHIN);
	quota.most[QUOTA_VRAM] = 0;
	assert_int_equal(quota_check(&quota, use), QUOTA_VRAM);
}

static void sums(void **state)
{
	struct quota_use a = {.vram_bytes = GIB(3), .sessions = 1, .gpu_mask = 0x3};
	struct quota_use b = {.vram_bytes = GIB(4), .sessions = 1, .gpu_mask = 0x6};
	struct quota_use sum = quota_add(a, b);

	assert_int_equal(sum.vram_bytes, GIB(7));
	assert_int_equal(sum.sessions, 2);
	assert_int_equal(quota_gpus(sum), 3); /* one of them shared */
	a.vram_bytes = UINT64_MAX - 5;
	assert_true(quota_add(a, b).vram_bytes == UINT64_MAX); /* and not 2 GiB */
}

static void the_most_specific_limit_holds(void **state)
{
	const struct quota user = {{QUOTA_NONE, QUOTA_UNLIMITED, QUOTA_NONE, QUOTA_NONE}};
	const struct quota small = {{1, 1, 1, QUOTA_NONE}},
			   large = {{QUOTA_NONE, 9, 2, QUOTA_NONE}};
	const struct quota everyone = {{5, 5, 5, 5}}, defaults = {{7, 7, 7, 7}};
	struct quota_bounds b;

	quota_bounds_begin(&b);
	assert_int_equal(b.from[QUOTA_VRAM].kind, QUOTA_OF_NOBODY);
	assert_int_equal(quota_check(&b.most, (struct quota_use){.sessions = 1000}), QUOTA_WITHIN);
	quota_bounds_add(&b, &defaults, QUOTA_OF_DEFAULTS, 0);
	assert_int_equal(b.most.most[QUOTA_HOURS], 7);
	quota_bounds_add(&b, &large, QUOTA_OF_EACH, 20);
	quota_bounds_add(&b, &user, QUOTA_OF_USER, 3);
	quota_bounds_add(&b, &everyone, QUOTA_OF_EVERYONE, 0);
	quota_bounds_add(&b, &small, QUOTA_OF_EACH, 10);
	assert_int_equal(b.most.most[QUOTA_VRAM], 1);
	assert_int_equal(b.from[QUOTA_VRAM].id, 10);
	assert_true(b.most.most[QUOTA_SESSIONS] == QUOTA_UNLIMITED);
	assert_int_equal(b.from[QUOTA_SESSIONS].kind, QUOTA_OF_USER);
	/* Of two groups the larger limit holds. */
	assert_int_equal(b.most.most[QUOTA_GPUS], 2);
	assert_int_equal(b.from[QUOTA_GPUS].id, 20);
	assert_int_equal(b.most.most[QUOTA_HOURS], 5);
	assert_int_equal(b.from[QUOTA_HOURS].kind, QUOTA_OF_EVERYONE);
}

static void limits_are_read_as_people_write_them(void **state)
{
	static const char *const zeros[] = {"0", "0GiB", "0.0", "0MB"}, *const wrong[] = {"", "0x",
											  "-1",
											  "1h2"};
	struct error err = {0};
	uint64_t value = 1;

	for (size_t i = 0; i < ARRAY_SIZE(zeros); i++) {
		value = 1;
		assert_int_equal(quota_parse_vram(zeros[i], "--vram", &value, &err), 0);
		assert_int_equal(value, 0);
	}
	assert_int_equal(quota_parse_vram("16", "--vram", &value, &err), 0);
	assert_int_equal(value, GIB(16));
	assert_true(quota_parse_vram("1MiB", "--vram", &value, &err) < 0);
	assert_int_equal(quota_parse_hours("2.5", "--gpu-hours", &value, &err), 0);
	assert_int_equal(value, 9000000);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_true(quota_parse_hours(wrong[i], "--gpu-hours", &value, &err) < 0);
	assert_true(quota_parse_hours("1e3", "--gpu-hours", &value, &err) < 0);
	assert_true(quota_parse_hours("100000001", "--gpu-hours", &value, &err) < 0);
}

static void hours_have_no_exponent(void **state)
{
	static const struct {
		uint64_t ms;
		const char *text;
	} cases[] = {{0, "0"},
		     {4, "0.0000011"},
		     {1800, "0.0005"},
		     {3600000, "1"},
		     {9000000, "2.5"},
		     {360000000, "100"},
		     {QUOTA_HOURS_MAX * 3600000ull, "100000000"}};
	char buf[UNITS_TEXT_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_string_equal(quota_format_hours(cases[i].ms, buf), cases[i].text);
	/* A small limit is no limit of 0, which bars. */
	assert_int_equal(quota_limit_ms(0), 0);
	assert_int_equal(quota_limit_ms(0.000001), 360);
	assert_int_equal(quota_limit_ms(0.0005), 1800);
	assert_int_equal(quota_limit_ms(33.33333), 119999880);
	assert_int_equal(quota_limit_ms(QUOTA_HOURS_MAX), QUOTA_HOURS_MAX * 3600000ull);
	assert_true(quota_used_hours(359) == 0);
	assert_true(quota_used_hours(1800) == 0.0005);
	assert_true(quota_used_hours(1799) == 0.0004);
	assert_true(quota_used_hours(9000000) == 2.5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hours_have_no_exponent),
		cmocka_unit_test(limits),
		cmocka_unit_test(sums),
		cmocka_unit_test(the_most_specific_limit_holds),
		cmocka_unit_test(limits_are_read_as_people_write_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
