/* Structs by table: members of each type, and rows of a database. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/record_json.h"
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
	assert_int_equal(row_get_numbers(get, &bytes, 1), 0);
	assert_int_equal(bytes, -1);
	row_bind_at(get, 3, ROW_NUMBER(RED));
	assert_int_equal(row_get_numbers(get, &bytes, 1), -ENOENT);
	assert_int_equal(bytes, -1);
	sqlite3_finalize(get);
	sqlite3_close(db);
}

static bool is_lower(const char *text)
{
	return *text && strspn(text, "abcdefghijklmnopqrstuvwxyz") == strlen(text);
}

static int even_take(const json_t *value, void *record, struct error *err)
{
	struct thing *to = record;

	if (!json_is_integer(value))
		return RECORD_WRONG_TYPE;
	to->bytes = (uint64_t)json_integer_value(value);
	return to->bytes % 2 ? error_set(err, EXIT_CODE_USAGE, "bytes: it is odd") : 0;
}

static int on_check(void *record, struct error *err)
{
	const struct thing *to = record;

	return to->on && to->below < 0 ? error_set(err, EXIT_CODE_USAGE, "on: it is below 0") : 0;
}

static const struct record_field taken[] = {
	RECORD_FIELD(struct thing, name, "name", .takes = "a text", .valid = is_lower,
		     .wrong = "is no name", .hint = "small letters"),
	RECORD_FIELD(struct thing, below, "below", .takes = "a whole number", .least = -5,
		     .most = 9),
	RECORD_FIELD(struct thing, colour, "colour", .takes = "\"red\" or \"green\"",
		     .words = (const char *const[]){"red", "green", NULL}),
	RECORD_FIELD(struct thing, on, "on", .takes = "true or false", .then = on_check),
	{"bytes", .take = even_take, .takes = "an even number"},
	{0},
};

/* Takes an object, which is to be wrong in this way; "": it is right. */
static void assert_taken(const char *text, const char *message)
{
	struct thing to = {0};
	struct error err = {0};
	json_t *object = json_loads(text, 0, NULL);
	const char *key;
	json_t *value;
	int rc = 0;

	json_object_foreach(object, key, value)
	{
		const struct record_field *field = record_find(taken, key);

		if (rc == 0)
			rc = field ? record_take(field, value, &to, &err)
				   : record_unknown(taken, SIZE_MAX, "field", "", key, &err);
	}

	assert_string_equal(err.message, message);
	assert_int_equal(rc, *message ? -EXIT_CODE_USAGE : 0);
	json_decref(object);
}

static void test_a_field_of_json_is_taken_or_its_error_says_what_is_wrong(void **state)
{
	assert_taken("{\"name\": \"lamp\", \"below\": -5, \"on\": false, \"bytes\": 4}", "");
	assert_taken("{\"name\": 7}", "'name' takes a text");
	assert_taken("{\"name\": \"Lamp\"}", "name: 'Lamp' is no name");
	assert_taken("{\"name\": \"eightlet\"}", "name: 'eightlet' is no name");
	assert_taken("{\"below\": \"3\"}", "'below' takes a whole number");
	assert_taken("{\"below\": 10}", "below: 10 is outside -5 to 9");
	assert_taken("{\"below\": -6}", "below: -6 is outside -5 to 9");
	assert_taken("{\"on\": 1}", "'on' takes true or false");
	assert_taken("{\"on\": null}", "'on' takes true or false");
	assert_taken("{\"below\": -1, \"on\": true}", "on: it is below 0");
	assert_taken("{\"bytes\": 3}", "bytes: it is odd");
	assert_taken("{\"bytes\": 0.5}", "'bytes' takes an even number");
	assert_taken("{\"colour\": \"green\"}", "");
	assert_taken("{\"colour\": \"blue\"}", "'colour' takes \"red\" or \"green\"");
	assert_taken("{\"colour\": 0}", "'colour' takes \"red\" or \"green\"");
	assert_taken("{\"color\": 0}", "unknown field 'color'");
}

