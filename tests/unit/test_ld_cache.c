/* The contents of ld.so's cache, in glibc's format with and without the older one before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"
#include "slice/ld_cache.h"

static const char *const libraries[][2] = {
	{"libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1"},
	{"libcuda.so.1", "/usr/lib/i386-linux-gnu/libcuda.so.1"},
	{"libcuda.so", "/usr/lib/x86_64-linux-gnu/libcuda.so"},
	{"libcuda.so.1", "not/absolute"},
	{"libcuda.so.10", "/other"},
};

/* Returns its size. */
static size_t cache_make(char *buf, size_t before)
{
	uint32_t count = ARRAY_SIZE(libraries), strings = 48 + 24 * count;

	memset(buf, 'o', before);
	memset(buf + before, 0, 4096 - before);
	memcpy(buf + before, "glibc-ld.so.cache1.1", 20);
	memcpy(buf + before + 20, &count, 4);
	for (uint32_t i = 0; i < count; i++)
		for (int k = 0; k < 2; k++) {
			memcpy(buf + before + 48 + 24 * i + 4 + 4 * k, &strings, 4);
			strings +=
				(uint32_t)sprintf(buf + before + strings, "%s", libraries[i][k]) +
				1;
		}
	return before + strings;
}

struct seen {
	int count;
	char paths[8][64];
};

static void note(void *arg, const char *path)
{
	struct seen *seen = arg;

	assert_in_range(seen->count, 0, 7);
	snprintf(seen->paths[seen->count++], sizeof(seen->paths[0]), "%s", path);
}

static void test_paths_by_name(void **state)
{
	char cache[4096];

	for (size_t before = 0; before < 64; before += 24) {
		struct seen seen = {0};
		size_t size = cache_make(cache, before);

		ld_cache_each(cache, size, "libcuda.so.1", note, &seen);
		assert_int_equal(seen.count, 2);
		assert_string_equal(seen.paths[0], libraries[0][1]);
		assert_string_equal(seen.paths[1], libraries[1][1]);
		ld_cache_each(cache, size, "libcuda.so", note, &seen);
		assert_int_equal(seen.count, 3);
		ld_cache_each(cache, size, "libnvidia-ml.so.1", note, &seen);
		assert_int_equal(seen.count, 3);
	}
}

static void test_cut_off_anywhere(void **state)
{
	char cache[4096];
	size_t size = cache_make(cache, 16);

	for (size_t cut = 0; cut < size; cut++) {
		struct seen seen = {0};

		ld_cache_each(cache, cut, "libcuda.so.1", note, &seen);
		assert_in_range(seen.count, 0, 2);
	}
}

static void test_other_formats_hold_nothing(void **state)
{
	struct seen seen = {0};

	ld_cache_each(NULL, 0, "libcuda.so.1", note, &seen);
	ld_cache_each("ld.so-1.7.0", 11, "libcuda.so.1", note, &seen);
	assert_int_equal(seen.count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_paths_by_name),
		cmocka_unit_test(test_cut_off_anywhere),
		cmocka_unit_test(test_other_formats_hold_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
