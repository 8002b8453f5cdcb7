/* Where carve's other parts are: beside build/carve, or below the prefix it was installed to. */
#pragma once

#include <limits.h>
#include <stdbool.h>

struct error;

struct places {
	char daemon[PATH_MAX];
	char front_cuda[PATH_MAX];
	char front_nvml[PATH_MAX];
	char simhost[PATH_MAX];
};

/* Absolute paths; none is checked to exist. 0, or negative with *err set. */
int places_find(struct places *ret, struct error *err);
/* Whether our libraries' paths can stand in LD_PRELOAD, LD_LIBRARY_PATH and the slice's file. No
 * character in them ends an entry of these, or is expanded by ld.so. 0, or negative with *err
 * set. */
int places_check(const struct places *places, struct error *err);
/* Whether the programs of every user can preload our libraries from where they are. */
bool places_serve_everyone(const struct places *places);
