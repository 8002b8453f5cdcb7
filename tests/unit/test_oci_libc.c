/* Images whose C library is too old are refused, wherever in the file its version stands. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/file.h"
#include "integrations/oci/libc.h"

#define SIZE (64u << 10)
#define LIBRARY "lib64/libc.so.6"

static char root[] = "/tmp/carve-libc-XXXXXX";

static int root_make(void **state)
{
	char path[64];

	(void)state;
	if (!mkdtemp(root))
		return -1;
	snprintf(path, sizeof(path), "%s/lib64", root);
	return mkdir(path, 0755);
}

static int root_remove(void **state)
{
	char path[64];

	(void)state;
	snprintf(path, sizeof(path), "%s/" LIBRARY, root);
	(void)unlink(path);
	snprintf(path, sizeof(path), "%s/lib64", root);
	return rmdir(path) < 0 || rmdir(root) < 0 ? -1 : 0;
}

static int check(void)
{
	struct error err;

	return oci_libc_check(root, &err);
}

/* A library that names a version at this place. */
static void library_write(const char *version, size_t at)
{
	char path[64];
	cleanup_free char *file = calloc(1, SIZE);

	assert_non_null(file);
	memset(file, 'x', SIZE);
	file[at] = '\0';
	memcpy(file + at + 1, version, strlen(version) + 1);
	snprintf(path, sizeof(path), "%s/" LIBRARY, root);
	cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
	assert_true(fd >= 0);
	assert_int_equal(write_all(fd, file, SIZE), 0);
}

static void test_a_root_without_a_library_passes(void **state)
{
	(void)state;
	assert_int_equal(check(), 0);
}

static void test_a_version_is_found_where_two_pieces_meet(void **state)
{
	(void)state;
	for (size_t piece = 4096; piece < SIZE; piece *= 2)
		for (size_t before = 0; before < 16; before++) {
			library_write("GLIBC_" OCI_GLIBC_OLDEST, piece - before);
			assert_int_equal(check(), 0);
		}
	library_write("GLIBC_" OCI_GLIBC_OLDEST, 0);
	assert_int_equal(check(), 0);
	library_write("GLIBC_" OCI_GLIBC_OLDEST, SIZE - sizeof("\0GLIBC_" OCI_GLIBC_OLDEST));
	assert_int_equal(check(), 0);
}

static void test_an_older_library_is_refused(void **state)
{
	(void)state;
	library_write("GLIBC_2.27", 100);
	assert_int_equal(check(), -EXIT_CODE_FAILED);
	library_write("GLIBC_" OCI_GLIBC_OLDEST "7", 100);
	assert_int_equal(check(), -EXIT_CODE_FAILED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_root_without_a_library_passes),
		cmocka_unit_test(test_a_version_is_found_where_two_pieces_meet),
		cmocka_unit_test(test_an_older_library_is_refused),
	};

	return cmocka_run_group_tests(tests, root_make, root_remove);
}
