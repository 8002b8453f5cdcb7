/* Rows of SQL, as structs: parameters are bound and columns are read by a record's table
 * (base/record.h). Line N of the table is parameter N of a statement, and column N of its answer.
 * SQLite's errors become -errno by store_errno(). A statement comes here reset and without values,
 * and is reset again when a function that runs it to its end returns.
 *
 * A RECORD_BORROWED text of a row is SQLite's, and is valid until the next row. Loop thread. */
#pragma once

#include <sqlite3.h>
#include <stdint.h>

#include "base/record.h"

/* A value for a parameter of a statement: row_run(stmt, ROW_TEXT(id), ROW_NUMBER(uid)). */
struct row_value {
	enum record_type type;
	int64_t number;
	double real;
	const char *text;
};
#define ROW_NUMBER(value)                                         \
	(struct row_value)                                        \
	{                                                         \
		.type = RECORD_SIGNED, .number = (int64_t)(value) \
	}
#define ROW_REAL(value)                              \
	(struct row_value)                           \
	{                                            \
		.type = RECORD_REAL, .real = (value) \
	}
#define ROW_TEXT(value)                              \
	(struct row_value)                           \
	{                                            \
		.type = RECORD_TEXT, .text = (value) \
	}
/* Binds values to the parameters from 1 on. Texts are copied. Evaluates to the statement. */
#define row_bind(stmt, ...) row_bind_at(stmt, 1, __VA_ARGS__)
/* As row_bind(), from parameter `first` on: for values that follow a record. */
#define row_bind_at(stmt, first, ...)                                         \
	row_bind_values(stmt, first, (const struct row_value[]){__VA_ARGS__}, \
			sizeof((const struct row_value[]){__VA_ARGS__}) /     \
				sizeof(struct row_value))
/* Runs a statement without rows. 0 or -errno. */
int store_step(sqlite3_stmt *stmt);
/* Binds values and runs a statement without rows. 0 or -errno. */
#define row_run(stmt, ...) store_step(row_bind(stmt, __VA_ARGS__))
sqlite3_stmt *row_bind_values(sqlite3_stmt *stmt, int first, const struct row_value *values,
			      size_t count);
/* Binds all fields. Texts are the record's, and stay until the statement was run. */
sqlite3_stmt *row_bind_record(sqlite3_stmt *stmt, const struct record_field *fields,
			      const void *record);
/* Steps to the next row: 1; 0: there are no more; or -errno. */
int row_step(sqlite3_stmt *stmt);
/* The next row: 1 and *ret, whose other members stay as they are; 0: there are no more; or -errno.
 */
int row_next(sqlite3_stmt *stmt, const struct record_field *fields, void *ret);
/* Ends a walk that came to `rc`. Returns a negative rc, else 0. */
int row_end(sqlite3_stmt *stmt, int rc);
/* Calls cb(arg, &record) for each row. A result other than 0 ends the walk. Evaluates to a negative
 * result of a callback, -errno, or 0. */
#define row_each(stmt, fields, structure, cb, arg)                        \
	({                                                                \
		sqlite3_stmt *stmt_ = (stmt);                             \
		structure record_ = {0};                                  \
		int rc_;                                                  \
		while ((rc_ = row_next(stmt_, (fields), &record_)) > 0 && \
		       (rc_ = (cb)((arg), &record_)) == 0)                \
			;                                                 \
		row_end(stmt_, rc_);                                      \
	})
/* The only row, or the first. 0, -ENOENT where there is none, or -errno. */
int row_get(sqlite3_stmt *stmt, const struct record_field *fields, void *ret);
/* As row_next() and row_get(), for a row without a table: they read the numbers in its first
 * columns. */
int row_next_numbers(sqlite3_stmt *stmt, int64_t *ret, int count);
int row_get_numbers(sqlite3_stmt *stmt, int64_t *ret, int count);
