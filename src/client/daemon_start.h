#pragma once

#include <stdbool.h>

struct error;

/* Starts a carved of the user's own with its runtime directory `dir`, detached from this process,
 * its slice and its shell (service_defaults.h). Waits until `socket` (in that directory) answers:
 * at most ten seconds. Where two do this at once, one daemon gives way and both find the other. 0,
 * or negative with *err set. */
int daemon_start(const char *dir, const char *socket, struct error *err);
/* Whether the supervisor of the daemon in `dir` has ended without a word, so that nobody starts the
 * daemon again. One that ends in order leaves its lock empty. */
bool daemon_was_killed(const char *dir);
