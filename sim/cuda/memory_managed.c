/* Managed memory: hints where it should be. It is where it is, and counts on its device in full;
 * the hints are kept, and told when asked for. */
#include <string.h>

#include "base/macros.h"
#include "cuda/context.h"
#include "cuda/memory.h"
#include "cuda/stream.h"

struct advice {
	CUmem_advise advice;
	int device;
};

static void advise(struct range *range, void *arg)
{
	const struct advice *a = arg;

	switch (a->advice) {
	case CU_MEM_ADVISE_SET_READ_MOSTLY:
	case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
		range->read_mostly = a->advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
		break;
	case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
		range->preferred = a->device;
		break;
	case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
		range->preferred = CU_DEVICE_INVALID;
		break;
	case CU_MEM_ADVISE_SET_ACCESSED_BY:
	case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
		break;
	}
}

static CUresult managed_check(CUdeviceptr address, size_t count, CUdevice device)
{
	struct range range;

	if (!count || !range_find(address, &range) || range.kind != RANGE_MANAGED ||
	    address + count > range.start + range.size)
		return CUDA_ERROR_INVALID_VALUE;
	return device == CU_DEVICE_CPU || device_find(device) ? CUDA_SUCCESS
							      : CUDA_ERROR_INVALID_DEVICE;
}

/* The device that a location means, CU_DEVICE_CPU for the host's memory. */
static CUdevice location_device(CUmemLocation location)
{
	return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : CU_DEVICE_CPU;
}

CUresult cuMemAdvise(CUdeviceptr address, size_t count, CUmem_advise advice, CUdevice device)
{
	struct advice a = {advice, device};

	API_BEGIN_CONTEXT(ctx);
	if ((int)advice < CU_MEM_ADVISE_SET_READ_MOSTLY ||
	    (int)advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = managed_check(address, count, device);
	if (result == CUDA_SUCCESS)
		range_change(address, advise, &a);
	return result;
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t count, CUmem_advise advice,
			CUmemLocation location)
{
	return cuMemAdvise(address, count, advice, location_device(location));
}

static void prefetched(struct range *range, void *arg)
{
	range->prefetched = *(const int *)arg;
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t count, CUdevice device, CUstream handle)
{
	CUstream stream;
	struct op op = {.kind = OP_EMPTY};

	API_BEGIN_CONTEXT(ctx);
	CUresult result = stream_resolve(ctx, handle, &stream);
	if (result == CUDA_SUCCESS)
		result = managed_check(address, count, device);
	if (result != CUDA_SUCCESS)
		return result;
	range_change(address, prefetched, &device);
	return stream_submit(stream, &op);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t count, CUmemLocation location,
			       unsigned int flags, CUstream stream)
{
	return flags ? CUDA_ERROR_INVALID_VALUE
		     : cuMemPrefetchAsync(address, count, location_device(location), stream);
}

static CUresult batch_check(const CUdeviceptr *addresses, const size_t *sizes, size_t count,
			    unsigned long long flags, CUstream stream)
{
	if (!addresses || !sizes || !count || flags || !stream)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		CUresult result = managed_check(addresses[i], sizes[i], CU_DEVICE_CPU);

		if (result != CUDA_SUCCESS)
			return result;
	}
	return CUDA_SUCCESS;
}

/* A location holds from the index where it starts to the next one's. */
CUresult cuMemPrefetchBatchAsync(CUdeviceptr *addresses, size_t *sizes, size_t count,
				 CUmemLocation *locations, size_t *starts, size_t location_count,
				 unsigned long long flags, CUstream stream)
{
	API_BEGIN_CONTEXT(ctx);
	CUresult result = batch_check(addresses, sizes, count, flags, stream);
	if (result == CUDA_SUCCESS &&
	    (!locations || !starts || !location_count || location_count > count || starts[0] != 0))
		result = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0, at = 0; i < count && result == CUDA_SUCCESS; i++) {
		if (at + 1 < location_count && starts[at + 1] <= i)
			at++;
		result = cuMemPrefetchAsync(addresses[i], sizes[i], location_device(locations[at]),
					    stream);
	}
	return result;
}

/* The contents may still be there afterwards. */
CUresult cuMemDiscardBatchAsync(CUdeviceptr *addresses, size_t *sizes, size_t count,
				unsigned long long flags, CUstream handle)
{
	CUstream stream;
	struct op op = {.kind = OP_EMPTY};

	API_BEGIN_CONTEXT(ctx);
	CUresult result = batch_check(addresses, sizes, count, flags, handle);
	if (result == CUDA_SUCCESS)
		result = stream_resolve(ctx, handle, &stream);
	return result == CUDA_SUCCESS ? stream_submit(stream, &op) : result;
}

CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *addresses, size_t *sizes, size_t count,
					   CUmemLocation *locations, size_t *starts,
					   size_t location_count, unsigned long long flags,
					   CUstream stream)
{
	return cuMemPrefetchBatchAsync(addresses, sizes, count, locations, starts, location_count,
				       flags, stream);
}

CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, size_t length,
				unsigned int flags)
{
	CUstream stream;
	struct range range;
	struct op op = {.kind = OP_EMPTY};

	API_BEGIN_CONTEXT(ctx);
	CUresult result = stream_resolve(ctx, handle, &stream);
	if (result != CUDA_SUCCESS)
		return result;
	if (!range_find(address, &range) || range.kind != RANGE_MANAGED ||
	    (length && length != range.size))
		return CUDA_ERROR_INVALID_VALUE;
	return stream_submit(stream, &op);
}

static CUresult range_attribute(void *data, size_t size, CUmem_range_attribute attribute,
				const struct range *range)
{
	int value;

	switch (attribute) {
	case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
		value = range->read_mostly;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
		value = range->preferred;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
		value = range->prefetched;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
		for (size_t i = 0; i < size / sizeof(int); i++)
			((int *)data)[i] = CU_DEVICE_INVALID;
		return size % sizeof(int) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (size != sizeof(value))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(data, &value, sizeof(value));
	return CUDA_SUCCESS;
}

CUresult cuMemRangeGetAttribute(void *data, size_t size, CUmem_range_attribute attribute,
				CUdeviceptr address, size_t count)
{
	struct range range;

	API_BEGIN_CONTEXT(ctx);
	CUresult result =
		data ? managed_check(address, count, CU_DEVICE_CPU) : CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS || !range_find(address, &range))
		return CUDA_ERROR_INVALID_VALUE;
	return range_attribute(data, size, attribute, &range);
}

CUresult cuMemRangeGetAttributes(void **data, size_t *sizes, CUmem_range_attribute *attributes,
				 size_t attribute_count, CUdeviceptr address, size_t count)
{
	API_BEGIN();
	CUresult result = data && sizes && attributes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	for (size_t i = 0; i < attribute_count && result == CUDA_SUCCESS; i++)
		result = cuMemRangeGetAttribute(data[i], sizes[i], attributes[i], address, count);
	return result;
}
