/* Moments that the daemon names, as people read them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MOMENT_SIZE 24

/* Seconds since 1970 of "2026-11-30T08:00:00.123Z", as the API writes moments; 0 of NULL and of
 * anything else. */
int64_t moment_parse(const char *text);
/* The whole of it, in local time: "2026-11-30 08:00:00". Returns buf. */
const char *moment_exact_text(int64_t moment, char buf[static MOMENT_SIZE]);
/* In local time: of `now`'s day its time, "08:00"; of another day its date, "11-29". Empty of 0.
 * Returns buf. */
const char *moment_text(int64_t moment, int64_t now, char buf[static MOMENT_SIZE]);
/* The same, and of another day its time, too, "11-29 08:00", or of another year the whole date. */
const char *moment_long_text(int64_t moment, int64_t now, char buf[static MOMENT_SIZE]);