static void test_the_hint_of_an_unknown_field_lists_the_known_ones(void **state)
{
	struct error err = {0};

	assert_true(record_unknown(taken, SIZE_MAX, "key", "", "x", &err) < 0);
	assert_string_equal(err.hint, "there are name, below, colour, on, bytes");
	assert_true(record_unknown(taken, 2, "key", "", "x", &err) < 0);
	assert_string_equal(err.hint, "there are name, below");
	assert_ptr_equal(record_find(taken, "on"), &taken[3]);
	assert_null(record_find(taken, "o"));
}

struct box {
	struct thing thing;
	int count;
};

static const struct record_field box_fields[] = {
	RECORD_FIELD_OF(struct box, thing, "thing", taken, .takes = "an object"),
	RECORD_FIELD(struct box, count, "count", .takes = "a whole number"),
	{0},
};

static void assert_boxed(const char *text, const char *message)
{
	struct box box = {0};
	struct error err = {0};
	json_t *object = json_loads(text, 0, NULL);
	int rc = record_take_object(box_fields, "", object, &box, &err);

	assert_string_equal(err.message, message);
	assert_int_equal(rc, *message ? -EXIT_CODE_USAGE : 0);
	if (!*message) {
		assert_int_equal(box.thing.below, 3);
		assert_int_equal(box.count, 2);
	}
	json_decref(object);
}

static void test_fields_of_an_object_in_an_object_are_named_by_their_path(void **state)
{
	assert_boxed("{\"thing\": {\"below\": 3}, \"count\": 2}", "");
	assert_boxed("{\"thing\": {\"belwo\": 3}}", "unknown key 'thing.belwo'");
	assert_boxed("{\"thing\": {\"below\": \"x\"}}", "thing.below takes a whole number");
	assert_boxed("{\"thing\": 3}", "thing takes an object");
	assert_boxed("{\"cuont\": 3}", "unknown key 'cuont'");
}

static void assert_unknown(const struct record_field *names, const char *path, const char *key,
			   const char *hint)
{
	struct error err = {0};

	assert_int_equal(record_unknown(names, SIZE_MAX, "key", path, key, &err), -EXIT_CODE_USAGE);
	assert_string_equal(err.hint, hint);
}

static void test_a_key_that_is_nearly_a_name_is_answered_with_the_name(void **state)
{
	assert_unknown(box_fields, "", "cuont", "did you mean 'count'?");
	assert_unknown(taken, "thing", "belwo", "did you mean 'thing.below'?");
	assert_unknown(box_fields, "", "colour", "there are thing, count");
}

static void test_a_list_of_names_without_room_ends_with_a_whole_name(void **state)
{
	static const char name[] = "a_name_of_thirty_characters_in";
	static const char hint[] =
		"there are a_name_of_thirty_characters_in, "
		"a_name_of_thirty_characters_in, a_name_of_thirty_characters_in, "
		"a_name_of_thirty_characters_in, a_name_of_thirty_characters_in, "
		"a_name_of_thirty_characters_in, a_name_of_thirty_characters_in";
	struct record_field names[21] = {0};
	char cut[sizeof(hint) + 8];

	for (size_t i = 0; i < 7; i++)
		names[i].name = name;
	assert_unknown(names, "", "x", hint);
	for (size_t i = 7; i < 20; i++)
		names[i].name = name;
	snprintf(cut, sizeof(cut), "%s, ...", hint);
	assert_unknown(names, "", "x", cut);
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
		cmocka_unit_test(test_a_field_of_json_is_taken_or_its_error_says_what_is_wrong),
		cmocka_unit_test(test_the_hint_of_an_unknown_field_lists_the_known_ones),
		cmocka_unit_test(test_fields_of_an_object_in_an_object_are_named_by_their_path),
		cmocka_unit_test(test_a_key_that_is_nearly_a_name_is_answered_with_the_name),
		cmocka_unit_test(test_a_list_of_names_without_room_ends_with_a_whole_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
