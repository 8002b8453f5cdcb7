/* The removal of what a daemon left: its runtime directory, and its state. For scripts/uninstall
 * and the package, which know neither what is in there nor whose it is. */
#pragma once

#include <stdbool.h>

struct error;
struct node;

/* The whole of `carved --purge` (`state`), which removes both directories of the node, and of
 * `carved --clear`, which removes the runtime directory alone. `user` is that of --user. Refuses
 * while a daemon serves there, and where a directory is another user's. Directories are opened
 * without links and file systems on the way, and a directory's owner removes what is in it. Only
 * names that carve makes are removed; others are told and stay. Returns the exit code. */
int purge(struct node *node, const char *user, bool state, struct error *err);
