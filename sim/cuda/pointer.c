/* The attributes of an address. */
#include <string.h>

#include "cuda/context.h"
#include "cuda/memory.h"
#include "cuda/pool.h"

static bool is_host(const struct range *range)
{
	return range->kind == RANGE_HOST || range->kind == RANGE_REGISTERED;
}

/* Writes an attribute's value and is the call's result. */
#define PUT(type, value) return (*(type *)data = (type)(value), CUDA_SUCCESS) /* NOLINT */

static CUresult attribute_of_place(void *data, CUpointer_attribute attribute,
				   const struct range *range, CUdeviceptr address)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		PUT(CUcontext, range->ctx);
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		PUT(CUmemorytype, is_host(range) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		PUT(CUdeviceptr, address);
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (!is_host(range) && range->kind != RANGE_MANAGED)
			return CUDA_ERROR_INVALID_VALUE;
		PUT(void *, (uintptr_t)address);
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		PUT(int, range->device->ordinal);
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		PUT(CUdeviceptr, range->start);
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		PUT(size_t, range->size);
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		PUT(unsigned long long, range->id);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult attribute_get(void *data, CUpointer_attribute attribute, const struct range *range,
			      CUdeviceptr address)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		PUT(int, range->sync_memops);
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		PUT(int, range->kind == RANGE_MANAGED);
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		PUT(int, range->kind == RANGE_LINEAR);
	case CU_POINTER_ATTRIBUTE_MAPPED:
		PUT(int, 1);
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		PUT(unsigned long long, 0);
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		PUT(int, 0);
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		PUT(unsigned int, !range->writable ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ
						   : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		PUT(CUmemoryPool, range->pool);
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		PUT(size_t, range->pool ? range->mapping_size : range->size);
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		PUT(CUdeviceptr, range->pool ? range->mapping : range->start);
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		PUT(unsigned long long, range->id);
	default:
		return attribute_of_place(data, attribute, range, address);
	}
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
	struct range range;

	API_BEGIN_CONTEXT(ctx);
	if (!data || !range_find(address, &range))
		return CUDA_ERROR_INVALID_VALUE;
	return attribute_get(data, attribute, &range, address);
}

/* An attribute that the address does not have leaves zeros; the call as a whole succeeds. */
CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data,
				CUdeviceptr address)
{
	struct range range;

	API_BEGIN_CONTEXT(ctx);
	if (!attributes || !data)
		return CUDA_ERROR_INVALID_VALUE;
	bool known = range_find(address, &range);
	for (unsigned int i = 0; i < count; i++) {
		if (known && attribute_get(data[i], attributes[i], &range, address) == CUDA_SUCCESS)
			continue;
		switch (attributes[i]) {
		case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
			*(int *)data[i] = -2;
			break;
		case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		case CU_POINTER_ATTRIBUTE_MAPPED:
		case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
			*(int *)data[i] = 0;
			break;
		default:
			memset(data[i], 0, sizeof(void *));
		}
	}
	return CUDA_SUCCESS;
}

static void set_sync_memops(struct range *range, void *arg)
{
	range->sync_memops = *(const unsigned int *)arg != 0;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
			       CUdeviceptr address)
{
	unsigned int on;

	API_BEGIN_CONTEXT(ctx);
	if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&on, value, sizeof(on));
	return range_change(address, set_sync_memops, &on) ? CUDA_SUCCESS
							   : CUDA_ERROR_INVALID_VALUE;
}
