#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"

struct spelling {
	const char *text;
	uint64_t bytes;
};

static void vram_spellings(void **state)
{
	static const struct spelling good[] = {
		{"4", 4294967296},
		{"2.5", 2684354560},
		{"2.5GiB", 2684354560},
		{"2560MiB", 2684354560},
		{"2684.35456MB", 2684354560},
		{"2684354560B", 2684354560},
		{"100MB", 100000000},
		{"0.1GB", 100000000},
		{".5", 536870912},
		{"1TB", 1000000000000},
		{"1TiB", 1099511627776},
		{"1048576KiB", 1073741824},
		{"4000000KB", 4000000000},
		{"80", 85899345920},
		{"0.3", 322122547},
		{"00004", 4294967296},
		{"4.000", 4294967296},
		{"4.00000000000000000000000000000000000", 4294967296},
		{"100000000.000B", 100000000},
		{"128TiB", 140737488355328},
	};

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		uint64_t bytes = 0;
		struct error err = {0};

		if (units_parse_vram(good[i].text, &bytes, &err) < 0)
			fail_msg("%s refused: %s", good[i].text, err.message);
		if (bytes != good[i].bytes)
			fail_msg("%s is %llu bytes", good[i].text, (unsigned long long)bytes);
	}
}

static void vram_malformed(void **state)
{
	static const char *const bad[] = {
		"",
		" ",
		"0",
		"-1",
		"-0",
		"+4",
		"nan",
		"NaN",
		"inf",
		"-inf",
		"infinity",
		"4x",
		"4 GiB",
		" 4",
		"4 ",
		"1e3",
		"0x10",
		".",
		"5.",
		"1.2.3",
		"GiB",
		"99MB",
		"0.0001",
		"129TiB",
		"999999999999999999999999",
		"1,5",
		"4GiBGiB",
		"4B",
		"5.GiB",
		"18446744073709551616B",
		"2684354560.5B",
		"\xff",
		"4\n",
		"--4",
		"1/2",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		uint64_t bytes = 77;
		struct error err = {0};

		if (units_parse_vram(bad[i], &bytes, &err) == 0)
			fail_msg("'%s' accepted as %llu", bad[i], (unsigned long long)bytes);
		assert_int_equal(bytes, 77);
		assert_int_equal(err.code, EXIT_CODE_USAGE);
		assert_true(err.message[0] && err.hint[0]);
	}
}

/* The meaning is plain, and carve itself writes sizes with a blank. */
static void blanks_and_commas_are_named(void **state)
{
	static const struct {
		const char *text, *hint;
	} vram[] = {{"2 GiB", "write 2GiB"},
		    {"3.73 gib", "write 3.73gib"},
		    {"2,5", "write 2.5"},
		    {"2,5 G", "write 2.5G"},
		    {"4 ", "write 4"}},
	  times[] = {{"5 min", "write 5min"}, {"1,5h", "write 1.5h"}};
	uint64_t value;

	for (size_t i = 0; i < ARRAY_SIZE(vram); i++) {
		struct error err = {0};

		assert_int_equal(units_parse_vram(vram[i].text, &value, &err), -EXIT_CODE_USAGE);
		assert_string_equal(err.hint, vram[i].hint);
		assert_null(strstr(err.message, "no unit"));
	}
	for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
		struct error err = {0};

		assert_true(units_parse_seconds(times[i].text, "--for", &value, &err) < 0);
		assert_string_equal(err.hint, times[i].hint);
	}
	/* These would be wrong then, too. */
	static const char *const others[] = {"1,000,000", "2 apples", "2 GiB more"};
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		struct error err = {0};

		assert_true(units_parse_vram(others[i], &value, &err) < 0);
		assert_non_null(strstr(err.message, "no unit"));
	}
	struct error err = {0};
	assert_true(units_parse_gpu_memory("2,5", &value, &err) < 0);
	assert_null(strstr(err.hint, "write 2.5"));
}

