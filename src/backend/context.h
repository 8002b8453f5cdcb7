/* What one CUDA context costs on a GPU, and what the driver's figures for processes leave out.
 * Measured in a process of its own, because a context, once made, leaves the driver's descriptors
 * behind and may hang on a sick GPU. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Makes a context on the GPU with that UUID and says what it holds of the GPU's memory, in bytes:
 * the driver's figure for this process, or where it lists none (another PID namespace), by how much
 * the GPU's use grew. *ret_apart: managed memory that was written to on the GPU is in its use, and
 * not in this process's figure; false, too, where that does not show. 0 or -errno. Call it in a
 * process that ends soon. */
int context_measure(const char *uuid_text, uint64_t *ret_bytes, bool *ret_apart);
