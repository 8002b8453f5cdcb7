/* The cost of one CUDA context on a GPU, and the memory that the driver's figures for processes
 * leave out. Measured in a process of its own, because a context, once made, leaves the driver's
 * descriptors behind and may hang on a sick GPU. */
#pragma once

#include <stdint.h>

/* Kept in the daemon's database. */
enum managed_shows {
	MANAGED_IN_FIGURES =
		0, /* all is in its process's figure; or this driver has none, or no figures */
	MANAGED_APART = 1,   /* in the GPU's use alone */
	MANAGED_UNKNOWN = 2, /* it could not be told just then */
};

/* Makes a context on the GPU with that UUID, or in the MIG instance, which nobody else may use.
 * *ret_bytes: the GPU memory that it holds. That is the driver's figure for this process. If the
 * driver lists none (another PID namespace), it is the growth of the GPU's use. In *ret_managed are
 * the figures in which managed memory shows that was written to on the GPU. 0 or -errno. Call it in
 * a process that ends soon: it may change the environment. */
int context_measure(const char *uuid_text, uint64_t *ret_bytes, enum managed_shows *ret_managed);
