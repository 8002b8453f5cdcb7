/* The options of `carve quota`: whose quota it is, and the limits that are set. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/units.h"

#define QUOTA_PATH_SIZE 256

struct cli;
struct error;

/* GPU-hours for people: a use in hundredths, "12.50", and a limit as it was set. Returns buf. */
const char *quota_hours_text(double hours, bool is_limit, char buf[static UNITS_TEXT_SIZE]);
/* The path in the API of the quota that the command line names. `own`: the caller's, where none is.
 * 0, or negative with *err. */
int quota_options_path(const struct cli *cli, bool own, char buf[static QUOTA_PATH_SIZE],
		       struct error *err);
/* The limits that are given, as the body of a request. 0, or negative with *err. */
int quota_options_read(const struct cli *cli, json_t *body, struct error *err);
