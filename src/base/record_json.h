/* JSON by a record's table (base/record.h): fields of an object that came in are checked and taken
 * into a struct. For programs that are linked with jansson. Any thread.
 *
 * An error is a user's: it names the field and what it takes, and its code is EXIT_CODE_USAGE. */
#pragma once

#include <jansson.h>

#include "base/record.h"

struct error;

/* The answer of a field's take() that did not word the error: record_take() does. */
#define RECORD_WRONG_TYPE (-1000)

/* The line of this name; NULL: there is none. */
const struct record_field *record_find(const struct record_field *fields, const char *name);
/* Takes one field's value: by its function; else a bool, an integer within its bounds, a number, or
 * a text that is valid and fits. 0, or negative with *err. */
int record_take(const struct record_field *field, const json_t *value, void *record,
		struct error *err);
/* Room for the path of a field. */
#define RECORD_PATH_SIZE 192u
/* Takes a whole object by a table, field by field. An error names the field by its path behind
 * `path` ("" at the top): "unknown key 'defaults.vrma'". 0, or negative with *err. */
int record_take_object(const struct record_field *fields, const char *path, const json_t *object,
		       void *record, struct error *err);
/* As record_take(), without the field's functions. 0; negative with *err; or RECORD_WRONG_TYPE. */
int record_take_plain(const struct record_field *field, const json_t *value, void *record,
		      struct error *err);
/* The error of a text that is wrong: "NAME: 'TEXT' is no name of a job", and what would be right.
 * Returns negative. */
int record_wrong(struct error *err, const char *name, const char *text, const char *wrong,
		 const char *hint);
/* The error of a key that is not among the first `most` lines of the table. The object that has the
 * key is at `path` ("" at the top). The hint names the line that the key is nearly spelled as, or
 * lists the lines. Returns negative. */
int record_unknown(const struct record_field *fields, size_t most, const char *what,
		   const char *path, const char *key, struct error *err);
