/* Tallies in memory and in the database: what is added, its bounds, and what is forgotten. */
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

#include "base/error.h"
#include "daemon/report/report.h"
#include "daemon/report/report_owner.h"

#define HOUR_NS 3600000000000ull
#define TODAY 20000

static char dir[] = "/tmp/carve-test-report-XXXXXX", path[PATH_MAX];

static int setup(void **state)
{
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/carve.db", dir);
	return 0;
}

static int teardown(void **state)
{
	char command[PATH_MAX];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

static struct store *store_begin_in(const char *boot_id)
{
	struct store_boot boot = {.began = 1};
	struct store *store;
	struct error err = {0};
	unsigned ended;

	snprintf(boot.id, sizeof(boot.id), "%s", boot_id);
	assert_int_equal(store_open(&store, path, false, &err), 0);
	assert_int_equal(store_boot(store, &boot, &ended), 0);
	return store;
}

static void hour_add(struct report *report, uid_t uid, int64_t day, const char *name)
{
	struct store_tally key = {.day = day, .uid = uid, .gid = uid, .gpu = "GPU-1"};

	snprintf(key.name, sizeof(key.name), "%s", name);
	key.tally = (struct tally){.held_ns = HOUR_NS, .gpu_ns = HOUR_NS, .sessions = 1};
	report_add(report, &key);
}

/* Returns how many rows there were. */
static unsigned all_write(struct report *report, const struct store_tally_state *at)
{
	struct report_row *taken[64];
	unsigned written = 0;
	uint32_t count;

	while ((count = report_rows_take(report, taken, 64))) {
		struct store_tally rows[64];

		for (uint32_t i = 0; i < count; i++) {
			rows[i] = taken[i]->stored;
			free(taken[i]);
		}
		assert_int_equal(store_tally_put(report->store, rows, count, at), 0);
		written += count;
	}
	return written;
}

static void a_user_of_many_names_has_a_bounded_number_of_rows(void **state)
{
	struct report report = {.store = store_begin_in("one")};
	struct store_tally_state at = {.began = TODAY};
	char name[32];

	assert_int_equal(report_month_load(&report, TODAY), 0);
	for (int i = 0; i < 100000; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		hour_add(&report, 1000, TODAY, name);
	}
	hour_add(&report, 1001, TODAY, "mine");
	/* The other user has two rows: the GPU's, and the name's. */
	assert_in_range(all_write(&report, &at), 4, STORE_TALLY_NAMES + 5);
	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "later%d", i);
		hour_add(&report, 1000, TODAY, name);
	}
	(void)all_write(&report, &at);
	assert_int_equal(report_month_held(&report, 1000), 101000 * HOUR_NS);
	assert_int_equal(report_month_held(&report, 1001), HOUR_NS);
	assert_int_equal(report_month_held_by_group(&report, 1001, NULL, NULL), HOUR_NS);
	report_owners_free(&report);
	/* The next daemon has the sums from the database. */
	assert_int_equal(report_month_load(&report, TODAY), 0);
	assert_int_equal(report_month_held(&report, 1000), 101000 * HOUR_NS);
	assert_int_equal(report_month_held(&report, 1002), 0);
	report_owners_free(&report);
	store_close(report.store);
}

static void rows_that_cannot_be_written_are_kept(void **state)
{
	struct report report = {.store = store_begin_in("one")};
	struct report_row *taken[4];

	hour_add(&report, 1000, TODAY, "");
	uint32_t count = report_rows_take(&report, taken, 4);
	assert_int_equal(count, 2);
	assert_null(report.first);
	hour_add(&report, 1000, TODAY, "");
	report_rows_return(&report, taken, count);
	count = report_rows_take(&report, taken, 4);
	assert_int_equal(count, 2);
	assert_int_equal(taken[0]->stored.tally.held_ns, 2 * HOUR_NS);
	for (uint32_t i = 0; i < count; i++)
		free(taken[i]);
	report_owners_free(&report);
	store_close(report.store);
}

static void the_moment_of_another_life_of_the_host_says_nothing(void **state)
{
	struct store_tally_state at = {.until = 5, .until_realtime = 6, .began = 7}, found;
	struct store *store = store_begin_in("one");

	assert_int_equal(store_tally_put(store, NULL, 0, &at), 0);
	assert_int_equal(store_tally_state(store, &found), 0);
	assert_int_equal(found.until, 5);
	store_close(store);
	store = store_begin_in("two");
	assert_int_equal(store_tally_state(store, &found), 0);
	assert_int_equal(found.until, 0);
	assert_int_equal(found.began, 7);
	store_close(store);
}

static void a_clock_that_is_set_far_ahead_forgets_nothing(void **state)
{
	struct report report = {.store = store_begin_in("three")};
	struct store_tally_state at = {.began = TODAY};

	hour_add(&report, 1003, TODAY, "old");
	hour_add(&report, 1003, TODAY + 4000, "new");
	(void)all_write(&report, &at);
	/* 2000 days later, and no row of the days before. */
	assert_int_equal(
		store_tally_trim(report.store, TODAY + 2000 - TALLY_DAYS, TODAY + 2000, 64), 0);
	hour_add(&report, 1003, TODAY + 1999, "new");
	(void)all_write(&report, &at);
	assert_true(store_tally_trim(report.store, TODAY + 2000 - TALLY_DAYS, TODAY + 2000, 64) >
		    0);
	report_owners_free(&report);
	store_close(report.store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_user_of_many_names_has_a_bounded_number_of_rows),
		cmocka_unit_test(rows_that_cannot_be_written_are_kept),
		cmocka_unit_test(the_moment_of_another_life_of_the_host_says_nothing),
		cmocka_unit_test(a_clock_that_is_set_far_ahead_forgets_nothing),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
