/* A copy of a git tree's tracked files as they are now, for a job that runs later. */
#pragma once

#include <limits.h>

struct error;

/* Copies the tree that the current directory is in, and names the same directory in the copy.
 * Copies are in $XDG_CACHE_HOME/carve/snapshots, named by what is in them: the same files are
 * copied once. 0, or negative with *err. */
int snapshot_make(char ret[static PATH_MAX], struct error *err);
