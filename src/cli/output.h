/* What carve prints: JSON, tables, errors. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct error;

/* "carve: MESSAGE" and "  hint: HINT" on stderr, or the JSON object with `json`. */
void output_error(const struct error *err, bool json);
/* A value and a newline on stdout. Returns 0, or negative with *err set where stdout does not take
 * it. */
int output_json(const json_t *value, struct error *err);

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
/* Prints all rows on stdout. */
void table_print(const struct table *t);
void table_free(struct table *t);
#define cleanup_table __attribute__((cleanup(table_free)))
