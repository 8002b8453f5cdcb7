/* The cost of one CUDA context on a GPU, and the memory that the driver's figures for processes
 * leave out. Measured in a process of its own, because a context, once made, leaves the driver's
 * descriptors behind and may hang on a sick GPU. */
#pragma once

#include <stdint.h>

/* Kept in the daemon's database. */
enum managed_shows {
	MANAGED_IN_FIGURES = 0, /* of its process; or this driver has none, or no figures */
	MANAGED_APART = 1,      /* in the GPU's use alone */
	MANAGED_UNKNOWN = 2,    /* it could not be told just then */
};

/* Makes a context on the GPU, or in the MIG instance that nobody else uses, with that UUID and says
 * what it holds of the GPU's memory, in bytes: the driver's figure for this process, or where it
 * lists none (another PID namespace), by how much the GPU's use grew. *ret_managed: where managed
 * memory shows that was written to on the GPU. 0 or -errno. Call it in a process that ends soon: it
 * may change the environment. */
int context_measure(const char *uuid_text, uint64_t *ret_bytes, enum managed_shows *ret_managed);
