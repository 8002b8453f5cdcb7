/* A struct by table: one description of its members, from which it is read and written.
 *
 * A struct that is also a JSON object or a row of a database has a table of struct record_field.
 * The table has one line for each member, with the name that the member has outside, its type, and
 * its place in the struct. The table ends with a line without a name. The readers and writers are
 * base/record_json.h (JSON) and daemon/store/row.h (rows of SQL).
 *
 * A line for JSON also says what the member takes: bounds, and words for a user who gave something
 * else. A member whose value needs thought has a function in its line: a size with its unit, or a
 * contradiction to another member.
 *
 * Units and ownership are the struct's: a table moves a value as it is. RECORD_TEXT is an array in
 * the struct, which is always ended by a zero. RECORD_BORROWED points to a text that somebody else
 * owns, RECORD_TEXTS and RECORD_OBJECT to a part of the JSON that was read. Nothing here allocates
 * memory or fails. Any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum record_type {
	RECORD_SIGNED, /* an integer of 1, 2, 4 or 8 bytes; also an enum */
	RECORD_UNSIGNED,
	RECORD_BOOL,
	RECORD_REAL,     /* a double */
	RECORD_TEXT,     /* char[size] */
	RECORD_BORROWED, /* const char * */
	/* A part of a JSON text, const json_t *: */
	RECORD_TEXTS,  /* a list of texts */
	RECORD_OBJECT, /* an object */
	/* The function of the line takes JSON of more than one type. */
	RECORD_SEVERAL,
};

struct error;
struct json_t; /* jansson's; this header needs no jansson */

struct record_field {
	const char *name; /* NULL: the end of the table */
	enum record_type type;
	uint16_t offset, size; /* bytes; size 0: no member, the value is looked at only */
	/* Words for the values 0, 1, ... of an enum, ended by NULL. */
	const char *const *words;

	/* The rest is for JSON that comes in (base/record_json.h). */
	const char *takes;   /* "a whole number": for the error where the type is wrong */
	int64_t least, most; /* the bounds of an integer; both 0: any that the member holds */
	/* Whether a text is right; and where it is not, "is no name of a job" and what is one. */
	bool (*valid)(const char *text);
	const char *wrong, *hint;
	/* Takes the value in place of the plain reader. 0; negative with *err; or
	 * RECORD_WRONG_TYPE. */
	int (*take)(const struct json_t *value, void *record, struct error *err);
	/* The member is a struct with a table of its own, which a JSON object fills. Errors name
	 * its fields by their path: "defaults.vram". */
	const struct record_field *fields;
	/* Looks at the record once the value is in it. 0, or negative with *err. */
	int (*then)(void *record, struct error *err);
};

/* The type of a member, which is chosen when the program is compiled. */
#define RECORD_TYPE(value) \
	_Generic((value), bool: RECORD_BOOL, char *: RECORD_TEXT, const char *: RECORD_BORROWED, \
		double: RECORD_REAL, unsigned char: RECORD_UNSIGNED,                        \
		unsigned short: RECORD_UNSIGNED, unsigned: RECORD_UNSIGNED,                 \
		unsigned long: RECORD_UNSIGNED, default: RECORD_SIGNED)
/* A line for a member that is a struct with a table of its own. */
#define RECORD_FIELD_OF(structure, member, field_name, its_fields, ...)                    \
	{                                                                                  \
		.name = (field_name), .type = RECORD_OBJECT,                               \
		.offset = offsetof(structure, member), .fields = (its_fields), __VA_ARGS__ \
	}
/* A line for a part of JSON, whose type is named. */
#define RECORD_FIELD_AS(as, structure, member, field_name, ...)                            \
	{                                                                                  \
		.name = (field_name), .type = (as), .offset = offsetof(structure, member), \
		.size = sizeof(const void *), __VA_ARGS__                                  \
	}
/* The line of a table for a member of a struct; behind the name what else it says, as .takes =
 * "...".
 */
#define RECORD_FIELD(structure, member, field_name, ...)                                \
	{                                                                               \
		.name = (field_name), .type = RECORD_TYPE(((structure *)NULL)->member), \
		.offset = offsetof(structure, member),                                  \
		.size = sizeof(((structure *)NULL)->member), __VA_ARGS__                \
	}

static inline void *record_member(const struct record_field *field, const void *record)
{
	return (char *)record + field->offset;
}

/* The value of an integer or a bool. An unsigned one of 8 bytes comes as its two's complement. */
int64_t record_number(const struct record_field *field, const void *record);
/* Sets an integer to the value's lower bytes, and a bool to whether the value is not 0. */
void record_set_number(const struct record_field *field, void *record, int64_t value);
/* The text; never NULL. */
const char *record_text(const struct record_field *field, const void *record);
/* Copies as much of the text as there is room for, or keeps the pointer. NULL is "". */
void record_set_text(const struct record_field *field, void *record, const char *text);
