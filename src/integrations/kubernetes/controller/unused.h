/* Templates that the controller made and no pod names any more. Blocks. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "integrations/kubernetes/api/api.h"

struct error;

/* 0 with *ret, an array of "namespace/name" that the caller owns, or negative with *err: then what
 * is unused is not known. `goes_on` is asked before each page. */
int unused_find(struct api *api, bool (*goes_on)(void *arg), void *arg, json_t **ret,
		struct error *err);
