/* A node's devices as ResourceSlices (resource.k8s.io/v1). Pure. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "integrations/kubernetes/object/device.h"

struct slices_owner {
	const char *driver, *node;
	const char *node_uid; /* the slices go with the node */
	unsigned replicas;    /* parts of a GPU, at most; 0: as many as its memory has room for */
	const char *settings_problem; /* why carved keeps older settings; "" or NULL: it does not */
};

/* The most that a slice may have (API of 1.36): devices, where any of the slice's has a taint; sets
 * of counters. */
#define SLICES_DEVICES_MAX 64
#define SLICES_COUNTERS_MAX 8

/* Takes a text for an attribute, which has 64 characters at most: cut, in ASCII. */
#define SLICES_TEXT_SIZE 65
void slices_text_take(const char *text, char ret[static SLICES_TEXT_SIZE]);
/* The attribute of a node's GPUs that says why carved keeps older settings than it was told. */
#define SLICES_SETTINGS "settingsProblem"

/* The slices as they should be: an array of objects without pool.generation. The caller owns it;
 * NULL: out of memory. */
json_t *slices_build(const struct slices_owner *owner, const struct device_gpu *gpus, size_t count);
/* Whether all of `wanted` is in `got`, which may have more. Equal quantities may be spelled
 * differently. Where it is not, `path` names the first field that is missing or differs. */
bool slices_contain(const json_t *got, const json_t *wanted, char *path, size_t size);
/* Whether the spec `got` has a device with a field that the one in `wanted` does not have. It may
 * be a taint that is over, or a step of a capacity. */
bool slices_have_more(const json_t *got, const json_t *wanted);
