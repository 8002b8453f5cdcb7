/* The functions for MIG devices that other files need. */
#pragma once

#include <stddef.h>

#include "host/mig_client.h"
#include "nvml/library.h"

/* The MIG device that a handle names. False: there is none (any more). */
bool mig_device_get(const struct device *d, struct mig_device *ret);
/* Its place in the enumeration of its GPU's MIG devices; 0 if it is gone. */
unsigned int mig_device_index(const struct device *d);
/* NVML_ERROR_NOT_FOUND: no MIG device has it. */
nvmlReturn_t mig_find_uuid(struct client *c, const char *call, const char *uuid,
			   nvmlDevice_t *device);
