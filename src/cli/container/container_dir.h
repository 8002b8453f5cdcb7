/* The directory with the files that are made for one container. A container that has stopped may be
 * started again by its runtime, which needs what it mounts. So the directory stays until the
 * container is gone, and a later command of carve's removes it then. */
#pragma once

#include <limits.h>
#include <stdbool.h>

struct error;
struct runtime;

/* Makes an empty one. 0, or negative with *err set. */
int container_dir_make(char dir[static PATH_MAX], struct error *err);
void container_dir_remove(const char *dir);
/* Notes whose it is, for container_dirs_collect(). */
void container_dir_keep(const char *dir, const struct runtime *runtime, const char *cid);
/* This process and those that it forks use it: nobody else removes it until they have ended. */
void container_dir_hold(const char *dir);
/* Removes those of this user that were kept for containers of this runtime, as far as these are
 * gone. Waits for the runtime's list of containers. */
void container_dirs_collect(const struct runtime *runtime);
