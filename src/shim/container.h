/* A job in a container: its command is `carve podman run` (or docker, or apptainer exec), with the
 * job's slice. */
#pragma once

#include <limits.h>
#include <stdbool.h>

struct error;
struct record_place;
struct shim_spec;

/* A program of carve: beside this one, as in the build tree; or where it is installed, from
 * LIBDIR/carve; or by its name. */
void shim_program_find(const char *name, char ret[static PATH_MAX]);
/* The words of that command, NULL-terminated; never freed. NULL with *err. In the job's environment
 * and directory. */
char **shim_container_argv(const struct shim_spec *spec, const struct record_place *place,
			   const char *session, struct error *err);
/* Becomes the runtime's command that kills and removes the container of that job, or, if the
 * container stays, kills it alone. Returns where there is none. In the job's environment. */
void shim_container_end(const char *dir, const char *name, bool stays);
