/* cuMemAlloc and its kin; what a program can ask about memory in general. */
#include <stdlib.h>

#include "base/macros.h"
#include "cuda/capture.h"
#include "cuda/context.h"
#include "cuda/graph.h"
#include "cuda/memory.h"
#include "cuda/parts.h"
#include "cuda/visible_mig.h"

/* Rows of pitched memory begin at multiples of this. */
#define PITCH_UNIT 512u

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
	uint64_t at;

	API_BEGIN_CONTEXT(ctx);
	if (!address || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = capture_check_unsafe();
	if (result == CUDA_SUCCESS)
		result = linear_alloc(ctx, bytes, WIRE_MEMORY_LINEAR, RANGE_LINEAR, &at);
	if (result == CUDA_SUCCESS)
		*address = at;
	return result;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
			    unsigned int element)
{
	uint64_t at;

	API_BEGIN_CONTEXT(ctx);
	if (!address || !pitch || !width || !height)
		return CUDA_ERROR_INVALID_VALUE;
	if (element != 4 && element != 8 && element != 16)
		return CUDA_ERROR_INVALID_VALUE;
	size_t row = ALIGN_UP(width, PITCH_UNIT), bytes;
	if (row < width || __builtin_mul_overflow(row, height, &bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = linear_alloc(ctx, bytes, WIRE_MEMORY_LINEAR, RANGE_LINEAR, &at);
	if (result != CUDA_SUCCESS)
		return result;
	*address = at;
	*pitch = row;
	return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
	struct block *block;

	API_BEGIN_CONTEXT(ctx);
	if (!address || !bytes || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
		return CUDA_ERROR_INVALID_VALUE;
	block = malloc(sizeof(*block));
	if (!block)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = block_alloc(ctx->device, WIRE_MEMORY_MANAGED, bytes, block);
	if (result != CUDA_SUCCESS) {
		free(block);
		return result;
	}
	struct range range = {
		.start = block_address(block),
		.size = bytes,
		.host = block_host(block),
		.kind = RANGE_MANAGED,
		.readable = true,
		.writable = true,
		.ctx = ctx,
		.device = ctx->device,
		.flags = flags,
		.preferred = CU_DEVICE_INVALID,
		.prefetched = CU_DEVICE_INVALID,
		.owner = block,
	};
	result = block_expose(block, true);
	if (result == CUDA_SUCCESS && !range_add(&range))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS)
		*address = range.start;
	else
		memory_release(&range);
	return result;
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
	struct range range;

	API_BEGIN_CONTEXT(ctx);
	if (!address)
		return CUDA_SUCCESS;
	if (!range_find(address, &range) || range.start != address)
		return CUDA_ERROR_INVALID_VALUE;
	switch (range.kind) {
	case RANGE_LINEAR:
	case RANGE_MANAGED:
	case RANGE_POOL:
	case RANGE_EXTERNAL:
	case RANGE_GRAPH:
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	CUresult result = capture_check_unsafe();
	if (result != CUDA_SUCCESS)
		return result;
	/* Work that uses it may be under way: as with a real driver, freeing waits for it. */
	context_synchronize(ctx);
	if (range.kind == RANGE_GRAPH)
		return graph_memory_use_at(address, false) ? CUDA_SUCCESS
							   : CUDA_ERROR_INVALID_VALUE;
	if (!range_remove(address, range.kind, &range))
		return CUDA_ERROR_INVALID_VALUE;
	memory_release(&range);
	return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	API_BEGIN_CONTEXT(ctx);
	/* A driver fills in what there is a place for. */
	if (!free_bytes && !total)
		return CUDA_ERROR_INVALID_VALUE;
	struct device *device = ctx->device;
	uint64_t used, limit;

	if (client_memory_look_own(driver.client, device->wire, &used, &limit) < 0)
		return CUDA_ERROR_UNKNOWN;
	uint64_t most = MIN(limit, device->memory_total);
	if (total)
		*total = most;
	if (free_bytes)
		*free_bytes = most > used ? most - used : 0;
	return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
	struct range range;

	API_BEGIN_CONTEXT(ctx);
	if (!range_find(address, &range))
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = range.start;
	if (size)
		*size = range.size;
	return CUDA_SUCCESS;
}
