/* The GPUs that the kubelet gave to pods by a device plugin, as its PodResources tell. */
#pragma once

#include <stddef.h>

struct device_gpu;
struct error;
struct reserve;

/* Asks the kubelet at `socket`, and marks each of `gpus` that a pod has. Reservation pods of carve
 * do not count. 0, also where there is no such socket, or negative with *err; `gpus` is as it was
 * then. Blocks for a few seconds at most. */
int pod_resources_mark(const char *socket, const struct reserve *reserve, struct device_gpu *gpus,
		       size_t count, struct error *err);
