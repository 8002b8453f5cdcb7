/* Where ld.so would take a library from: asked as a program that loads it would be answered. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/macros.h"
#include "slice/driver_look.h"

#define NAME "libcuda.so.1"

static char root[64]; /* with directories a and b */

static void make(const char *name, bool library)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	/* A program is of this machine, too. */
	if (library) {
		assert_int_equal(symlink("/proc/self/exe", path), 0);
		return;
	}
	assert_non_null(file = fopen(path, "w"));
	fputs("INPUT(libcuda.so.1)\n", file);
	assert_int_equal(fclose(file), 0);
}

static void make_directory(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	assert_int_equal(mkdir(path, 0700), 0);
}

static int setup(void **state)
{
	snprintf(root, sizeof(root), "/tmp/carve-look-XXXXXX");
	assert_non_null(mkdtemp(root));
	make_directory("a");
	make_directory("b");
	return 0;
}

static int teardown(void **state)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -r '%s'", root);
	/* NOLINTNEXTLINE(cert-env33-c,concurrency-mt-unsafe): a directory of the test's own */
	return system(command);
}

/* A cache with one entry for each of these directories, "a". Returns its size. */
static size_t cache_make(char buf[static 1024], const char *const *directories, uint32_t count)
{
	uint32_t strings = 48 + 24 * count;

	memset(buf, 0, 1024);
	memcpy(buf, "glibc-ld.so.cache1.1", 20);
	memcpy(buf + 20, &count, 4);
	for (uint32_t i = 0; i < count; i++) {
		memcpy(buf + 48 + 24 * i + 4, &strings, 4);
		strings += (uint32_t)sprintf(buf + strings, NAME) + 1;
		memcpy(buf + 48 + 24 * i + 8, &strings, 4);
		strings +=
			(uint32_t)sprintf(buf + strings, "%s/%s/" NAME, root, directories[i]) + 1;
	}
	return strings;
}

/* `list` has the root for each @. "" where it is not found. */
static const char *look(const char *list, const void *cache, size_t size)
{
	static char path[PATH_MAX];
	char given[512] = "";

	for (const char *at = list; at && *at; at++) {
		size_t used = strlen(given);

		if (*at == '@')
			snprintf(given + used, sizeof(given) - used, "%s", root);
		else
			snprintf(given + used, sizeof(given) - used, "%c", *at);
	}
	if (!driver_look(NAME, list ? given : NULL, cache, size, path))
		return "";
	return path + strlen(root);
}

static void the_first_directory_of_the_library_path_counts(void **state)
{
	make("b/" NAME, true);
	assert_string_equal(look("@/a:@/b", NULL, 0), "/b/" NAME);
	assert_string_equal(look("@/a;/nowhere;@/b", NULL, 0), "/b/" NAME);
	make("a/" NAME, true);
	assert_string_equal(look("@/a:@/b", NULL, 0), "/a/" NAME);
	assert_string_equal(look("/nowhere", NULL, 0), "");
	assert_string_equal(look("", NULL, 0), "");
	assert_string_equal(look(NULL, NULL, 0), "");
}

static void the_cache_counts_after_the_library_path(void **state)
{
	static const char *const both[] = {"a", "b"};
	char cache[1024];
	size_t size = cache_make(cache, both, 2);

	make("b/" NAME, true);
	assert_string_equal(look(NULL, cache, size), "/b/" NAME);
	make("a/" NAME, false);
	assert_string_equal(look(NULL, cache, size), "/b/" NAME);
	assert_string_equal(look("/nowhere", cache, size), "/b/" NAME);
	make_directory("c");
	make("c/" NAME, true);
	assert_string_equal(look("@/c", cache, size), "/c/" NAME);
}

static void questions_for_the_dynamic_linker_are_left_to_it(void **state)
{
	static const char *const lists[] = {
		":@/b",       "@/a::@/b",       "@/a:",      "relative:@/b",
		"@/$LIB:@/b", "@/variants:@/b", "@/text:@/b"};
	static const char *const entries[] = {"glibc-hwcaps", "b"};
	char cache[1024];

	make("b/" NAME, true);
	make_directory("variants");
	make_directory("variants/glibc-hwcaps");
	make_directory("text");
	make("text/" NAME, false);
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		assert_string_equal(look(lists[i], NULL, 0), "");
	assert_string_equal(look(NULL, cache, cache_make(cache, entries, 2)), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_first_directory_of_the_library_path_counts,
						setup, teardown),
		cmocka_unit_test_setup_teardown(the_cache_counts_after_the_library_path, setup,
						teardown),
		cmocka_unit_test_setup_teardown(questions_for_the_dynamic_linker_are_left_to_it,
						setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
