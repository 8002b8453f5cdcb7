/* Copies: checks when they are called, bytes and modelled time when they run. */
#include "cuda/copy.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "cuda/array.h"
#include "cuda/capture.h"
#include "cuda/context.h"
#include "cuda/handle.h"
#include "cuda/memory.h"
#include "cuda/stream.h"

/* Pageable memory up to this size is taken at once, and the call returns; beyond it, it waits. */
#define STAGING_MAX (64u << 20)
/* The cost of any copy besides its bytes. */
#define COPY_LATENCY_NS 1500u

static uint64_t side_offset(const struct op_copy_side *side, size_t y, size_t z)
{
	return ((side->z + z) * side->rows + side->y + y) * side->pitch + side->x;
}

/* Where a side's byte lies for the driver, and how many bytes follow it there. NULL: nowhere. */
static uint8_t *side_host(const struct op_copy_side *side, uint64_t offset, size_t *left)
{
	struct range range;

	if (side->type == CU_MEMORYTYPE_ARRAY)
		return side->array->host + offset;
	uint64_t address = side->address + offset;
	if (side->type == CU_MEMORYTYPE_HOST)
		return (uint8_t *)(uintptr_t)address;
	if (!range_find(address, &range))
		return NULL;
	*left = MIN(*left, range.start + range.size - address);
	/* A graph's memory has nothing behind it before it is launched. */
	return range.host ? range.host + (address - range.start) : NULL;
}

static bool row_copy(const struct op_copy *copy, size_t y, size_t z)
{
	uint64_t from = side_offset(&copy->src, y, z), to = side_offset(&copy->dst, y, z);
	size_t done = 0;

	while (done < copy->width) {
		size_t n = copy->width - done;
		const uint8_t *src = copy->staging ? (const uint8_t *)copy->staging + done
						   : side_host(&copy->src, from + done, &n);
		uint8_t *dst = side_host(&copy->dst, to + done, &n);

		if (!src || !dst)
			return false;
		memmove(dst, src, n);
		done += n;
	}
	return true;
}

static bool side_is_host(const struct op_copy_side *side)
{
	struct range range;

	if (side->type == CU_MEMORYTYPE_HOST)
		return true;
	return side->type == CU_MEMORYTYPE_DEVICE && range_find(side->address, &range) &&
	       (range.kind == RANGE_HOST || range.kind == RANGE_REGISTERED);
}

static void copy_charge(struct lane *lane, const struct op_copy *copy)
{
	const struct sim_model *model = lane_device(lane)->model;
	uint64_t bytes = copy->width * copy->height * copy->depth;
	bool from_host = side_is_host(&copy->src), to_host = side_is_host(&copy->dst);
	uint64_t bandwidth =
		from_host || to_host ? model->bandwidth_pcie : model->bandwidth_memory / 2;
	uint64_t ns = COPY_LATENCY_NS + (uint64_t)((double)bytes * 1e9 / (double)bandwidth);

	lane_submit(lane, (struct wire_item){
				  .engine = from_host && to_host ? WIRE_ENGINE_NONE
					    : from_host          ? WIRE_ENGINE_H2D
					    : to_host            ? WIRE_ENGINE_D2H
								 : WIRE_ENGINE_D2D,
				  .flags = WIRE_ITEM_COPY,
				  .ns = ns,
				  .bytes = bytes,
			  });
}

CUresult op_copy_run(struct lane *lane, struct op_copy *copy)
{
	bool takes_long = copy->width * copy->height * copy->depth > PLAYED_AT_ONCE;

	if (takes_long)
		lane_sequence_begin(lane);
	copy_charge(lane, copy);
	if (takes_long)
		lane_sequence_end(lane);
	for (size_t z = 0; z < copy->depth; z++)
		for (size_t y = 0; y < copy->height; y++)
			if (!row_copy(copy, y, z))
				return CUDA_ERROR_ILLEGAL_ADDRESS;
	return CUDA_SUCCESS;
}

/* A unified address is whatever memory is known there. */
static void side_unify(struct op_copy_side *side)
{
	struct range range;

	if (side->type == CU_MEMORYTYPE_UNIFIED)
		side->type = range_find(side->address, &range) ? CU_MEMORYTYPE_DEVICE
							       : CU_MEMORYTYPE_HOST;
}

