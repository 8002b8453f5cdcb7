/* Reads YAML as JSON, as far as Kubernetes' objects need it. Pure. */
#pragma once

#include <jansson.h>
#include <stddef.h>

struct error;

/* Limits of one text: a few lines of YAML can mean a very large object. */
#define YAML_SIZE_MAX (256u << 10)
#define YAML_DEPTH_MAX 64
#define YAML_NODES_MAX 20000u

/* The one document of `text`. JSON is YAML, too. 0 with *ret (owned by the caller), or negative
 * with *err, which names the line. */
int yaml_json_load(const char *text, size_t size, json_t **ret, struct error *err);
