/* Texts of the daemon's answers and in its URLs (base/text_escape.h shows what others wrote). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Appends a text to a URL in `buf`: bytes that have a meaning there as %XX. A text that `size` has
 * no room for is cut off, and false is returned. */
bool text_url_append(char *buf, size_t size, const char *text);

/* Puts a '?' for each control character in all texts in a JSON value; members whose names have some
 * are removed. No daemon sends any: so whatever a verb prints of an answer is harmless. Takes the
 * reference and returns one: of the same value, but where that is a text itself. NULL: of NULL, or
 * no memory. */
json_t *text_clean_json(json_t *value);
