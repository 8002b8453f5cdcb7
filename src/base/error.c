#include "base/error.h"

#include <stdio.h>

int error_set_va(struct error *err, int code, const char *format, va_list args)
{
	if (err) {
		err->code = code;
		err->hint[0] = '\0';
		/* The analyzer of clang 14 does not follow va_start into a call. */
		/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
		vsnprintf(err->message, sizeof(err->message), format, args);
	}
	return -code;
}

int error_set(struct error *err, int code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	int rc = error_set_va(err, code, format, args);
	va_end(args);
	return rc;
}

void error_hint(struct error *err, const char *format, ...)
{
	va_list args;

	if (!err)
		return;
	va_start(args, format);
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
	vsnprintf(err->hint, sizeof(err->hint), format, args);
	va_end(args);
}
