/* The user's own directory for what carve keeps: $XDG_CACHE_HOME/carve, or ~/.cache/carve. */
#pragma once

#include <limits.h>

/* A directory in it, made where it is missing. 0 or -errno, with the path in `ret` ("": HOME is not
 * set). */
int cache_dir_make(const char *name, char ret[static PATH_MAX]);
