/* Arrays and mipmapped arrays. Rows are padded as a real GPU's tiles are: 64 bytes by 8 rows. */
#include <stdlib.h>

#include "base/macros.h"
#include "cuda/array.h"
#include "cuda/context.h"
#include "cuda/handle.h"
#include "cuda/parts.h"

#define TILE_BYTES 64u
#define TILE_ROWS 8u

struct CUmipmappedArray_st {
	CUDA_ARRAY3D_DESCRIPTOR desc;
	CUcontext ctx;
	uint64_t address;
	unsigned int level_count;
	struct CUarray_st levels[];
};

size_t array_element_bytes(CUarray_format format, unsigned int channels)
{
	if (channels != 1 && channels != 2 && channels != 4)
		return 0;
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return channels;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2 * (size_t)channels;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4 * (size_t)channels;
	default:
		return 0;
	}
}

/* Lays an array out; returns its bytes, 0 where the description is none. */
static size_t array_lay_out(const CUDA_ARRAY3D_DESCRIPTOR *desc, struct CUarray_st *array)
{
	size_t element = array_element_bytes(desc->Format, desc->NumChannels), area, bytes;

	if (!element || !desc->Width || desc->Width > 131072 || desc->Height > 131072 ||
	    desc->Depth > 16384)
		return 0;
	array->desc = *desc;
	array->width = desc->Width * element;
	array->pitch = ALIGN_UP(array->width, TILE_BYTES);
	array->rows = MAX(desc->Height, 1);
	array->layers = MAX(desc->Depth, 1);
	if (array->rows > 1)
		array->rows = ALIGN_UP(array->rows, TILE_ROWS);
	area = array->pitch * array->rows;
	return __builtin_mul_overflow(area, array->layers, &bytes) ? 0 : bytes;
}

static CUresult array_create(CUcontext ctx, const CUDA_ARRAY3D_DESCRIPTOR *desc, CUarray *ret)
{
	struct range range;

	if (desc->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
		return CUDA_ERROR_NOT_SUPPORTED;
	CUarray array = calloc(1, sizeof(*array));
	if (!array)
		return CUDA_ERROR_OUT_OF_MEMORY;
	size_t bytes = array_lay_out(desc, array);
	CUresult result =
		bytes ? linear_alloc(ctx, bytes, WIRE_MEMORY_ARRAY, RANGE_ARRAY, &array->address)
		      : CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS && !handle_add(array, HANDLE_ARRAY)) {
		if (range_remove(array->address, RANGE_ARRAY, &range))
			memory_release(&range);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result != CUDA_SUCCESS) {
		free(array);
		return result;
	}
	range_find(array->address, &range);
	array->ctx = ctx;
	array->host = range.host;
	*ret = array;
	return CUDA_SUCCESS;
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	API_BEGIN_CONTEXT(ctx);
	if (!array || !desc)
		return CUDA_ERROR_INVALID_VALUE;
	return array_create(ctx, desc, array);
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *desc)
{
	API_BEGIN_CONTEXT(ctx);
	if (!array || !desc)
		return CUDA_ERROR_INVALID_VALUE;
	const CUDA_ARRAY3D_DESCRIPTOR whole = {.Width = desc->Width,
					       .Height = desc->Height,
					       .Format = desc->Format,
					       .NumChannels = desc->NumChannels};
	return array_create(ctx, &whole, array);
}

CUresult cuArrayDestroy(CUarray array)
{
	struct range range;

	API_BEGIN_CONTEXT(ctx);
	if (!handle_is(array, HANDLE_ARRAY) || array->is_level)
		return CUDA_ERROR_INVALID_HANDLE;
	context_synchronize(ctx);
	handle_remove(array);
	if (range_remove(array->address, RANGE_ARRAY, &range))
		memory_release(&range);
	free(array);
	return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *desc, CUarray array)
{
	API_BEGIN_CONTEXT(ctx);
	if (!handle_is(array, HANDLE_ARRAY))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!desc)
		return CUDA_ERROR_INVALID_VALUE;
	*desc = array->desc;
	return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *desc, CUarray array)
{
	API_BEGIN_CONTEXT(ctx);
	if (!handle_is(array, HANDLE_ARRAY))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!desc)
		return CUDA_ERROR_INVALID_VALUE;
	*desc = (CUDA_ARRAY_DESCRIPTOR){array->desc.Width, array->desc.Height, array->desc.Format,
					array->desc.NumChannels};
	return CUDA_SUCCESS;
}

