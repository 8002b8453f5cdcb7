/* Text as a terminal can show it, whatever it is and however wide its characters are. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Exactly `width` columns of text (in the encoding of LC_CTYPE; the rest is cut off or filled with
 * spaces). A character that cannot be shown becomes '?'. Four bytes a column and one more are room
 * enough. Returns buf. */
const char *top_text_fit(const char *text, int width, bool right, char *buf, size_t size);
/* Columns that the text takes. */
int top_text_width(const char *text);
/* Takes the next line off a text: at most `width` columns of it, which end at a space where they
 * can. False: there is no line more. */
bool top_text_line(const char **text, int width, char *buf, size_t size);
