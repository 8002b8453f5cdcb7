/* The calls of contexts to their parts, and of the parts to one another. */
#pragma once

#include "base/cuda_abi.h"

struct range;

#define STREAM_PRIORITY_LEAST 0
#define STREAM_PRIORITY_GREATEST (-5)

/* The NULL stream of a new context; NULL: no memory. */
CUstream stream_create_legacy(CUcontext ctx);
void stream_free(CUstream stream); /* NULL is allowed; its lane must be idle */
/* Ends what runs, drops what waits, frees the streams. */
void streams_destroy_all(CUcontext ctx);
void events_destroy_all(CUcontext ctx);
void modules_destroy_all(CUcontext ctx);
/* Gives back what stands behind a range that was taken out, whatever its kind. */
void memory_release(const struct range *range);
