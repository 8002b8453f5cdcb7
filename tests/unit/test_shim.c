/* A job's files, as its shim opens them. */
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
static pid_t files_open(const char *log)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct shim_spec spec = {.root = json_object()};
		char path[PATH_MAX];
		int rc = shim_spec_files(&spec, log, path);

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

static void a_log_whose_directory_was_removed_has_it_again(void **state)
{
	char log[PATH_MAX];
	struct stat st;

	place(log, "user/1.1.log");
	assert_int_equal(status_of(files_open(log)), 0);
	assert_int_equal(stat(log, &st), 0);
	assert_int_equal(st.st_size, 3);
}

/* As the daemon makes it, which only it may do where it is root's. */
static void the_directory_above_is_waited_for(void **state)
{
	char log[PATH_MAX], above[PATH_MAX];
	struct stat st;
	int status;

	place(above, "jobs");
	place(log, "jobs/user/1.1.log");
	pid_t pid = files_open(log);
	/* It has not given up. */
	assert_int_equal(usleep(100000), 0);
	assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
	assert_int_equal(mkdir(above, 0700), 0);
	assert_int_equal(status_of(pid), 0);
	assert_int_equal(stat(log, &st), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_log_whose_directory_was_removed_has_it_again),
		cmocka_unit_test(the_directory_above_is_waited_for),
	};

	return cmocka_run_group_tests_name("shim", tests, top_make, top_remove);
}