static void gpu_memory_spellings(void **state)
{
	static const struct spelling good[] = {
		{"4G", 4000000000},    {"4Gi", 4294967296},      {"4000M", 4000000000},
		{"500M", 500000000},   {"512Mi", 536870912},     {"1T", 1000000000000},
		{"2.5Gi", 2684354560}, {"4000000k", 4000000000}, {"0.1G", 100000000},
		{"4GB", 4000000000},   {"4GiB", 4294967296},     {"4g", 4000000000},
	};
	static const char *const bad[] = {"4", "4000m", "4GX",  "",     "-4G", "0G",
					  "G", "4Gib ", "nanG", "4Gi ", "50M"};

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		uint64_t bytes = 0;
		struct error err = {0};

		if (units_parse_gpu_memory(good[i].text, &bytes, &err) < 0)
			fail_msg("%s refused: %s", good[i].text, err.message);
		assert_int_equal(bytes, good[i].bytes);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		uint64_t bytes;
		struct error err = {0};

		assert_true(units_parse_gpu_memory(bad[i], &bytes, &err) < 0);
		assert_true(err.message[0] && err.hint[0]);
	}
}

static void gpu_fractions(void **state)
{
	uint32_t share, whole;
	struct error err;
	static const char *const bad[] = {"0",    "1.25", "-0.5",      "nan",  "inf", "0.0001",
					  "0.5x", "",     "1.0000001", "5000", "1e0"};

	assert_int_equal(units_parse_gpu("0.25", &share, &whole, &err), 0);
	assert_int_equal(share, 250000);
	assert_int_equal(whole, 0);
	assert_int_equal(units_parse_gpu("1", &share, &whole, &err), 0);
	assert_int_equal(share, SHARE_ONE);
	assert_int_equal(whole, 1);
	assert_int_equal(units_parse_gpu("2.0", &share, &whole, &err), 0);
	assert_int_equal(whole, 2);
	assert_int_equal(units_parse_gpu("0.001", &share, &whole, &err), 0);
	assert_int_equal(share, 1000);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (units_parse_gpu(bad[i], &share, &whole, &err) == 0)
			fail_msg("'%s' accepted", bad[i]);
}

static void shares(void **state)
{
	uint32_t share;
	struct error err;
	static const char *const bad[] = {"0",    "0%",           "101%",         "1.01",
					  "25 %", "1.0000000001", "-1%",          "50",
					  "%",    "nan%",         "100.00000001%"};

	assert_int_equal(units_parse_share("25%", "--gpu-compute", &share, &err), 0);
	assert_int_equal(share, 250000);
	assert_int_equal(units_parse_share("0.25", "--gpu-compute", &share, &err), 0);
	assert_int_equal(share, 250000);
	assert_int_equal(units_parse_share("100%", "--gpu-compute", &share, &err), 0);
	assert_int_equal(share, SHARE_ONE);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (units_parse_share(bad[i], "--gpu-compute", &share, &err) == 0)
			fail_msg("'%s' accepted", bad[i]);
}

static void texts(void **state)
{
	char buf[UNITS_TEXT_SIZE];

	assert_string_equal(units_format_bytes(0, buf), "0 B");
	assert_string_equal(units_format_bytes(4294967296, buf), "4 GiB");
	assert_string_equal(units_format_bytes(4000000000, buf), "3.73 GiB");
	assert_string_equal(units_format_bytes(2684354560, buf), "2.5 GiB");
	assert_string_equal(units_format_bytes(15826954485, buf), "14.74 GiB");
	assert_string_equal(units_format_bytes(2158000000, buf), "2.01 GiB");
	assert_string_equal(units_format_bytes(UINT64_MAX, buf), "16777216 TiB");
	assert_string_equal(units_format_bytes(268435456, buf), "256 MiB");
	assert_string_equal(units_format_bytes(1073741823, buf), "1 GiB");
	assert_string_equal(units_format_bytes(1073741825, buf), "1.01 GiB");
	assert_string_equal(units_format_room(1073741823, buf), "1023.99 MiB");
	assert_string_equal(units_format_room(1073741825, buf), "1 GiB");
	assert_string_equal(units_format_room(15826954485, buf), "14.73 GiB");
	assert_string_equal(units_format_room(UINT64_MAX, buf), "16777215.99 TiB");
}

