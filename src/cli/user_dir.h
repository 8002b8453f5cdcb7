/* The user's own directories for what carve keeps: $XDG_CACHE_HOME/carve (~/.cache/carve) for what
 * can be made again, and $XDG_STATE_HOME/carve (~/.local/state/carve) for what cannot. */
#pragma once

#include <limits.h>

/* Makes a directory in one of them, where it is missing; `name` "": that itself. 0 or -errno, with
 * the path in `ret` ("": HOME is not set). -EPERM: another user owns a directory on the way. Root
 * may have been given a user's HOME. That user could put links and files there for root. */
int user_dir_cache(const char *name, char ret[static PATH_MAX]);
int user_dir_state(const char *name, char ret[static PATH_MAX]);
/* Why it failed, in words. */
const char *user_dir_why(int rc);
