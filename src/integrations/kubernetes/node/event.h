/* Events of Kubernetes, which `kubectl describe node` prints. */
#pragma once

#include <jansson.h>

struct api;
struct error;

/* Writes a warning about a node, as the API server has it. `reason` is one word. Blocks. 0, or
 * negative with *err. */
int event_write(struct api *api, const json_t *node, const char *reason, const char *message,
		struct error *err);
