/* The user's own directory for what carve keeps: $XDG_CACHE_HOME/carve, or ~/.cache/carve. */
#pragma once

#include <limits.h>

/* A directory in it, made where it is missing. 0 or -errno, with the path in `ret` ("": HOME is not
 * set). -EPERM: another user owns a directory on the way. Root may have been given a user's HOME.
 * That user could put links and files there for root. */
int cache_dir_make(const char *name, char ret[static PATH_MAX]);
/* Why it failed, in words. */
const char *cache_dir_why(int rc);
