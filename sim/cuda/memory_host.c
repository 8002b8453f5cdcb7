/* Pinned host memory: allocated here, or the program's own and registered. The device sees it at
 * the addresses that the CPU does; it never counts as device memory. */
#include <sys/mman.h>
#include <unistd.h>

#include "base/macros.h"
#include "cuda/context.h"
#include "cuda/memory.h"
#include "cuda/parts.h"

static size_t page_round(size_t bytes)
{
	return ALIGN_UP(bytes, (size_t)sysconf(_SC_PAGESIZE));
}

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
	const unsigned int known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
				   CU_MEMHOSTALLOC_WRITECOMBINED;

	API_BEGIN_CONTEXT(ctx);
	if (!pointer || !bytes || flags & ~known)
		return CUDA_ERROR_INVALID_VALUE;
	if (page_round(bytes) < bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	void *p = mmap(NULL, page_round(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);
	if (p == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct range range = {
		.start = (uint64_t)(uintptr_t)p,
		.size = bytes,
		.host = p,
		.kind = RANGE_HOST,
		.readable = true,
		.writable = true,
		.ctx = ctx,
		.device = ctx->device,
		.flags = flags | CU_MEMHOSTALLOC_DEVICEMAP, /* always, with unified addressing */
	};
	if (!range_add(&range)) {
		munmap(p, page_round(bytes));
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*pointer = p;
	return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void **pointer, size_t bytes)
{
	return cuMemHostAlloc(pointer, bytes, 0);
}

CUresult cuMemFreeHost(void *pointer)
{
	struct range range;

	API_BEGIN_CONTEXT(ctx);
	if (!pointer)
		return CUDA_SUCCESS;
	if (!range_find((uint64_t)(uintptr_t)pointer, &range) || range.kind != RANGE_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	context_synchronize(ctx);
	if (!range_remove((uint64_t)(uintptr_t)pointer, RANGE_HOST, &range))
		return CUDA_ERROR_INVALID_VALUE;
	memory_release(&range);
	return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned int flags)
{
	const unsigned int known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
				   CU_MEMHOSTREGISTER_READ_ONLY;

	API_BEGIN_CONTEXT(ctx);
	if (flags & CU_MEMHOSTREGISTER_IOMEMORY)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!pointer || !bytes || flags & ~known)
		return CUDA_ERROR_INVALID_VALUE;
	struct range range = {
		.start = (uint64_t)(uintptr_t)pointer,
		.size = bytes,
		.host = pointer,
		.kind = RANGE_REGISTERED,
		.readable = true,
		.writable = !(flags & CU_MEMHOSTREGISTER_READ_ONLY),
		.ctx = ctx,
		.device = ctx->device,
		.flags = flags | CU_MEMHOSTREGISTER_DEVICEMAP,
	};
	return range_add(&range) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

CUresult cuMemHostUnregister(void *pointer)
{
	struct range range;

	API_BEGIN_CONTEXT(ctx);
	if (!pointer)
		return CUDA_ERROR_INVALID_VALUE;
	if (!range_find((uint64_t)(uintptr_t)pointer, &range) || range.kind != RANGE_REGISTERED)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	context_synchronize(ctx);
	return range_remove(range.start, RANGE_REGISTERED, &range)
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

static bool host_range(const void *pointer, struct range *ret)
{
	return range_find((uint64_t)(uintptr_t)pointer, ret) &&
	       (ret->kind == RANGE_HOST || ret->kind == RANGE_REGISTERED);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *pointer, unsigned int flags)
{
	struct range range;

	API_BEGIN_CONTEXT(ctx);
	if (!address || flags || !host_range(pointer, &range))
		return CUDA_ERROR_INVALID_VALUE;
	*address = (uint64_t)(uintptr_t)pointer;
	return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *pointer)
{
	struct range range;

	API_BEGIN_CONTEXT(ctx);
	if (!flags || !host_range(pointer, &range))
		return CUDA_ERROR_INVALID_VALUE;
	*flags = range.flags;
	return CUDA_SUCCESS;
}
