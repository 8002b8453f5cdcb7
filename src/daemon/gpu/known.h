/* The GPUs of this host as they were when they last answered. A GPU that is lost when the daemon
 * starts tells nothing but its index: the store remembers which one it is, so that its sessions,
 * its role and its settings are there again. The loop's thread. */
#pragma once

#include <stddef.h>

#include "backend/gpus.h"

struct store;

/* Completes the entries that are `unread` by what is remembered: of that index, else by the only
 * GPU that is missing. One that was never seen is called "unknown-" and its index. */
void known_complete(struct store *store, struct gpu_info *list, size_t count);
/* Remembers those that were read. */
void known_keep(struct store *store, const struct gpu_info *list, size_t count);
/* Forgets those that are not in the list of all GPUs, if each in it was read: they were taken out,
 * which the log says. */
void known_forget(struct store *store, const struct gpu_info *list, size_t count);
