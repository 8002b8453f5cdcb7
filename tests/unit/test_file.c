/* Files that are put in place whole or not at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
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

static void plant_symlink(const char *victim)
{
	assert_int_equal(symlink(victim, temporary), 0);
}

static void plant_link(const char *victim)
{
	assert_int_equal(link(victim, temporary), 0);
}

static void plant_fifo(const char *victim)
{
	(void)victim;
	assert_int_equal(mkfifo(temporary, 0600), 0);
}

/* A link is not followed, a file of several names not written to, a FIFO not waited for. */
static void test_what_is_in_the_temporary_files_place_is_not_written_to(void **state)
{
	static void (*const plants[])(const char *) = {plant_symlink, plant_link, plant_fifo};
	char victim[sizeof(dir) + 16], text[16];
	struct stat st;

	snprintf(victim, sizeof(victim), "%s/victim", dir);
	assert_int_equal(file_replace(victim, temporary, "old", 3, 0600), 0);
	for (size_t i = 0; i < sizeof(plants) / sizeof(plants[0]); i++) {
		plants[i](victim);
		assert_int_equal(file_replace(path, temporary, "new", 3, 0644), 0);
		assert_int_equal(file_read(path, text, sizeof(text)), 3);
		assert_string_equal(text, "new");
		assert_int_equal(lstat(path, &st), 0);
		assert_true(S_ISREG(st.st_mode) && st.st_nlink == 1);
		assert_int_equal(file_read(victim, text, sizeof(text)), 3);
		assert_string_equal(text, "old");
		assert_int_equal(stat(victim, &st), 0);
		assert_int_equal(st.st_mode & 0777, 0600);
	}
	assert_int_equal(unlink(victim), 0);
}

/* To open a device can do something already: a watchdog begins to count. */
static void test_only_plain_files_are_opened(void **state)
{
	char seen[sizeof(struct inotify_event) + NAME_MAX + 1];
	cleanup_close int root = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_close int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	cleanup_close int self = open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC);

	(void)unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_true(inotify_add_watch(watch, path, IN_OPEN) >= 0);
	assert_int_equal(open_plain_in_root(root, AT_FDCWD, "name"), -EMEDIUMTYPE);
	assert_int_equal(open_plain_in_root(root, AT_FDCWD, "."), -EMEDIUMTYPE);
	assert_int_equal(read(watch, seen, sizeof(seen)), -1);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(open_plain_in_root(root, AT_FDCWD, "name"), -ENOENT);
	assert_int_equal(file_replace(path, temporary, "text", 4, 0600), 0);
	cleanup_close int fd = open_plain_in_root(root, AT_FDCWD, "name"),
			  same = open_plain_in_root(root, self, "/../name");
	assert_int_equal(read(fd, seen, sizeof(seen)), 4);
	assert_int_equal(read(same, seen, sizeof(seen)), 4);
}

static void test_a_file_that_cannot_be_replaced_stays(void **state)
{
	char text[16];

	assert_int_equal(file_replace(path, temporary, "old", 3, 0600), 0);
	/* A directory there cannot be removed. */
	assert_int_equal(mkdir(temporary, 0700), 0);
	assert_int_equal(file_replace(path, temporary, "new", 3, 0600), -EEXIST);
	assert_int_equal(rmdir(temporary), 0);
	assert_int_equal(file_read(path, text, sizeof(text)), 3);
	assert_string_equal(text, "old");
	assert_int_equal(file_replace("/nowhere/at/all", "/nowhere/at/all.new", "x", 1, 0600),
			 -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_replaced_file_has_the_new_contents),
		cmocka_unit_test(test_what_is_in_the_temporary_files_place_is_not_written_to),
		cmocka_unit_test(test_only_plain_files_are_opened),
		cmocka_unit_test(test_a_file_that_cannot_be_replaced_stays),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
