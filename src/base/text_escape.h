/* Text that comes from others, as it can be shown: nothing of it moves a terminal's cursor, colours
 * it, ends the line or turns what follows around. libc only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The size of "\xff", which is written in place of one byte. */
#define TEXT_ESCAPE_SIZE 4

/* The text, in which all that is not UTF-8 is escaped. With `controls` control characters are, too:
 * C0, DEL and C1, those that order text from right to left, and separators of lines. `buf` has
 * TEXT_ESCAPE_SIZE bytes for each of text's, and one more. Returns it. */
const char *text_escape(const char *text, bool controls, char *buf);

/* Like text_escape() with `controls`, for a part of a stream: ends of lines and tabs stay as they
 * are. A character that the part's end cuts off is left for the next part, unless this is the
 * `last` one. `buf` has TEXT_ESCAPE_SIZE bytes for each of the part's. Returns how many of those
 * were taken, at least all but 3; *ret_size: how many are in `buf`. */
size_t text_escape_part(const char *part, size_t size, bool last, char *buf, size_t *ret_size);
