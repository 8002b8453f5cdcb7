/* Times and moments as users write them. */
#pragma once

#include <stdint.h>

struct error;

/* "30m", "90s", "1h30m", "1d": whole seconds. 0, or negative: it looks otherwise. */
int when_unit_time(const char *text, int64_t *ret_seconds);
/* Local time, in seconds since 1970: "2026-11-30", "2026-11-30T08:00:30", or "18:30", which is of
 * today or tomorrow. 0, or negative: it looks otherwise. */
int when_calendar_time(const char *text, int64_t *ret);
/* The moment in the past of --since, in seconds since 1970: "2h" ago, "18:30" or
 * "2026-11-30T08:00". 0, or negative with *err. */
int when_since(const char *text, int64_t *ret, struct error *err);
