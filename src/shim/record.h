/* The records that a shim leaves (proto/shim.h): small JSON files, put in place by rename. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

/* DIR/NAME + suffix. */
struct record_place {
	const char *dir, *name;
};

/* Writes the object, which is the function's from now on. It is on the disk when this returns. 0 or
 * -errno. */
int record_write(const struct record_place *place, const char *suffix, json_t *object);
bool record_exists(const struct record_place *place, const char *suffix);
