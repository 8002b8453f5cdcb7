/* Batches of copies: each as if it had been called by itself. And one copy with attributes, which
 * change nothing here. */
#include "cuda/array.h"
#include "cuda/context.h"
#include "cuda/copy.h"
#include "cuda/handle.h"

static struct op_copy_side unified(CUdeviceptr address)
{
	return (struct op_copy_side){.type = CU_MEMORYTYPE_UNIFIED, .address = address};
}

static CUresult copy_unified(CUcontext ctx, CUstream stream, CUdeviceptr to, CUdeviceptr from,
			     size_t size)
{
	struct op_copy copy = {
		.src = unified(from), .dst = unified(to), .width = size, .height = 1, .depth = 1};

	return copy_start(ctx, stream, &copy, true);
}

CUresult cuMemcpyWithAttributesAsync(CUdeviceptr to, CUdeviceptr from, size_t size,
				     CUmemcpyAttributes *attributes, CUstream stream)
{
	API_BEGIN_CONTEXT(ctx);
	return copy_unified(ctx, stream, to, from, size);
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
			       CUmemcpyAttributes *attributes, size_t *attribute_starts,
			       size_t attribute_count, CUstream stream)
{
	CUresult result = CUDA_SUCCESS;

	API_BEGIN_CONTEXT(ctx);
	if (!dsts || !srcs || !sizes || !count || !stream)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
		result = copy_unified(ctx, stream, dsts[i], srcs[i], sizes[i]);
	return result;
}

CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
			    CUmemcpyAttributes *attributes, size_t *attribute_starts,
			    size_t attribute_count, size_t *failed, CUstream stream)
{
	if (failed)
		*failed = SIZE_MAX; /* nothing that can be told by index */
	return cuMemcpyBatchAsync_v2(dsts, srcs, sizes, count, attributes, attribute_starts,
				     attribute_count, stream);
}

/* Bytes of an element where a side is an array: offsets and extents then count elements. */
static size_t operand_element_bytes(const CUDA_MEMCPY3D_BATCH_OP *op)
{
	const CUmemcpy3DOperand *sides[] = {&op->src, &op->dst};

	for (int i = 0; i < 2; i++) {
		CUarray array = sides[i]->op.array.array;

		if (sides[i]->type == CU_MEMCPY_OPERAND_TYPE_ARRAY &&
		    handle_is(array, HANDLE_ARRAY))
			return array_element_bytes(array->desc.Format, array->desc.NumChannels);
	}
	return 1;
}

/* False: no such operand. */
static bool operand_side(const CUmemcpy3DOperand *operand, size_t element, struct op_copy_side *ret)
{
	if (operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
		*ret = (struct op_copy_side){.type = CU_MEMORYTYPE_ARRAY,
					     .array = operand->op.array.array,
					     .x = operand->op.array.offset.x * element,
					     .y = operand->op.array.offset.y,
					     .z = operand->op.array.offset.z};
		return handle_is(ret->array, HANDLE_ARRAY);
	}
	*ret = (struct op_copy_side){.type = CU_MEMORYTYPE_UNIFIED,
				     .address = operand->op.ptr.ptr,
				     .pitch = operand->op.ptr.rowLength * element,
				     .rows = operand->op.ptr.layerHeight};
	return operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER;
}

static CUresult copy_volume(CUcontext ctx, CUstream stream, const CUDA_MEMCPY3D_BATCH_OP *op)
{
	size_t element = operand_element_bytes(op);
	struct op_copy copy = {.width = op->extent.width * element,
			       .height = op->extent.height,
			       .depth = op->extent.depth};

	if (!operand_side(&op->src, element, &copy.src) ||
	    !operand_side(&op->dst, element, &copy.dst))
		return CUDA_ERROR_INVALID_VALUE;
	return copy_start(ctx, stream, &copy, true);
}

CUresult cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags,
				       CUstream stream)
{
	API_BEGIN_CONTEXT(ctx);
	return op && !flags ? copy_volume(ctx, stream, op) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP *list,
				 unsigned long long flags, CUstream stream)
{
	CUresult result = CUDA_SUCCESS;

	API_BEGIN_CONTEXT(ctx);
	if (!list || !count || flags || !stream)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
		result = copy_volume(ctx, stream, &list[i]);
	return result;
}

CUresult cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP *list, size_t *failed,
			      unsigned long long flags, CUstream stream)
{
	if (failed)
		*failed = SIZE_MAX;
	return cuMemcpy3DBatchAsync_v2(count, list, flags, stream);
}
