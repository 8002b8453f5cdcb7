/* Text that comes from others, as it can be shown: nothing of it moves a terminal's cursor, colours
 * it, ends the line or turns what follows around. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* The size of "\xff", which is written in place of one byte. */
#define TEXT_ESCAPE_SIZE 4

/* The text, in which all that is not UTF-8 is escaped. With `controls` control characters are, too:
 * C0, DEL and C1, those that order text from right to left, and separators of lines. `buf` has
 * TEXT_ESCAPE_SIZE bytes for each of text's, and one more. Returns it. */
const char *text_escape(const char *text, bool controls, char *buf);

/* Likewise with `controls`, of a part of a stream: ends of lines and tabs stay as they are. A
 * character that the part's end cuts off is left for the next part, unless this is the `last` one.
 * `buf` has TEXT_ESCAPE_SIZE bytes for each of the part's. Returns how many of those were taken, at
 * least all but 3; *ret_size: how many are in `buf`. */
size_t text_escape_part(const char *part, size_t size, bool last, char *buf, size_t *ret_size);

/* Appends a text to a URL in `buf`: bytes that have a meaning there as %XX. A text that `size` has
 * no room for is cut off, and false is returned. */
bool text_url_append(char *buf, size_t size, const char *text);

/* Puts a '?' for each control character in all texts in a JSON value; members whose names have some
 * are removed. No daemon sends any: so whatever a verb prints of an answer is harmless. Takes the
 * reference and returns one: of the same value, but where that is a text itself. NULL: of NULL, or
 * no memory. */
json_t *text_clean_json(json_t *value);
