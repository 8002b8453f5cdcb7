/* A copy of the configuration that was last found right, as `carved.json.last`: it holds over a
 * restart with a file that is wrong. It lies where the sessions are, and in the runtime directory.
 */
#pragma once

#include <stdbool.h>

struct config;
struct error;

/* Copies the file, if it is right still. 0 or -errno: the copy in `dir` is as it was. */
int config_last_keep(const char *path, const char *dir);
/* The text of the copy, from malloc. NULL: there is none, or no memory. */
char *config_last_text(const char *dir);
/* The keys in which the file differs from a text before, as JSON objects: with the values before,
 * and with the values of the file; "" of none. `before` NULL: nothing was set. */
#define CONFIG_CHANGE_SIZE 256
void config_change_text(const char *before, const char *path,
			char ret_before[static CONFIG_CHANGE_SIZE],
			char ret_after[static CONFIG_CHANGE_SIZE]);
/* Whether somebody removed the copy, if it was `kept`. */
bool config_last_missing(bool kept, const char *dir);
/* Reads the copy. If another user may have written it (the worker's, read by root), no place in it
 * is believed: state_dir is as in config_default. Returns 0; negative where there is none, *ret as
 * it was. */
int config_last_read(const char *dir, struct config *ret);
/* Reads the copy in the state directory; else the copy in the runtime directory. Returns like
 * config_last_read(). */
int config_last_find(const char *state_dir, const char *runtime_dir, struct config *ret);
