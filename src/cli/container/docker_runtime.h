/* docker's configuration: a runtime by which docker, which runs no hooks of its own, has carve-hook
 * run for every container. */
#pragma once

#include <jansson.h>

struct error;

/* Makes carve-hook the default runtime in DIR/daemon.json, in front of the one that is. `program`:
 * carve-hook; `environment`: of the hook. 0, or negative with *err. */
int docker_runtime_install(const char *dir, const char *program, const json_t *environment,
			   struct error *err);
/* Likewise undone. */
int docker_runtime_remove(const char *dir, struct error *err);