/* As who reads it types it. */
static uint64_t typed(const char *text)
{
	char size[UNITS_TEXT_SIZE];
	struct error err;
	uint64_t bytes = 0;

	snprintf(size, sizeof(size), "%.*s%s", (int)strcspn(text, " "), text,
		 text + strcspn(text, " ") + 1);
	assert_int_equal(units_parse_size(size, "SIZE", &bytes, &err), 0);
	return bytes;
}

static void a_shown_size_can_be_requested(void **state)
{
	char buf[UNITS_TEXT_SIZE];

	srandom(2);
	for (int i = 0; i < 100000; i++) {
		uint64_t bytes = (((uint64_t)random() << 31) | (uint64_t)random()) %
				 ((uint64_t)1 << (27 + i % 20));

		bytes += SLICE_BYTES_MIN;
		uint64_t room = typed(units_format_room(bytes, buf));
		assert_true(room <= bytes && room > bytes - bytes / 99);
		uint64_t use = typed(units_format_bytes(bytes, buf));
		/* A fraction of a byte is dropped of a typed size. */
		assert_true(use + 1 >= bytes && use < bytes + bytes / 99);
		/* Two decimals stay as they were typed. */
		assert_true(typed(units_format_bytes(use, buf)) == use);
	}
}

static void counts(void **state)
{
	char buf[UNITS_TEXT_SIZE];

	assert_string_equal(units_format_count(1, "GPU", buf), "1 GPU");
	assert_string_equal(units_format_count(2, "GPU", buf), "2 GPUs");
	assert_string_equal(units_format_count(0, "session", buf), "0 sessions");
	assert_string_equal(units_format_count(1, "process", buf), "1 process");
	assert_string_equal(units_format_count(3, "process", buf), "3 processes");
}

static void durations(void **state)
{
	static const struct {
		const char *text;
		uint64_t ns;
	} right[] = {{"250ms", 250000000},   {"0.25s", 250000000}, {"5000us", 5000000},
		     {"5ms", 5000000},       {"10s", 10000000000}, {"12.5ms", 12500000},
		     {"1s500ms", 1500000000}};
	static const char *const wrong[] = {"250", "4ms",  "11s",    "1h",  "",
					    "ms",  "-5ms", "5 ms x", "inf", "1e3ms"};
	char text[UNITS_TEXT_SIZE];
	struct error err;
	uint64_t ns;

	for (size_t i = 0; i < ARRAY_SIZE(right); i++) {
		assert_true(units_parse_duration(right[i].text, "--lease", 5000000, 10000000000,
						 &ns, &err) == 0);
		assert_true(ns == right[i].ns);
	}
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_true(units_parse_duration(wrong[i], "--lease", 5000000, 10000000000, &ns,
						 &err) < 0);
	assert_string_equal(units_format_exact_duration(0, text), "0s");
	assert_string_equal(units_format_exact_duration(90000000000, text), "1m30s");
	assert_string_equal(units_format_exact_duration(28800000000000, text), "8h");
	assert_string_equal(units_format_exact_duration(93784005006007, text), "1d2h3m4s5ms6us");
	assert_true(!strcmp(units_format_duration(250000000, text), "250 ms"));
	assert_true(!strcmp(units_format_duration(5000000000, text), "5 s"));
	assert_true(!strcmp(units_format_duration(0, text), "0 s"));
	assert_true(!strcmp(units_format_duration(12345678, text), "12.3 ms"));
	assert_true(!strcmp(units_format_duration(7200000000000, text), "7200 s"));
	assert_true(!strcmp(units_format_duration(999, text), "999 ns"));
	assert_true(!strcmp(units_format_duration(999499000, text), "999 ms"));
	assert_true(!strcmp(units_format_duration(999600000, text), "1 s"));
	assert_true(!strcmp(units_format_duration(999999, text), "1 ms"));
	assert_true(!strcmp(units_format_duration(999700000000, text), "999.7 s"));
}

