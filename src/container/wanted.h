/* The slice that a container asks for: by annotations of the container, or labels of its image,
 * such as carve.vram=8GiB. */
#pragma once

#include <jansson.h>

struct error;

#define CONTAINER_LABEL_PREFIX "carve."
#define CONTAINER_LABEL_SESSION CONTAINER_LABEL_PREFIX "session"
#define CONTAINER_LABEL_MAX 64

/* The first of several sources that has a size counts for the size, and the first that has another
 * label counts for that. Each is an object of texts, or NULL; other labels than carve's are passed
 * over. Returns 0 with *ret: a body for POST /v1/sessions, or {"session": ID}, or NULL where
 * nothing is asked for. Negative with *err set: a label of carve's that there is not, or no size.
 * The caller owns *ret. Pure. */
int container_wanted(const json_t *const *sources, size_t count, json_t **ret, struct error *err);
/* The daemon names a field of the request that is wrong, and the command line an option: where
 * `wanted` has it, the message names the label instead. */
void container_error_name_label(const json_t *wanted, struct error *err);
