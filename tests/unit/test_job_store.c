/* The database of jobs, where somebody removes its file while it is open. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "daemon/queue/job_store.h"

static char dir[] = "/tmp/carve-test-jobs-XXXXXX", path[PATH_MAX];

static int setup(void **state)
{
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/queue.db", dir);
	return 0;
}

static int teardown(void **state)
{
	char command[PATH_MAX];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

static bool has(struct job_store *store, int64_t id)
{
	char *text = NULL;
	int rc = job_store_spec_get(store, id, &text, NULL);

	assert_true(rc == -ENOENT || (rc == 0 && !strcmp(text, "{}")));
	free(text);
	return rc == 0;
}

static int64_t spec_add(struct job_store *store, bool entered)
{
	int64_t id;

	assert_int_equal(job_store_begin(store), 0);
	assert_int_equal(job_store_spec_add(store, "{}", NULL, entered, &id), 0);
	assert_int_equal(job_store_commit(store), 0);
	return id;
}

/* An array is written in parts: one that is not whole yet goes with the daemon, and not before. */
static void a_job_being_entered_outlives_the_file(void **state)
{
	struct job_store *store;
	struct error err = {0};

	assert_int_equal(job_store_open(&store, path, false, NULL, NULL, NULL, &err), 0);
	int64_t whole = spec_add(store, true), part = spec_add(store, false);
	assert_int_equal(job_store_look(store), 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(job_store_look(store), 1);
	assert_int_equal(access(path, F_OK), 0);
	assert_true(has(store, whole) && has(store, part));
	assert_int_equal(job_store_look(store), 0);
	job_store_close(store);
	assert_int_equal(job_store_open(&store, path, false, NULL, NULL, NULL, &err), 0);
	assert_true(has(store, whole) && !has(store, part));
	job_store_close(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_job_being_entered_outlives_the_file),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