static void rough_durations_are_read_at_a_glance(void **state)
{
	static const struct {
		double seconds;
		const char *text;
	} cases[] = {
		{0.25, "250 ms"},  {999, "999 s"},  {1000, "16.7 min"},     {1800, "30 min"},
		{7199, "120 min"}, {7200, "2 h"},   {63154.3425, "17.5 h"}, {172799, "48.0 h"},
		{172800, "2 d"},   {864e3, "10 d"}, {1e8, "1157 d"},
	};
	char text[UNITS_TEXT_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_string_equal(
			units_format_rough_duration((uint64_t)(cases[i].seconds * 1e9), text),
			cases[i].text);
}

static void times_of_day(void **state)
{
	char text[UNITS_TEXT_SIZE];

	static const struct {
		int64_t ns;
		enum units_precision precision;
		const char *text;
	} times[] = {
		{0, UNITS_MILLISECONDS, "1970-01-01T00:00:00.000Z"},
		{1796025600123999999, UNITS_MILLISECONDS, "2026-11-30T08:00:00.123Z"},
		{1796025600123999999, UNITS_SECONDS, "2026-11-30T08:00:00Z"},
		{1796025600000999999, UNITS_MICROSECONDS, "2026-11-30T08:00:00.000999Z"},
		{INT64_MAX, UNITS_MILLISECONDS, "2262-04-11T23:47:16.854Z"},
		{-1, UNITS_MILLISECONDS, "1969-12-31T23:59:59.999Z"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(times); i++)
		assert_string_equal(units_format_time(times[i].ns, times[i].precision, text),
				    times[i].text);
}

static void seconds(void **state)
{
	static const struct {
		const char *text;
		double s;
	} right[] = {{"30", 30},
		     {"1.5", 1.5},
		     {"0", 0},
		     {"90s", 90},
		     {"1m", 60},
		     {"5min", 300},
		     {"2h", 7200},
		     {"1.5h", 5400},
		     {"1d", 86400},
		     {"250ms", 0.25},
		     {"1h30m", 5400},
		     {"1m30s", 90},
		     {"1d2h3m4.5s", 93784.5},
		     {"2hours30minutes", 9000},
		     {"100us", 0.0001}};
	static const char *const wrong[] = {"",     "-1",   "m",     "5 m", "1y",  "1m1h",
					    "1h30", "1h1h", "1h30x", "1hm", "inf", "20000d"};
	struct error err;
	uint64_t ns;

	for (size_t i = 0; i < ARRAY_SIZE(right); i++) {
		assert_int_equal(units_parse_seconds(right[i].text, "--wait-for", &ns, &err), 0);
		assert_true(ns == (uint64_t)(right[i].s * 1e9));
	}
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		err = (struct error){0};
		assert_true(units_parse_seconds(wrong[i], "--wait-for", &ns, &err) < 0);
		assert_true(err.message[0] && err.hint[0]);
	}
}

static void mebibytes_that_were_meant(void **state)
{
	const uint64_t gib = 1ULL << 30, capacity = 80 * gib;

	(void)state;
	assert_true(units_mebibytes_meant(300 * gib, capacity));
	assert_true(units_mebibytes_meant(4096 * gib, capacity));
	assert_true(units_mebibytes_meant(80 * 1024 * gib, capacity));
	assert_false(units_mebibytes_meant(299 * gib, capacity));
	assert_false(units_mebibytes_meant(81 * 1024 * gib, capacity));
	assert_false(units_mebibytes_meant(4096 * gib + 1, capacity));
	assert_false(units_mebibytes_meant(640 * gib, 640 * gib));
	assert_false(units_mebibytes_meant(4096 * gib, 0));
	assert_true(units_is_bare("4096") && units_is_bare("0.5"));
	assert_false(units_is_bare("2TiB") || units_is_bare("4g") || units_is_bare(""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(vram_spellings),
		cmocka_unit_test(vram_malformed),
		cmocka_unit_test(blanks_and_commas_are_named),
		cmocka_unit_test(gpu_memory_spellings),
		cmocka_unit_test(gpu_fractions),
		cmocka_unit_test(shares),
		cmocka_unit_test(texts),
		cmocka_unit_test(a_shown_size_can_be_requested),
		cmocka_unit_test(counts),
		cmocka_unit_test(durations),
		cmocka_unit_test(times_of_day),
		cmocka_unit_test(seconds),
		cmocka_unit_test(rough_durations_are_read_at_a_glance),
		cmocka_unit_test(mebibytes_that_were_meant),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
