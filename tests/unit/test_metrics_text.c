/* The text that Prometheus reads: numbers, and labels with whatever users name their things. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/metrics/health.h"
#include "daemon/metrics/metrics_config.h"
#include "daemon/metrics/text.h"

static void assert_sample(enum metrics_unit unit, uint64_t number, const char *wanted)
{
	const struct metrics_family family = {"m", "Help.", unit, false};
	struct metrics_text text = {0};

	metrics_sample(&text, &family, NULL, 0, number);
	assert_string_equal(text.data ? text.data : "", wanted);
	metrics_text_free(&text);
}

static void test_numbers_are_exact_in_their_unit(void **state)
{
	assert_sample(METRICS_PLAIN, 0, "m 0\n");
	assert_sample(METRICS_PLAIN, UINT64_MAX - 1, "m 18446744073709551614\n");
	assert_sample(METRICS_SECONDS, 1, "m 0.000000001\n");
	assert_sample(METRICS_SECONDS, 61000000000ull, "m 61.000000000\n");
	assert_sample(METRICS_RATIO, 250000, "m 0.250000\n");
	assert_sample(METRICS_RATIO, 1000000, "m 1.000000\n");
}

static void test_a_number_that_nobody_knows_has_no_sample(void **state)
{
	assert_sample(METRICS_PLAIN, METRICS_NONE, "");
}

static void assert_label(const char *value, const char *wanted)
{
	struct metrics_text text = {0};

	metrics_label(&text, 0, "n", value);
	assert_string_equal(text.data ? text.data : "", wanted);
	metrics_text_free(&text);
}

static void test_label_values_are_escaped(void **state)
{
	assert_label("plain", "n=\"plain\"");
	assert_label("a\"b\\c\nd", "n=\"a\\\"b\\\\c\\nd\"");
	assert_label("", "");
	assert_label("é€𝄞", "n=\"é€𝄞\"");
}

#define REPLACED "\xef\xbf\xbd"

static void test_bytes_that_are_not_utf8_are_replaced(void **state)
{
	assert_label("\xff", "n=\"" REPLACED "\"");
	assert_label("a\xc3", "n=\"a" REPLACED "\"");
	assert_label("\xc0\xaf", "n=\"" REPLACED REPLACED "\"");              /* overlong */
	assert_label("\xed\xa0\x80", "n=\"" REPLACED REPLACED REPLACED "\""); /* a surrogate */
	assert_label("\xf4\x90\x80\x80",
		     "n=\"" REPLACED REPLACED REPLACED REPLACED "\""); /* above U+10FFFF */
}

static void test_labels_of_a_sample_are_separated(void **state)
{
	struct metrics_text text = {0};

	metrics_text_add(&text, "x", 1);
	metrics_label(&text, 1, "a", "1");
	metrics_label(&text, 1, "b", "");
	metrics_label(&text, 1, "c", "3");
	assert_string_equal(text.data, "xa=\"1\",c=\"3\"");
	metrics_text_free(&text);
}

static void test_the_longest_pass_of_the_loop_is_kept_for_a_minute(void **state)
{
	struct metrics_health health = {0};
	uint64_t minute = 60000000000ull;

	metrics_pass_begin(&health, minute);
	metrics_pass_end(&health, minute + 5);
	metrics_pass_end(&health, minute + 1000); /* nothing had begun */
	assert_int_equal(health.longest_ns, 5);
	assert_int_equal(health.busy_ns, 5);
	metrics_pass_begin(&health, 2 * minute);
	metrics_pass_end(&health, 2 * minute + 2);
	assert_int_equal(health.longest_ns, 2);
	assert_int_equal(health.longest_before_ns, 5);
	metrics_pass_begin(&health, 9 * minute);
	metrics_pass_end(&health, 9 * minute + 1);
	assert_int_equal(health.longest_before_ns, 0);
}

static void test_only_addresses_of_this_machine_are_loopback(void **state)
{
	static const struct {
		const char *listen;
		bool loopback;
	} cases[] = {{"127.0.0.1:9400", true},  {"127.255.0.9:1", true},
		     {"[::1]:9400", true},      {"[::ffff:127.0.0.1]:9400", true},
		     {"0.0.0.0:9400", false},   {"[::]:9400", false},
		     {"128.0.0.1:9400", false}, {"[::ffff:10.0.0.1]:9400", false}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sockaddr_storage address;
		socklen_t size;

		assert_int_equal(door_address(cases[i].listen, &address, &size), 0);
		assert_int_equal(door_address_is_loopback(&address), cases[i].loopback);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers_are_exact_in_their_unit),
		cmocka_unit_test(test_a_number_that_nobody_knows_has_no_sample),
		cmocka_unit_test(test_label_values_are_escaped),
		cmocka_unit_test(test_bytes_that_are_not_utf8_are_replaced),
		cmocka_unit_test(test_labels_of_a_sample_are_separated),
		cmocka_unit_test(test_the_longest_pass_of_the_loop_is_kept_for_a_minute),
		cmocka_unit_test(test_only_addresses_of_this_machine_are_loopback),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
