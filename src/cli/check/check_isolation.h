/* carve check: how `carve run` isolates here, and what it does not reach. */
#pragma once

#include <jansson.h>

/* Tries what `carve run` does here, for this user. An object: default ("mount" or "preload"), why,
 * mount, user_namespace (whether --isolation mount works, and how), why_no_mount, preload, reaches,
 * not_reached, advice (arrays of lines). */
json_t *check_isolation(void);
/* The lines of it for people. */
void check_isolation_print(const json_t *isolation);
