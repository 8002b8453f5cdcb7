/* Lines of the log: what arguments bring along stays inside their values. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/host/log_line.h"

__attribute__((format(printf, 3, 4))) static size_t make(char *line, size_t size,
							 const char *format, ...)
{
	va_list args;

	va_start(args, format);
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): clang 14 does not follow va_start */
	size_t length = log_line(line, size, format, args);
	va_end(args);
	return length;
}

#define IS(wanted, ...)                                                   \
	do {                                                              \
		char line_[LOG_LINE_MAX];                                 \
		size_t length_ = make(line_, sizeof(line_), __VA_ARGS__); \
		assert_string_equal(line_, wanted);                       \
		assert_int_equal(length_, strlen(wanted));                \
	} while (0)

static void test_plain_values_are_as_the_format_has_them(void **state)
{
	(void)state;
	IS("limit.available", "limit.available");
	IS("job.done id=7 code=-1 reason=\"it ended\" bytes=18446744073709551615",
	   "job.%s id=%" PRId64 " code=%d reason=\"%s\" bytes=%" PRIu64, "done", (int64_t)7, -1,
	   "it ended", UINT64_MAX);
	IS("x a= b=\"\"", "x a=%s b=\"%s\"", "", "");
	IS("x dir=/run/containers share=0.05", "x dir=%s/containers share=%g", "/run", 0.05);
}

static void test_quotes_in_a_quoted_value_are_escaped(void **state)
{
	(void)state;
	IS("x error=\"no \\\"a\\\\b\\\" here\" rc=1", "x error=\"%s\" rc=%d", "no \"a\\b\" here",
	   1);
	IS("x error=\"a\\nb\\tc\\u0001\\u007f\" rc=1", "x error=\"%s%s\" rc=%d", "a\nb\t",
	   "c\1\x7f", 1);
}

static void test_a_value_that_needs_quotes_gets_them(void **state)
{
	(void)state;
	IS("x dir=\"/a b\" id=1", "x dir=%s id=%d", "/a b", 1);
	IS("x dir=\"a=b\" id=1", "x dir=%s id=%d", "a=b", 1);
	IS("x dir=\"/a b/c\"", "x dir=%s/c", "/a b");
	IS("x dir=\"a\\nb\"", "x dir=%s", "a\nb");
}

static void test_no_argument_adds_a_key(void **state)
{
	(void)state;
	IS("x id=\"1 uid=0\" error=\"\\\" uid=0 a=\\\"\" n=2", "x id=%s error=\"%s\" n=%d",
	   "1 uid=0", "\" uid=0 a=\"", 2);
	IS("job.a?b id=1", "job.%s id=%d", "a\nb", 1);
}

static void test_what_is_cut_still_ends_its_quote(void **state)
{
	char text[2 * LOG_LINE_MAX], line[LOG_LINE_MAX];

	(void)state;
	memset(text, '"', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	for (size_t size = 2; size <= sizeof(line); size++) {
		size_t length = make(line, size, "x error=\"%s\" id=%d", text, 1);
		const char *value = strchr(line, '"');
		size_t escapes = 0;

		assert_int_equal(length, strlen(line));
		assert_in_range(length, 0, size - 1);
		if (!value)
			continue;
		assert_true(length >= 10 && line[length - 1] == '"');
		for (const char *at = value + 1; at < line + length - 1; at += 2, escapes++)
			assert_memory_equal(at, "\\\"", 2);
		assert_int_equal(2 * escapes, length - 10);
	}
	for (size_t size = 2; size <= sizeof(line); size++)
		assert_in_range(make(line, size, "x id=%s error=\"%s\"", text, "a"), 0, size - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain_values_are_as_the_format_has_them),
		cmocka_unit_test(test_quotes_in_a_quoted_value_are_escaped),
		cmocka_unit_test(test_a_value_that_needs_quotes_gets_them),
		cmocka_unit_test(test_no_argument_adds_a_key),
		cmocka_unit_test(test_what_is_cut_still_ends_its_quote),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
