/* The database of jobs, where somebody removes its file while it is open. */
#include <fcntl.h>
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
static void a_copy_has_what_the_removed_file_had(void **state)
{
	struct job_store *store;
	struct error err = {0};
	char beside[sizeof(path) + 8], bytes[1 << 16];
	ssize_t n;

	assert_int_equal(job_store_open(&store, path, false, NULL, NULL, NULL, &err), 0);
	int64_t whole = spec_add(store, true), part = spec_add(store, false);
	assert_null(job_store_missing(store));
	assert_int_equal(unlink(path), 0);
	assert_string_equal(job_store_missing(store), "queue.db");
	assert_true(has(store, whole) && has(store, part));
	int copy = job_store_copy(store);
	assert_true(copy >= 0);
	job_store_close(store);
	snprintf(beside, sizeof(beside), "%s-wal", path);
	(void)unlink(beside);
	int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(file >= 0 && lseek(copy, 0, SEEK_SET) == 0);
	while ((n = read(copy, bytes, sizeof(bytes))) > 0)
		assert_int_equal(write(file, bytes, (size_t)n), n);
	close(file);
	close(copy);
	assert_int_equal(job_store_open(&store, path, false, NULL, NULL, NULL, &err), 0);
	assert_true(has(store, whole) && !has(store, part));
	job_store_close(store);
}

static int id_take(void *arg, const struct job_record *record)
{
	*(int64_t *)arg = record->id;
	return 0;
}

static int64_t next_changed(struct job_store *store, int64_t after)
{
	int64_t id = 0;

	assert_int_equal(job_store_each_changed(store, after, 1, id_take, &id), 0);
	return id;
}

static void ends_come_in_the_order_of_their_numbers(void **state)
{
	struct job_record record = {
		.queue = "q", .name = "n", .boot = "", .place = "", .ending = "", .reason = ""};
	char name[JOB_STORE_ID_SIZE] = "", again[JOB_STORE_ID_SIZE] = "";
	int64_t last = -1;
	struct job_store *store;
	struct error err = {0};

	assert_int_equal(job_store_open(&store, path, false, NULL, NULL, NULL, &err), 0);
	assert_int_equal(job_store_change_last(store, &last), 0);
	assert_int_equal(last, 0);
	for (int64_t id = 1; id <= 3; id++) {
		record.id = id;
		record.state = JOB_DONE;
		record.change = id == 3 ? 0 : 12 - id;
		assert_int_equal(job_store_add(store, &record), 0);
	}
	assert_int_equal(next_changed(store, 0), 2);
	assert_int_equal(next_changed(store, 10), 1);
	assert_int_equal(next_changed(store, 11), 0);
	/* No number is given twice, though the job that had it was forgotten. */
	assert_int_equal(job_store_change_set(store, 11), 0);
	record.id = 1;
	assert_int_equal(job_store_forget(store, &record), 0);
	assert_int_equal(job_store_id(store, name), 0);
	assert_int_equal(strlen(name), sizeof(name) - 1);
	job_store_close(store);
	assert_int_equal(job_store_open(&store, path, false, NULL, NULL, NULL, &err), 0);
	assert_int_equal(next_changed(store, 10), 0);
	assert_int_equal(job_store_change_last(store, &last), 0);
	assert_int_equal(last, 11);
	assert_int_equal(job_store_id(store, again), 0);
	assert_string_equal(again, name);
	job_store_close(store);
}

/* In the order of coming: job 1, array 2 of the most jobs, job 3, array 4. */
static void ids_say_the_number_and_the_order(void **state)
{
	const int64_t most = INT64_C(8000000000);
	const struct {
		int64_t id, number;
	} in_order[] = {{1, 1},
			{job_element_id(2, 0), 2},
			{job_element_id(2, 1), 2},
			{job_element_id(2, JOB_ARRAY_MAX - 1), 2},
			{3, 3},
			{job_element_id(4, 0), 4},
			{most - 1, most - 1},
			{job_element_id(most, JOB_ARRAY_MAX - 1), most}};

	for (size_t i = 0; i < sizeof(in_order) / sizeof(*in_order); i++) {
		assert_int_equal(job_id_number(in_order[i].id), in_order[i].number);
		assert_true(in_order[i].id < INT64_C(1) << 53);
		if (i)
			assert_true(job_id_rank(in_order[i - 1].id) < job_id_rank(in_order[i].id));
	}
}

static void numbers_follow_each_other(void **state)
{
	struct job_store *store;
	struct error err = {0};
	int64_t number;

	assert_int_equal(job_store_open(&store, path, false, NULL, NULL, NULL, &err), 0);
	assert_int_equal(job_store_number_last(store, &number), 0);
	assert_int_equal(number, 0);
	assert_int_equal(job_store_number_set(store, 41), 0);
	assert_int_equal(job_store_begin(store), 0);
	assert_int_equal(job_store_number_take(store, &number), 0);
	assert_int_equal(number, 42);
	/* A step that is given up takes no number. */
	job_store_rollback(store);
	assert_int_equal(job_store_number_take(store, &number), 0);
	assert_int_equal(number, 42);
	job_store_close(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_copy_has_what_the_removed_file_had),
		cmocka_unit_test(ends_come_in_the_order_of_their_numbers),
		cmocka_unit_test(ids_say_the_number_and_the_order),
		cmocka_unit_test(numbers_follow_each_other),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
