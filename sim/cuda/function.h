/* Kernels: how many of their blocks an SM holds, and how launches are made of them. */
#pragma once

#include "cuda/driver.h"
#include "cuda/module.h"
#include "cuda/op.h"

/* Blocks of so many threads that one SM holds at once. */
int occupancy_blocks(const struct device *device, const struct CUfunc_st *f, int threads,
		     size_t dynamic_shared);
/* Checks a launch and copies its parameters. */
CUresult kernel_prepare(CUcontext ctx, const CUDA_KERNEL_NODE_PARAMS *p, bool cooperative,
			struct op *ret);
/* Books the local memory that its threads need, in the kernel's context. CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult kernel_book_local(const struct op_kernel *k);
