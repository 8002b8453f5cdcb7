/* Keeps a node's ResourceSlices on the API server as they should be. Functions block; for one
 * thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "integrations/kubernetes/api/api.h"
#include "integrations/kubernetes/object/device.h"
#include "integrations/kubernetes/object/slices.h"

struct error;

struct publish {
	struct api *api;
	const char *driver, *node;
	unsigned replicas;                       /* slices.h */
	char settings_problem[SLICES_TEXT_SIZE]; /* slices.h */
	char node_uid[64];                       /* "": not asked yet */
	json_t *published;                       /* the slices last found there; NULL: not known */
};

/* Writes what differs. Without `look` it is believed that what was published last is still there.
 * If the API server drops a field because a feature gate is off, it removes the slices again and
 * fails, as they would promise something else. Returns 0, or negative with *err. */
int publish_slices(struct publish *publish, const struct device_gpu *gpus, size_t count, bool look,
		   struct error *err);
