/* Files that are put in place whole or not at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

static char dir[] = "/tmp/carve-test-file-XXXXXX";
static char path[64], temporary[64];

static int setup(void **state)
{
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/name", dir);
	snprintf(temporary, sizeof(temporary), "%s/name.new", dir);
	return 0;
}

static int teardown(void **state)
{
	(void)unlink(path);
	(void)unlink(temporary);
	return rmdir(dir);
}

static void test_a_replaced_file_has_the_new_contents(void **state)
{
	char text[16];
	struct stat st;

	assert_int_equal(file_replace(path, temporary, "first one", 9, 0600), 0);
	assert_int_equal(file_replace(path, temporary, "new", 3, 0600), 0);
	assert_int_equal(file_read(path, text, sizeof(text)), 3);
	assert_string_equal(text, "new");
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(access(temporary, F_OK), -1);
}

static void test_a_file_that_cannot_be_replaced_stays(void **state)
{
	char text[16];

	assert_int_equal(file_replace(path, temporary, "old", 3, 0600), 0);
	/* A link in the temporary file's place is not followed. */
	assert_int_equal(symlink(path, temporary), 0);
	assert_int_equal(file_replace(path, temporary, "new", 3, 0600), -ELOOP);
	assert_int_equal(file_read(path, text, sizeof(text)), 3);
	assert_string_equal(text, "old");
	assert_int_equal(file_replace("/nowhere/at/all", "/nowhere/at/all.new", "x", 1, 0600),
			 -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_replaced_file_has_the_new_contents),
		cmocka_unit_test(test_a_file_that_cannot_be_replaced_stays),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