static CUresult side_check(struct op_copy_side *side, const struct op_copy *copy, bool written)
{
	struct range range;

	side_unify(side);
	if (side->type == CU_MEMORYTYPE_ARRAY) {
		if (!handle_is(side->array, HANDLE_ARRAY))
			return CUDA_ERROR_INVALID_HANDLE;
		side->pitch = side->array->pitch;
		side->rows = side->array->rows;
		if (side->x + copy->width > side->array->width ||
		    side->y + copy->height > side->rows ||
		    side->z + copy->depth > side->array->layers)
			return CUDA_ERROR_INVALID_VALUE;
		return CUDA_SUCCESS;
	}
	if (side->pitch == 0)
		side->pitch = copy->width;
	if (side->rows == 0)
		side->rows = copy->height;
	if (copy->height > 1 && side->pitch < copy->width)
		return CUDA_ERROR_INVALID_VALUE;
	if (side->type == CU_MEMORYTYPE_HOST)
		return side->address ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	if (side->type != CU_MEMORYTYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t first = side_offset(side, 0, 0);
	uint64_t end = side_offset(side, copy->height - 1, copy->depth - 1) + copy->width;
	if (!range_covers(side->address + first, end - first))
		return CUDA_ERROR_INVALID_VALUE;
	range_find(side->address + first, &range);
	bool allowed = range.kind == RANGE_GRAPH || (written ? range.writable : range.readable);
	return allowed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult copy_check(struct op_copy *copy)
{
	CUresult result = side_check(&copy->src, copy, false);

	return result == CUDA_SUCCESS ? side_check(&copy->dst, copy, true) : result;
}

static bool side_is_pageable(const struct op_copy_side *side)
{
	struct range range;

	return side->type == CU_MEMORYTYPE_HOST && !range_find(side->address, &range);
}

/* Takes what a call's pageable source holds now. False: it cannot, and the call must wait. */
static bool copy_stage(struct op_copy *copy)
{
	if (copy->height != 1 || copy->depth != 1 || copy->width > STAGING_MAX)
		return false;
	copy->staging = malloc(copy->width);
	size_t left = copy->width;
	if (copy->staging)
		memcpy(copy->staging, side_host(&copy->src, side_offset(&copy->src, 0, 0), &left),
		       copy->width);
	return copy->staging != NULL;
}

CUresult copy_start(CUcontext ctx, CUstream handle, struct op_copy *copy, bool async)
{
	CUstream stream;
	CUresult result = stream_resolve(ctx, handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (!copy->width || !copy->height || !copy->depth)
		return CUDA_SUCCESS;
	result = copy_check(copy);
	if (result != CUDA_SUCCESS)
		return result;
	struct op op = {.kind = OP_COPY, .copy = *copy};
	if (stream->capture && async)
		return stream_submit(stream, &op);
	if (!async) {
		/* Between device memories nothing waits, even in the synchronous forms. */
		bool device_only = !side_is_host(&copy->src) && !side_is_host(&copy->dst);
		return device_only ? stream_submit(stream, &op) : stream_submit_wait(stream, &op);
	}
	if (side_is_pageable(&copy->dst) || (side_is_pageable(&copy->src) && !copy_stage(&op.copy)))
		return stream_submit_wait(stream, &op);
	return stream_submit(stream, &op);
}

CUresult copy_from_2d(const CUDA_MEMCPY2D *p, struct op_copy *ret)
{
	const CUDA_MEMCPY3D whole = {
		.srcXInBytes = p->srcXInBytes,
		.srcY = p->srcY,
		.srcMemoryType = p->srcMemoryType,
		.srcHost = p->srcHost,
		.srcDevice = p->srcDevice,
		.srcArray = p->srcArray,
		.srcPitch = p->srcPitch,
		.dstXInBytes = p->dstXInBytes,
		.dstY = p->dstY,
		.dstMemoryType = p->dstMemoryType,
		.dstHost = p->dstHost,
		.dstDevice = p->dstDevice,
		.dstArray = p->dstArray,
		.dstPitch = p->dstPitch,
		.WidthInBytes = p->WidthInBytes,
		.Height = p->Height,
		.Depth = 1,
	};

	return copy_from_3d(&whole, ret);
}

CUresult copy_from_3d(const CUDA_MEMCPY3D *p, struct op_copy *ret)
{
	*ret = (struct op_copy){
		.src = {.type = p->srcMemoryType,
			.address = p->srcMemoryType == CU_MEMORYTYPE_HOST
					   ? (uint64_t)(uintptr_t)p->srcHost
					   : p->srcDevice,
			.array = p->srcArray,
			.x = p->srcXInBytes,
			.y = p->srcY,
			.z = p->srcZ,
			.pitch = p->srcPitch,
			.rows = p->srcHeight},
		.dst = {.type = p->dstMemoryType,
			.address = p->dstMemoryType == CU_MEMORYTYPE_HOST
					   ? (uint64_t)(uintptr_t)p->dstHost
					   : p->dstDevice,
			.array = p->dstArray,
			.x = p->dstXInBytes,
			.y = p->dstY,
			.z = p->dstZ,
			.pitch = p->dstPitch,
			.rows = p->dstHeight},
		.width = p->WidthInBytes,
		.height = p->Height,
		.depth = p->Depth,
	};
	return p->srcLOD || p->dstLOD ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
