/* A line of the log, whatever its values bring along: words that any reader of logfmt takes apart
 * as they were put together. */
#pragma once

#include <stdarg.h>
#include <stddef.h>

/* Longer lines are cut, a value's closing quote included in what is left. */
#define LOG_LINE_MAX 1024

/* `format` is an event and its keys: "session.ended id=%s reason=\"%s\" size=%" PRIu64. Only what
 * stands after a key's '=' is a value, so no argument can end its value or add a key. A value is
 * quoted where the format quotes it, or where it has a blank, '=' or '"'; in quotes, '"', '\' and
 * control characters are escaped as in JSON. Control characters elsewhere are '?'. `size`: 2 bytes
 * at least. Returns the length without the final 0. `args` is indeterminate afterwards. Any thread.
 */
size_t log_line(char *text, size_t size, const char *format, va_list args)
	__attribute__((format(printf, 3, 0)));
