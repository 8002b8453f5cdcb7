/* The thread of a node's plugin that asks carved for the GPUs, keeps the ResourceSlices right, and
 * tells what it saw. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "integrations/kubernetes/object/device.h"

struct prepare;
struct publish;
struct watcher;

struct watcher_view {
	struct device_gpu gpu[DEVICE_GPUS_MAX];
	size_t count;
	bool reached; /* carved answers */
};

/* `seen` is called in the thread after each look. 0 or -errno. */
int watcher_start(struct prepare *prepare, struct publish *publish, void (*seen)(void *arg),
		  void *arg, struct watcher **ret);
/* The kubelet knows the plugin. Before that nothing is published. Has it look at once, and at what
 * is really there: a kubelet deletes the slices of a plugin that was away. */
void watcher_registered(struct watcher *watcher);
/* The state that it saw last. */
void watcher_view(struct watcher *watcher, struct watcher_view *ret);
/* Ends the thread, after what it is doing. */
void watcher_stop(struct watcher *watcher);
