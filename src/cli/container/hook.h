/* How a runtime is told to run carve-hook. */
#pragma once

#include <jansson.h>
#include <limits.h>

struct cli;
struct error;

/* The program. 0, or negative with *err set. */
int hook_program(char path[static PATH_MAX], struct error *err);
/* A hook has no environment but this: what says here which daemon and which host are meant. Array
 * of NAME=VALUE, owned by the caller. */
json_t *hook_environment(const struct cli *cli);
/* The contents of a file in a directory of hooks (HOOK_FILE, ".json"), by which podman runs
 * carve-hook in this stage with these arguments (ended by NULL) for every container. Owned by the
 * caller; NULL with *err set. */
#define HOOK_FILE "50-carve"
#define HOOK_STAGE "createRuntime"
json_t *hook_file(const char *stage, const char *const *arguments, const struct cli *cli,
		  struct error *err);
