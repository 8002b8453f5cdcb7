/* Users that a command line names. */
#pragma once

#include <sys/types.h>

struct error;

/* Finds the user of `--user NAME`, by name or number. 0, or -EXIT_CODE_USAGE with *err. */
int user_find(const char *text, uid_t *ret, struct error *err);
