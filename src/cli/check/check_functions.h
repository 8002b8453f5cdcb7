/* Functions of the driver that carve's library, which stands before it, does not know: nobody has
 * decided what they take, so they pass it as they are. */
#pragma once

#include <jansson.h>

struct driver_libs;
struct places;

/* The names of such functions of both libraries, sorted. Empty where a library cannot be read. */
json_t *check_functions(const struct driver_libs *driver, const struct places *places);
