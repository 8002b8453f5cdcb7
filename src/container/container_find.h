/* Which container runtime is here. */
#pragma once

struct error;

/* "podman" or "docker", whichever is found first in the PATH, in this order. NULL with *err. */
const char *container_runtime_find(struct error *err);
