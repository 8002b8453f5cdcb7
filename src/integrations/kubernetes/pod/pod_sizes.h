/* The sizes of slices that a pod's labels and annotations name. Pure. */
#pragma once

#include <jansson.h>

struct error;

/* Refuses the texts that the admission policies of packaging/kubernetes refuse. The labels and
 * annotations of `metadata` are texts. 0, or negative with *err. */
int pod_sizes_check(const json_t *metadata, struct error *err);
