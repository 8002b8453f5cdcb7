/* carve check: conditions of this host that carve needs, or that get into its way, each with what
 * to do about it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct places;

struct check_input {
	const struct places *places; /* NULL: not known */
	const json_t *daemon;        /* its answer to GET /v1/version; NULL: none answers */
	const json_t *gpus;          /* its GPUs; NULL likewise */
	const json_t *unknown;       /* names of functions of the driver: check_functions() */
	const char *runtime; /* its runtime directory, or where it would be; NULL: not known */
};

/* Looks at all of them. An array of {name, state, message, advice}; state is "ok", "note" (works,
 * but worth knowing) or "problem". CARVE_CHECK_ROOT, for tests, is where /proc, /etc, /dev, /sys,
 * /run and /tmp are looked for. */
json_t *check_conditions(const struct check_input *input);
/* Prints a line for each note, for each text in `missing`, which are all problems, and how many
 * checks passed. A problem that is no condition's (the daemon, the driver) counts as a check. With
 * `all` a line for each condition that is as it should be, too. */
void check_conditions_print(const json_t *conditions, const json_t *missing, bool all);
