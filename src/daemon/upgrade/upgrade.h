/* An upgrade is a restart of the daemon after its program was replaced by another one.
 *
 * `carved --takeover` asks for it (POST /v1/upgrade, for the daemon's own user and root). The new
 * program is run once beforehand, with --takeover-check, to say that it understands the
 * configuration and the database. Then the daemon ends, and its supervisor starts the new one. */
#pragma once

struct error;

/* The number of what --takeover-check is asked. */
#define UPGRADE_VERSION 2

/* The end of `carved --takeover-check VERSION`: whether this program can follow on a daemon that
 * asks for that takeover. Prints UPGRADE_CHECKED; returns the exit code. */
#define UPGRADE_CHECKED "carved can take over\n"
int upgrade_check(const char *version, struct error *err);
/* The whole of `carved --takeover`: has the daemon in `dir` started anew as this program, and waits
 * until it serves. Returns the exit code. */
int upgrade_ask(const char *dir, struct error *err);
