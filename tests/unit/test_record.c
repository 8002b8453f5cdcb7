/* Structs by table: members of each type, and rows of a database. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/record.h"
#include "daemon/store/row.h"

enum colour { RED, GREEN };

struct thing {
	char name[8];
	const char *text;
	uint8_t small;
	int16_t below;
	uint32_t count;
	int64_t when;
	uint64_t bytes;
	double share;
	enum colour colour;
	bool on;
};

static const struct record_field fields[] = {
	RECORD_FIELD(struct thing, name, "name"),
	RECORD_FIELD(struct thing, text, "text"),
	RECORD_FIELD(struct thing, small, "small"),
	RECORD_FIELD(struct thing, below, "below"),
	RECORD_FIELD(struct thing, count, "count"),
	RECORD_FIELD(struct thing, when, "at"),
	RECORD_FIELD(struct thing, bytes, "bytes"),
	RECORD_FIELD(struct thing, share, "share"),
	RECORD_FIELD(struct thing, colour, "colour"),
	RECORD_FIELD(struct thing, on, "on_"),
	{0},
};

static const struct thing thing = {.name = "lamp",
				   .text = "a text",
				   .small = 255,
				   .below = -3,
				   .count = UINT32_MAX,
				   .when = INT64_MIN,
				   .bytes = UINT64_MAX,
				   .share = 0.25,
				   .colour = GREEN,
				   .on = true};

static const struct record_field *field_of(const char *name)
{
	const struct record_field *field = fields;

	while (strcmp(field->name, name) != 0)
		field++;
	return field;
}

static void test_a_number_keeps_its_sign_and_its_size(void **state)
{
	struct thing other = {0};

	assert_int_equal(record_number(field_of("small"), &thing), 255);
	assert_int_equal(record_number(field_of("below"), &thing), -3);
	assert_int_equal(record_number(field_of("count"), &thing), UINT32_MAX);
	record_set_number(field_of("below"), &other, -300);
	assert_int_equal(other.below, -300);
	record_set_number(field_of("small"), &other, 7);
	assert_int_equal(other.small, 7);
	assert_int_equal(other.count, 0);
}

static void test_a_bool_is_true_for_any_number_but_0(void **state)
{
	struct thing other = {0};

	record_set_number(field_of("on_"), &other, 256);
	assert_true(other.on);
	record_set_number(field_of("on_"), &other, 0);
	assert_false(other.on);
}

static void test_a_text_that_is_too_long_is_cut_and_none_is_empty(void **state)
{
	struct thing other = {0};

	record_set_text(field_of("name"), &other, "a long name");
	assert_string_equal(other.name, "a long ");
	record_set_text(field_of("name"), &other, NULL);
	assert_string_equal(other.name, "");
	assert_string_equal(record_text(field_of("text"), &other), "");
}

static sqlite3_stmt *prepared(sqlite3 *db, const char *text)
{
	sqlite3_stmt *stmt = NULL;

	assert_int_equal(sqlite3_prepare_v2(db, text, -1, &stmt, NULL), SQLITE_OK);
	return stmt;
}

static sqlite3 *database(void)
{
	sqlite3 *db;

	assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db,
				      "CREATE TABLE thing(name, text, small, below, count, at,"
				      " bytes, share, colour, on_)",
				      NULL, NULL, NULL),
			 SQLITE_OK);
	sqlite3_stmt *put = prepared(db, "INSERT INTO thing VALUES(?,?,?,?,?,?,?,?,?,?)");
	row_bind_record(put, fields, &thing);
	assert_int_equal(sqlite3_step(put), SQLITE_DONE);
	sqlite3_finalize(put);
	return db;
}

static void test_a_record_comes_back_from_the_database_as_it_was(void **state)
{
	sqlite3 *db = database();
	sqlite3_stmt *get = prepared(db, "SELECT * FROM thing");
	struct thing back = {0};

	assert_int_equal(row_next(get, fields, &back), 1);
	assert_string_equal(back.name, thing.name);
	assert_string_equal(back.text, thing.text);
	assert_int_equal(back.small, thing.small);
	assert_int_equal(back.below, thing.below);
	assert_int_equal(back.count, thing.count);
	assert_true(back.when == thing.when && back.bytes == thing.bytes);
	assert_true(back.share == thing.share && back.on);
	assert_int_equal(back.colour, GREEN);
	assert_int_equal(row_next(get, fields, &back), 0);
	assert_int_equal(row_end(get, 0), 0);
	sqlite3_finalize(get);
	sqlite3_close(db);
}

static int count_until(void *arg, const struct thing *record)
{
	int *left = arg;

	assert_string_equal(record->name, "lamp");
	return --*left ? 0 : -EPERM;
}

static void test_a_walk_ends_with_the_rows_or_with_the_callbacks_refusal(void **state)
{
	sqlite3 *db = database();
	sqlite3_stmt *get = prepared(db, "SELECT * FROM thing");
	int left = 2;

	assert_int_equal(row_each(get, fields, struct thing, count_until, &left), 0);
	assert_int_equal(left, 1);
	assert_int_equal(row_each(get, fields, struct thing, count_until, &left), -EPERM);
	sqlite3_finalize(get);
	sqlite3_close(db);
}

static void test_values_are_bound_in_their_order_and_a_missing_row_is_told(void **state)
{
	sqlite3 *db = database();
	sqlite3_stmt *get =
		prepared(db, "SELECT bytes FROM thing WHERE name=?1 AND share=?2 AND colour=?3");
	int64_t bytes = 5;

	row_bind(get, ROW_TEXT("lamp"), ROW_REAL(0.25), ROW_NUMBER(GREEN));
	assert_int_equal(row_get_number(get, &bytes), 0);
	assert_int_equal(bytes, -1);
	row_bind_at(get, 3, ROW_NUMBER(RED));
	assert_int_equal(row_get_number(get, &bytes), -ENOENT);
	assert_int_equal(bytes, -1);
	sqlite3_finalize(get);
	sqlite3_close(db);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_number_keeps_its_sign_and_its_size),
		cmocka_unit_test(test_a_bool_is_true_for_any_number_but_0),
		cmocka_unit_test(test_a_text_that_is_too_long_is_cut_and_none_is_empty),
		cmocka_unit_test(test_a_record_comes_back_from_the_database_as_it_was),
		cmocka_unit_test(test_a_walk_ends_with_the_rows_or_with_the_callbacks_refusal),
		cmocka_unit_test(test_values_are_bound_in_their_order_and_a_missing_row_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
