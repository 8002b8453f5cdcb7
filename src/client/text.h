/* Text that comes from others, as it can be shown: nothing of it moves a terminal's cursor, colours
 * it, ends the line or turns what follows around. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

/* The size of "\xff", which is written in place of one byte. */
#define TEXT_ESCAPE_SIZE 4

/* The text with what is not UTF-8 escaped, and with `controls` control characters, too: C0, DEL and
 * C1, those that order text from right to left, separators of lines. `buf` has TEXT_ESCAPE_SIZE
 * bytes for each of text's, and one more. Returns it. */
const char *text_escape(const char *text, bool controls, char *buf);

/* Puts a '?' for each control character in all texts in a JSON value; members whose names have some
 * are removed. No daemon sends any: so whatever a verb prints of an answer is harmless. Takes the
 * reference and returns one: of the same value, but where that is a text itself. NULL: of NULL, or
 * no memory. */
json_t *text_clean_json(json_t *value);
