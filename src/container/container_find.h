/* Which container runtime is here. */
#pragma once

struct error;

/* Names one of them, where several are here. */
#define CONTAINER_RUNTIME_ENV "CARVE_CONTAINER_RUNTIME"

/* "podman", "docker" or "apptainer": the one that the variable names, else whichever is found first
 * in the PATH, in this order. NULL with *err. */
const char *container_runtime_find(struct error *err);
