/* The output of carve: JSON, tables, errors. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

struct column;
struct error;

/* "carve: MESSAGE" and "  hint: HINT" on stderr, or the JSON object with `json`. */
void output_error(const struct error *err, bool json);
/* A value and a newline on stdout. Returns 0, or negative with *err set where stdout does not take
 * it. */
int output_json(const json_t *value, struct error *err);
/* Likewise as one line: of a stream, whose reader takes a line for a value. */
int output_json_line(const json_t *value, struct error *err);

/* Whether a path that the user gave means standard output: "-". NULL doesn't. */
bool output_is_stdout(const char *path);
/* Has `write` (0 or -errno) fill the file, or standard output. Returns 0, or negative with *err
 * set. */
int output_file(const char *path, int (*write)(FILE *file, const void *data), const void *data,
		struct error *err);
/* Refuses a path at which no file can be written, before long work: 0, or negative with *err set.
 */
int output_check_path(const char *path, struct error *err);
/* Whether both are one file, however that is spelled, there already or not. */
bool output_is_same(const char *path, const char *other);
/* Only one thing can go to standard output. Refuses --json (`json`) where `option`, as the user
 * knows it, has sent `what` there. */
int output_check_json(bool json, const char *path, const char *option, const char *what,
		      struct error *err);

#define TABLE_COLUMNS_MAX 32u
/* Rows of text whose columns line up. Zeroed: empty. Not for several threads. */
struct table {
	char **cells;
	size_t count, columns;
};

/* Starts the table: a NULL-terminated list of headings, TABLE_COLUMNS_MAX at most. */
void table_begin(struct table *t, const char *const *headings);
/* Adds the next cell, left to right. Control characters become '?': names come from others. */
void table_add(struct table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints all rows on stdout. On a terminal that is narrower than the table, the columns that do not
 * fit stand below the others, indented, under headings of their own. A line of dashes only is left
 * out. Elsewhere each row is one line. */
void table_print(const struct table *t);
void table_free(struct table *t);
/* Prints an array of objects as a table. */
void table_print_rows(const struct column *columns, size_t count, const json_t *rows);
#define cleanup_table __attribute__((cleanup(table_free)))