/* Lays the levels out; returns the bytes of all, 0 where the description is none. */
static size_t levels_lay_out(CUmipmappedArray mipmap, unsigned int count)
{
	const CUDA_ARRAY3D_DESCRIPTOR *desc = &mipmap->desc;
	size_t bytes = 0;

	for (unsigned int i = 0; i < count; i++) {
		CUDA_ARRAY3D_DESCRIPTOR level = *desc;

		level.Width = MAX(desc->Width >> i, 1);
		level.Height = desc->Height ? MAX(desc->Height >> i, 1) : 0;
		/* Layers do not shrink, nor do the faces of a cube. */
		if (desc->Depth && !(desc->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
			level.Depth = MAX(desc->Depth >> i, 1);
		size_t size = array_lay_out(&level, &mipmap->levels[i]);
		if (!size)
			return 0;
		bytes += ALIGN_UP(size, SMALL_UNIT);
	}
	return bytes;
}

/* Brings the levels to life in the mipmap's memory. */
static void levels_start(CUmipmappedArray mipmap, unsigned int count)
{
	struct range range = {0};
	size_t offset = 0;

	range_find(mipmap->address, &range);
	for (unsigned int i = 0; i < count; i++) {
		CUarray level = &mipmap->levels[i];

		level->ctx = mipmap->ctx;
		level->is_level = true;
		level->host = range.host + offset;
		offset += ALIGN_UP(level->pitch * level->rows * level->layers, SMALL_UNIT);
		handle_add(level, HANDLE_ARRAY);
		mipmap->level_count++;
	}
	handle_add(mipmap, HANDLE_MIPMAP);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *mipmap, const CUDA_ARRAY3D_DESCRIPTOR *desc,
				unsigned int levels)
{
	API_BEGIN_CONTEXT(ctx);
	if (!mipmap || !desc || !levels)
		return CUDA_ERROR_INVALID_VALUE;
	if (desc->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
		return CUDA_ERROR_NOT_SUPPORTED;
	size_t longest = MAX(desc->Width, MAX(desc->Height, desc->Depth));
	while (levels > 1 && !(levels <= 32 && longest >> (levels - 1)))
		levels--;
	CUmipmappedArray made = calloc(1, sizeof(*made) + levels * sizeof(made->levels[0]));
	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	made->desc = *desc;
	made->ctx = ctx;
	size_t bytes = levels_lay_out(made, levels);
	CUresult result =
		bytes ? linear_alloc(ctx, bytes, WIRE_MEMORY_ARRAY, RANGE_ARRAY, &made->address)
		      : CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS) {
		free(made);
		return result;
	}
	levels_start(made, levels);
	*mipmap = made;
	return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetLevel(CUarray *array, CUmipmappedArray mipmap, unsigned int level)
{
	API_BEGIN_CONTEXT(ctx);
	if (!handle_is(mipmap, HANDLE_MIPMAP))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!array || level >= mipmap->level_count)
		return CUDA_ERROR_INVALID_VALUE;
	*array = &mipmap->levels[level];
	return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray mipmap)
{
	struct range range;

	API_BEGIN_CONTEXT(ctx);
	if (!handle_is(mipmap, HANDLE_MIPMAP))
		return CUDA_ERROR_INVALID_HANDLE;
	context_synchronize(ctx);
	handle_remove(mipmap);
	for (unsigned int i = 0; i < mipmap->level_count; i++)
		handle_remove(&mipmap->levels[i]);
	if (range_remove(mipmap->address, RANGE_ARRAY, &range))
		memory_release(&range);
	free(mipmap);
	return CUDA_SUCCESS;
}

CUresult cuArrayGetPlane(CUarray *plane, CUarray array, unsigned int index)
{
	API_BEGIN_CONTEXT(ctx);
	if (!handle_is(array, HANDLE_ARRAY))
		return CUDA_ERROR_INVALID_HANDLE;
	return CUDA_ERROR_INVALID_VALUE; /* no format with planes is simulated */
}

static CUresult requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *ret, uint64_t address, CUdevice dev)
{
	struct range range;

	if (!ret || !range_find(address, &range))
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_find(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	*ret = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = ALIGN_UP(range.size, BLOCK_SIZE),
						.alignment = BLOCK_SIZE};
	return CUDA_SUCCESS;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *ret, CUarray array,
				      CUdevice dev)
{
	API_BEGIN_CONTEXT(ctx);
	if (!handle_is(array, HANDLE_ARRAY) || array->is_level)
		return CUDA_ERROR_INVALID_HANDLE;
	return requirements(ret, array->address, dev);
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *ret,
					       CUmipmappedArray mipmap, CUdevice dev)
{
	API_BEGIN_CONTEXT(ctx);
	if (!handle_is(mipmap, HANDLE_MIPMAP))
		return CUDA_ERROR_INVALID_HANDLE;
	return requirements(ret, mipmap->address, dev);
}
