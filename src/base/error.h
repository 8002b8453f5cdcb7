/* The words for a user when something fails: one line of what was wrong, one of what would be
 * right.
 */
#pragma once

#include <stdarg.h>

/* Exit codes of every program here (README.md; docs/man/carve.1). Also the `code` of a JSON error.
 */
enum exit_code {
	EXIT_CODE_OK = 0,
	EXIT_CODE_FAILED = 1,
	EXIT_CODE_USAGE = 2,
	EXIT_CODE_NO_ROOM = 3,     /* not enough GPU */
	EXIT_CODE_UNREACHABLE = 4, /* no daemon */
	EXIT_CODE_NOT_PERMITTED = 5,
	EXIT_CODE_RUN_FAILED = 125, /* `carve run`'s own failures */
	EXIT_CODE_NOT_EXECUTABLE = 126,
	EXIT_CODE_NOT_FOUND = 127,
};

/* Plain data, no ownership; a zeroed struct is "no error". */
struct error {
	int code; /* an enum exit_code */
	char message[512];
	char hint[256]; /* empty: none */
};

/* Fills *err (which may be NULL) and returns the code's negative, so `return error_set(...)` reads
 * well; callers only test for < 0. The function that first classifies an error words it. */
int error_set(struct error *err, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
int error_set_va(struct error *err, int code, const char *format, va_list args)
	__attribute__((format(printf, 3, 0)));
/* Adds the line that says what would be right. */
void error_hint(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
