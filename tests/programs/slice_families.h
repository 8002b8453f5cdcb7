/* Every way to take device memory, one function to take a piece and one to give it back. Any
 * driver's; a context must be current. */
#pragma once

#include <stddef.h>

#include "base/cuda_abi.h"

/* The parts of one piece, by family. */
union slice_piece {
	CUdeviceptr ptr;
	CUarray array;
	CUmipmappedArray mipmap;
	CUcontext context;
	CUmodule module;
	struct {
		CUdeviceptr at;
		CUmemGenericAllocationHandle handle;
	} vmm;
	struct {
		CUgraph graph;
		CUgraphExec exec;
	} graph;
};

struct slice_family {
	const char *name;
	CUresult (*take)(union slice_piece *piece, size_t bytes);
	CUresult (*give)(union slice_piece *piece, size_t bytes);
};

/* Both return the driver's result; a piece that was not taken holds nothing. */
const struct slice_family *slice_family_find(const char *name);
