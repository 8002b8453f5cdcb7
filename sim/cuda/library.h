/* Libraries: code that is loaded once and becomes a module in each context that uses it. */
#pragma once

#include "base/cuda_abi.h"
#include "cuda/module.h"

/* The product of cuLinkComplete: this, and the PTX texts behind it, each ending with a NUL. */
#define LINKED_IMAGE_MAGIC 0x4b4e494cu
struct linked_image {
	uint32_t magic;
	uint32_t count;
};

/* A whole file, malloc'ed and with a NUL after it. CUDA_ERROR_FILE_NOT_FOUND. */
CUresult image_read(const char *path, void **ret, size_t *ret_size);
/* The kernel's function in the context, made there on first use; NULL: cannot be. */
CUfunction kernel_function(CUcontext ctx, CUkernel kernel);
/* A module of it is about to go, with its context or before. */
void library_lose(CUlibrary library, CUmodule module);
