/* A copy of the configuration that was last found right, as `carved.json.last`: it holds over a
 * restart with a file that is wrong. It lies where the sessions are, and in the runtime directory.
 */
#pragma once

#include <stdbool.h>

struct config;
struct error;

/* Copies the file, if it is right still. 0 or -errno: the copy in `dir` is as it was. */
int config_last_keep(const char *path, const char *dir);
/* Whether somebody removed the copy, if it was `kept`. */
bool config_last_missing(bool kept, const char *dir);
/* Reads the copy. If another user may have written it (the worker's, read by root), no place in it
 * is believed: state_dir is as in config_default. Returns 0; negative where there is none, *ret as
 * it was. */
int config_last_read(const char *dir, struct config *ret);
