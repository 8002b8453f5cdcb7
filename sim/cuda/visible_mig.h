/* MIG devices as CUDA sees them. All functions need the driver's connection to the host. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"
#include "host/mig_client.h"

/* A GPU in MIG mode stands for the first of its MIG devices. False: it has none. */
bool mig_visible_first(uint32_t gpu, struct mig_device *ret);
/* The one MIG device that the word names: "MIG-" and its UUID, which may be cut short, or the older
 * form "MIG-GPU-<UUID>/<GPU instance>/<compute instance>". */
bool mig_visible_named(const char *word, struct mig_device *ret);
