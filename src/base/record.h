/* A struct by table: one description of its members, from which it is read and written.
 *
 * A struct that comes in as JSON, goes out as JSON or lies in a database as a row has a table of
 * struct record_field, one line for each member: the name that the member has outside, its type,
 * and where it is in the struct. The table ends with an entry without a name. The readers and
 * writers are base/record_json.h (JSON) and daemon/store/row.h (rows of SQL). A member whose value
 * needs thought (a size with its unit, a choice by the caller's rights) is not in the table's plain
 * lines: it has a function, or the caller deals with it beside the table.
 *
 * Units and ownership are the struct's: a table moves a value as it is. RECORD_TEXT is an array in
 * the struct, which is always ended by a zero; RECORD_BORROWED points to a text of somebody else's.
 * Nothing here allocates memory or fails. Any thread. */
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
};

struct record_field {
	const char *name; /* NULL: the end of the table */
	enum record_type type;
	uint16_t offset, size; /* bytes */
};

/* The type of a member, which is chosen when the program is compiled. */
#define RECORD_TYPE(value) \
	_Generic((value), bool: RECORD_BOOL, char *: RECORD_TEXT, const char *: RECORD_BORROWED, \
		double: RECORD_REAL, unsigned char: RECORD_UNSIGNED,                        \
		unsigned short: RECORD_UNSIGNED, unsigned: RECORD_UNSIGNED,                 \
		unsigned long: RECORD_UNSIGNED, default: RECORD_SIGNED)
/* The line of a table for a member of a struct. */
#define RECORD_FIELD(structure, member, field_name)                                     \
	{                                                                               \
		.name = (field_name), .type = RECORD_TYPE(((structure *)NULL)->member), \
		.offset = offsetof(structure, member),                                  \
		.size = sizeof(((structure *)NULL)->member),                            \
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
