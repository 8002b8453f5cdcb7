/* The memory that kernels get from malloc: pieces of one stretch of device memory a context, as
 * long as its limit says when it is first used. Thread-safe. */
#pragma once

#include "base/cuda_abi.h"

struct device_heap;

/* 0: there is no room. */
uint64_t device_heap_alloc(CUcontext ctx, uint64_t size);
void device_heap_free(CUcontext ctx, uint64_t address);
/* With the context; its memory goes with the context's other memory. NULL is allowed. */
void device_heap_destroy(struct device_heap *heap);
