/* The GPUs of this host as they were when they last answered. A GPU that is lost when the daemon
 * starts tells nothing but its index. The store remembers which one it is, so that its sessions,
 * its role and its settings are there again. The loop's thread. */
#pragma once

#include <stddef.h>

#include "backend/gpus.h"

struct store;

/* The list of all GPUs at a start. Entries that are `unread` are completed by what is remembered:
 * of that index, else by the only GPU that is missing. One that was never seen is called "unknown-"
 * and its index. The others are remembered. Where all were read, those that are not in the list
 * were taken out: they are forgotten, which the log says. */
void known_inventory(struct store *store, struct gpu_info *list, size_t count);
/* Remembers one, if it was read. */
void known_keep(struct store *store, const struct gpu_info *info);
