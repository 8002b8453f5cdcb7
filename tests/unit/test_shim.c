/* A job's files, as its shim opens them. */
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "shim/record.h"
#include "shim/spec.h"

static char top[] = "/tmp/carve-shim-XXXXXX";

static int top_make(void **state)
{
	return mkdtemp(top) ? 0 : -1;
}

static int top_remove(void **state)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", top);
	return system(command); // NOLINT(concurrency-mt-unsafe,cert-env33-c): one thread
}

static void place(char ret[static PATH_MAX], const char *name)
{
	snprintf(ret, PATH_MAX, "%s/%s", top, name);
}

/* In a process of its own, whose descriptors 0 to 2 they become. Its PID. */
static pid_t files_open(const char *dir, int dir_fd)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct shim_spec spec = {.text = job_text_none};
		struct record_place record = {dir_fd, dir, "1.1"};
		char path[PATH_MAX];
		int rc = shim_spec_files(&spec, &record, path);

		_exit(rc == 0 && write(STDOUT_FILENO, "out", 3) == 3 ? 0 : 1);
	}
	return pid;
}

static int status_of(pid_t pid)
{
	int status = -1;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

/* The descriptor of a directory that was removed. */
static int removed_open(const char *dir)
{
	assert_int_equal(mkdir(dir, 0700), 0);
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(rmdir(dir), 0);
	return fd;
}

static void a_log_whose_directory_was_removed_has_it_again(void **state)
{
	char dir[PATH_MAX], log[PATH_MAX];
	struct stat st;

	place(dir, "user");
	place(log, "user/1.1.log");
	int fd = removed_open(dir);
	assert_int_equal(status_of(files_open(dir, fd)), 0);
	assert_int_equal(stat(log, &st), 0);
	assert_int_equal(st.st_size, 3);
	close(fd);
}

/* As the daemon makes it, which only it may do where it is root's. */
static void the_directory_above_is_waited_for(void **state)
{
	char dir[PATH_MAX], log[PATH_MAX], above[PATH_MAX];
	struct stat st;
	int status;

	place(above, "jobs");
	place(dir, "jobs/user");
	place(log, "jobs/user/1.1.log");
	assert_int_equal(mkdir(above, 0700), 0);
	int fd = removed_open(dir);
	assert_int_equal(rmdir(above), 0);
	pid_t pid = files_open(dir, fd);
	/* It has not given up. */
	assert_int_equal(usleep(100000), 0);
	assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
	assert_int_equal(mkdir(above, 0700), 0);
	assert_int_equal(status_of(pid), 0);
	assert_int_equal(stat(log, &st), 0);
	close(fd);
}

static int dir_of(const char *name, char path[static PATH_MAX])
{
	place(path, name);
	assert_int_equal(mkdir(path, 0700), 0);
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static void file_write(const char *path, const char *text)
{
	FILE *to = fopen(path, "w");

	assert_non_null(to);
	fputs(text, to);
	assert_int_equal(fclose(to), 0);
}

static void text_expect(const char *path, const char *expected)
{
	char text[64];
	ssize_t n = file_read(path, text, sizeof(text));

	assert_true(n >= 0);
	assert_string_equal(text, expected);
}

/* A symbolic link, a hard link and a directory's neighbour lie where the shim writes. */
static void nothing_is_written_through_a_link(void **state)
{
	char dir[PATH_MAX], precious[PATH_MAX], log[PATH_MAX], record[PATH_MAX];
	int dir_fd = dir_of("links", dir);
	const struct record_place record_place = {dir_fd, dir, "1.1"};

	place(precious, "precious");
	place(log, "links/1.1.log");
	place(record, "links/1.1.record");
	file_write(precious, "precious");
	assert_int_equal(symlink(precious, log), 0);
	assert_int_equal(symlink(precious, record), 0);
	assert_int_equal(status_of(files_open(dir, dir_fd)), 0);
	int fd = record_open(&record_place);
	assert_true(fd >= 0);
	close(fd);
	text_expect(precious, "precious");
	text_expect(log, "out");
	text_expect(record, "");
	assert_int_equal(unlink(log), 0);
	assert_int_equal(link(precious, log), 0);
	assert_int_equal(status_of(files_open(dir, dir_fd)), 0);
	text_expect(precious, "precious");
	text_expect(log, "out");
	close(dir_fd);
}

static void a_second_start_of_an_attempt_goes_on_in_its_log(void **state)
{
	char dir[PATH_MAX], log[PATH_MAX];
	int dir_fd = dir_of("again", dir);

	place(log, "again/1.1.log");
	assert_int_equal(status_of(files_open(dir, dir_fd)), 0);
	assert_int_equal(status_of(files_open(dir, dir_fd)), 0);
	text_expect(log, "outout");
	close(dir_fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_log_whose_directory_was_removed_has_it_again),
		cmocka_unit_test(the_directory_above_is_waited_for),
		cmocka_unit_test(nothing_is_written_through_a_link),
		cmocka_unit_test(a_second_start_of_an_attempt_goes_on_in_its_log),
	};

	return cmocka_run_group_tests_name("shim", tests, top_make, top_remove);
}
