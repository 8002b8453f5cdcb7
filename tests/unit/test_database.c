/* The versions of a database's schema: what is made, brought up to date, and refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "daemon/store/database.h"

#define SETTINGS "PRAGMA journal_mode=WAL;"
#define BASE 17

#define TEMPLATE "/tmp/carve-test-database-XXXXXX"

static char path[sizeof(TEMPLATE)];

static const char tables[] = "CREATE TABLE a(x INTEGER); INSERT INTO a VALUES(1);";
#define SECOND "ALTER TABLE a ADD COLUMN y INTEGER NOT NULL DEFAULT 2;"
static const char *const migrations[] = {
	SECOND,
	"CREATE TABLE b(z INTEGER); INSERT INTO b SELECT x + y FROM a;",
	NULL,
};
static const char *const broken[] = {SECOND, "INSERT INTO none VALUES(1);", NULL};

static const struct database_schema first = {.base = BASE, .text = tables};
static const struct database_schema later = {BASE, tables, migrations};
static const struct database_schema wrong = {BASE, tables, broken};

static int setup(void **state)
{
	memcpy(path, TEMPLATE, sizeof(path));
	int fd = mkstemp(path);
	return fd < 0 ? -1 : close(fd);
}

static int teardown(void **state)
{
	static const char *const ends[] = {"", "-wal", "-shm"};
	char file[sizeof(path) + 8];

	for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
		snprintf(file, sizeof(file), "%s%s", path, ends[i]);
		(void)unlink(file);
	}
	return 0;
}

/* Opens and closes it. Returns its version, or the -errno of the opening. `query`: a number of it
 * that is to be `expected`. */
static int opened(const struct database_schema *schema, const char *query, int expected)
{
	sqlite3_stmt *statement[1] = {NULL};
	struct database database = {.settings = SETTINGS,
				    .schema = schema,
				    .texts = &query,
				    .statements = statement,
				    .count = 1};
	int version = 0, rc = database_open(&database, path);

	if (rc == 0) {
		assert_int_equal(sqlite3_step(statement[0]), SQLITE_ROW);
		assert_int_equal(sqlite3_column_int(statement[0], 0), expected);
		sqlite3_reset(statement[0]);
		rc = database_version(database.db, &version);
	}
	database_close(&database);
	return rc < 0 ? rc : version;
}

static void a_database_gets_each_migration_once(void **state)
{
	assert_int_equal(opened(&first, "SELECT x FROM a", 1), BASE);
	assert_int_equal(opened(&first, "SELECT count(*) FROM a", 1), BASE);
	assert_int_equal(opened(&later, "SELECT z FROM b", 3), BASE + 2);
	assert_int_equal(opened(&later, "SELECT count(*) FROM b", 1), BASE + 2);
}

static void an_empty_database_gets_all_of_the_schema(void **state)
{
	assert_int_equal(opened(&later, "SELECT z FROM b", 3), BASE + 2);
}

static void a_migration_that_fails_leaves_the_database_as_it_was(void **state)
{
	assert_int_equal(opened(&first, "SELECT x FROM a", 1), BASE);
	assert_true(opened(&wrong, "SELECT x FROM a", 1) < 0);
	assert_int_equal(opened(&first, "SELECT count(*) FROM pragma_table_info('a')", 1), BASE);
}

static void databases_of_newer_versions_and_from_before_the_base_are_refused(void **state)
{
	struct database_schema older = {BASE - 1, tables, NULL};

	assert_int_equal(opened(&older, "SELECT x FROM a", 1), BASE - 1);
	assert_int_equal(opened(&first, "SELECT x FROM a", 1), -EPROTONOSUPPORT);
	older.migrations = migrations;
	assert_int_equal(opened(&older, "SELECT x FROM a", 1), BASE + 1);
	assert_int_equal(opened(&first, "SELECT x FROM a", 1), -EPROTONOSUPPORT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_database_gets_each_migration_once, setup,
						teardown),
		cmocka_unit_test_setup_teardown(an_empty_database_gets_all_of_the_schema, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			a_migration_that_fails_leaves_the_database_as_it_was, setup, teardown),
		cmocka_unit_test_setup_teardown(
			databases_of_newer_versions_and_from_before_the_base_are_refused, setup,
			teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
