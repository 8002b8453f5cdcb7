/* Stream capture: what a capturing stream is told to do becomes nodes of a graph instead. */
#pragma once

#include <stdbool.h>

#include "cuda/op.h"

/* True where the op has become a node, or the capture makes it an error: *ret says which. What the
 * op owns is taken over then. */
bool capture_takes(CUstream stream, struct op *op, CUresult *ret);
/* The same for recording an event. */
bool capture_takes_record(CUstream stream, struct op *op, unsigned int flags, CUresult *ret);
/* Whether a call that waits is allowed now. Invalidates the capture where it is not. */
CUresult capture_check_sync(CUstream stream);
/* The stream goes away: so does its capture. */
void capture_abandon(CUstream stream);
/* The same for an allocation: it becomes a node, and *address what it will have. */
bool capture_takes_alloc(CUstream stream, CUmemoryPool pool, size_t bytes, CUdeviceptr *address,
			 CUresult *ret);
