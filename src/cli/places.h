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
/* Whether the programs of every user can preload our libraries from where they are. */
bool places_serve_everyone(const struct places *places);
