/* Copies. Those that stay on devices pass the gate as kernels do: they use the GPU's memory, if not
 * its multiprocessors. Those from or to the host are not held up until they are many
 * (gate_host_copy). They hardly disturb, and a program that feeds its next burst meanwhile is the
 * faster for it. Where the call doesn't say which it is, the driver is asked. */
#include "front/cuda/gate/gate.h"
#include "front/cuda/hooks.h"

static bool is_host(CUdeviceptr address)
{
	unsigned int type = 0;

	/* Memory that it does not know is the program's own. */
	return real_cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) !=
		       CUDA_SUCCESS ||
	       type == CU_MEMORYTYPE_HOST;
}

static bool side_is_host(CUmemorytype type, CUdeviceptr unified)
{
	return type == CU_MEMORYTYPE_HOST || (type == CU_MEMORYTYPE_UNIFIED && is_host(unified));
}

/* Whether a copy has a side on the host; for any of the structures that describe a copy. */
#define HOST_IN(copy)                                                         \
	(!(copy) || side_is_host((copy)->srcMemoryType, (copy)->srcDevice) || \
	 side_is_host((copy)->dstMemoryType, (copy)->dstDevice))
#define AREA(copy) ((copy) ? (uint64_t)(copy)->WidthInBytes * (copy)->Height : 0)
#define VOLUME(copy) ((copy) ? AREA(copy) * (copy)->Depth : 0)

static uint64_t batch_bytes(const size_t *sizes, size_t count)
{
	uint64_t sum = 0;

	for (size_t i = 0; sizes && i < count; i++)
		sum += sizes[i];
	return sum;
}

/* Whether every copy has a side on the host. A batch waits for the gate if any of its copies must,
 * wherever that copy stands. */
static bool batch_is_host(const CUdeviceptr *to, const CUdeviceptr *from, size_t count)
{
	for (size_t i = 0; to && from && i < count; i++)
		if (!is_host(to[i]) && !is_host(from[i]))
			return false;
	return true;
}

static uint64_t volumes(const CUDA_MEMCPY3D_BATCH_OP *ops, size_t count)
{
	uint64_t sum = 0;

	for (size_t i = 0; ops && i < count; i++)
		sum += (uint64_t)ops[i].extent.width * ops[i].extent.height * ops[i].extent.depth;
	return sum;
}

static bool operand_is_host(const CUmemcpy3DOperand *operand)
{
	return operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER && is_host(operand->op.ptr.ptr);
}

static bool volumes_are_host(const CUDA_MEMCPY3D_BATCH_OP *ops, size_t count)
{
	for (size_t i = 0; ops && i < count; i++)
		if (!operand_is_host(&ops[i].src) && !operand_is_host(&ops[i].dst))
			return false;
	return true;
}

#define DEVICE(name, parameters, arguments, stream, bytes) \
	GATED_SELDOM(name, parameters, arguments, stream, GATE_WORK_COPY, bytes)

#define HOST(name, parameters, arguments, bytes) \
	CUresult gated_##name parameters         \
	{                                        \
		gate_host_copy(bytes);           \
		return real_##name arguments;    \
	}

/* The thread waits for it. */
#define HOST_WAIT(name, parameters, arguments, bytes) \
	CUresult gated_##name parameters              \
	{                                             \
		gate_host_copy(bytes);                \
		gate_before_wait();                   \
		return real_##name arguments;         \
	}

#define EITHER(name, parameters, arguments, stream, bytes, host)                         \
	CUresult gated_##name parameters                                                 \
	{                                                                                \
		struct gate_call call_;                                                  \
		if (host) {                                                              \
			gate_host_copy(bytes);                                           \
			return real_##name arguments;                                    \
		}                                                                        \
		gate_begin(&call_, stream,                                               \
			   (struct gate_work){.what = GATE_WORK_COPY, .size = (bytes)}); \
		return gate_end(&call_, real_##name arguments);                          \
	}

/* Between addresses of any kind. */
EITHER(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes),
       CU_STREAM_LEGACY, bytes, is_host(to) || is_host(from))
EITHER(cuMemcpy_ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes),
       CU_STREAM_PER_THREAD, bytes, is_host(to) || is_host(from))
EITHER(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
       (to, from, bytes, stream), gate_stream_of(stream), bytes, is_host(to) || is_host(from))
EITHER(cuMemcpyAsync_ptsz, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
       (to, from, bytes, stream), gate_stream_ptsz(stream), bytes, is_host(to) || is_host(from))
EITHER(cuMemcpyWithAttributesAsync,
       (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUmemcpyAttributes *attributes,
	CUstream stream),
       (to, from, bytes, attributes, stream), gate_stream_of(stream), bytes,
       is_host(to) || is_host(from))
EITHER(cuMemcpyWithAttributesAsync_ptsz,
       (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUmemcpyAttributes *attributes,
	CUstream stream),
       (to, from, bytes, attributes, stream), gate_stream_ptsz(stream), bytes,
       is_host(to) || is_host(from))
DEVICE(cuMemcpyPeer,
       (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
	size_t bytes),
       (to, to_context, from, from_context, bytes), CU_STREAM_LEGACY, bytes)
DEVICE(cuMemcpyPeer_ptds,
       (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
	size_t bytes),
       (to, to_context, from, from_context, bytes), CU_STREAM_PER_THREAD, bytes)
DEVICE(cuMemcpyPeerAsync,
       (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
	size_t bytes, CUstream stream),
       (to, to_context, from, from_context, bytes, stream), gate_stream_of(stream), bytes)
DEVICE(cuMemcpyPeerAsync_ptsz,
       (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
	size_t bytes, CUstream stream),
       (to, to_context, from, from_context, bytes, stream), gate_stream_ptsz(stream), bytes)

/* Within devices. */
DEVICE(cuMemcpyDtoD, (CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned int bytes),
       (to, from, bytes), CU_STREAM_LEGACY, bytes)
DEVICE(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes),
       CU_STREAM_LEGACY, bytes)
DEVICE(cuMemcpyDtoD_v2_ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes),
       CU_STREAM_PER_THREAD, bytes)
DEVICE(cuMemcpyDtoDAsync,
       (CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned int bytes, CUstream stream),
       (to, from, bytes, stream), gate_stream_of(stream), bytes)
DEVICE(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
       (to, from, bytes, stream), gate_stream_of(stream), bytes)
DEVICE(cuMemcpyDtoDAsync_v2_ptsz, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
       (to, from, bytes, stream), gate_stream_ptsz(stream), bytes)
DEVICE(cuMemcpyAtoA,
       (CUarray to, unsigned int to_offset, CUarray from, unsigned int from_offset,
	unsigned int bytes),
       (to, to_offset, from, from_offset, bytes), CU_STREAM_LEGACY, bytes)
DEVICE(cuMemcpyAtoA_v2,
       (CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t bytes),
       (to, to_offset, from, from_offset, bytes), CU_STREAM_LEGACY, bytes)
DEVICE(cuMemcpyAtoA_v2_ptds,
       (CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t bytes),
       (to, to_offset, from, from_offset, bytes), CU_STREAM_PER_THREAD, bytes)
DEVICE(cuMemcpyAtoD, (CUdeviceptr_v1 to, CUarray from, unsigned int offset, unsigned int bytes),
       (to, from, offset, bytes), CU_STREAM_LEGACY, bytes)
DEVICE(cuMemcpyAtoD_v2, (CUdeviceptr to, CUarray from, size_t offset, size_t bytes),
       (to, from, offset, bytes), CU_STREAM_LEGACY, bytes)
DEVICE(cuMemcpyAtoD_v2_ptds, (CUdeviceptr to, CUarray from, size_t offset, size_t bytes),
       (to, from, offset, bytes), CU_STREAM_PER_THREAD, bytes)
DEVICE(cuMemcpyDtoA, (CUarray to, unsigned int offset, CUdeviceptr_v1 from, unsigned int bytes),
       (to, offset, from, bytes), CU_STREAM_LEGACY, bytes)
DEVICE(cuMemcpyDtoA_v2, (CUarray to, size_t offset, CUdeviceptr from, size_t bytes),
       (to, offset, from, bytes), CU_STREAM_LEGACY, bytes)
DEVICE(cuMemcpyDtoA_v2_ptds, (CUarray to, size_t offset, CUdeviceptr from, size_t bytes),
       (to, offset, from, bytes), CU_STREAM_PER_THREAD, bytes)

/* From and to the host. */
HOST_WAIT(cuMemcpyHtoD, (CUdeviceptr_v1 to, const void *from, unsigned int bytes),
	  (to, from, bytes), bytes)
HOST_WAIT(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes), (to, from, bytes),
	  bytes)
HOST_WAIT(cuMemcpyHtoD_v2_ptds, (CUdeviceptr to, const void *from, size_t bytes), (to, from, bytes),
	  bytes)
HOST(cuMemcpyHtoDAsync, (CUdeviceptr_v1 to, const void *from, unsigned int bytes, CUstream stream),
     (to, from, bytes, stream), bytes)
HOST(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream),
     (to, from, bytes, stream), bytes)
HOST(cuMemcpyHtoDAsync_v2_ptsz, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream),
     (to, from, bytes, stream), bytes)
HOST_WAIT(cuMemcpyDtoH, (void *to, CUdeviceptr_v1 from, unsigned int bytes), (to, from, bytes),
	  bytes)
HOST_WAIT(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes), (to, from, bytes), bytes)
HOST_WAIT(cuMemcpyDtoH_v2_ptds, (void *to, CUdeviceptr from, size_t bytes), (to, from, bytes),
	  bytes)
HOST(cuMemcpyDtoHAsync, (void *to, CUdeviceptr_v1 from, unsigned int bytes, CUstream stream),
     (to, from, bytes, stream), bytes)
HOST(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream),
     (to, from, bytes, stream), bytes)
HOST(cuMemcpyDtoHAsync_v2_ptsz, (void *to, CUdeviceptr from, size_t bytes, CUstream stream),
     (to, from, bytes, stream), bytes)
HOST_WAIT(cuMemcpyHtoA, (CUarray to, unsigned int offset, const void *from, unsigned int bytes),
	  (to, offset, from, bytes), bytes)
HOST_WAIT(cuMemcpyHtoA_v2, (CUarray to, size_t offset, const void *from, size_t bytes),
	  (to, offset, from, bytes), bytes)
HOST_WAIT(cuMemcpyHtoA_v2_ptds, (CUarray to, size_t offset, const void *from, size_t bytes),
	  (to, offset, from, bytes), bytes)
HOST(cuMemcpyHtoAAsync,
     (CUarray to, unsigned int offset, const void *from, unsigned int bytes, CUstream stream),
     (to, offset, from, bytes, stream), bytes)
HOST(cuMemcpyHtoAAsync_v2,
     (CUarray to, size_t offset, const void *from, size_t bytes, CUstream stream),
     (to, offset, from, bytes, stream), bytes)
HOST(cuMemcpyHtoAAsync_v2_ptsz,
     (CUarray to, size_t offset, const void *from, size_t bytes, CUstream stream),
     (to, offset, from, bytes, stream), bytes)
HOST_WAIT(cuMemcpyAtoH, (void *to, CUarray from, unsigned int offset, unsigned int bytes),
	  (to, from, offset, bytes), bytes)
HOST_WAIT(cuMemcpyAtoH_v2, (void *to, CUarray from, size_t offset, size_t bytes),
	  (to, from, offset, bytes), bytes)
HOST_WAIT(cuMemcpyAtoH_v2_ptds, (void *to, CUarray from, size_t offset, size_t bytes),
	  (to, from, offset, bytes), bytes)
HOST(cuMemcpyAtoHAsync,
     (void *to, CUarray from, unsigned int offset, unsigned int bytes, CUstream stream),
     (to, from, offset, bytes, stream), bytes)
HOST(cuMemcpyAtoHAsync_v2, (void *to, CUarray from, size_t offset, size_t bytes, CUstream stream),
     (to, from, offset, bytes, stream), bytes)
HOST(cuMemcpyAtoHAsync_v2_ptsz,
     (void *to, CUarray from, size_t offset, size_t bytes, CUstream stream),
     (to, from, offset, bytes, stream), bytes)

/* As a structure describes them. */
EITHER(cuMemcpy2D, (const CUDA_MEMCPY2D_v1 *copy), (copy), CU_STREAM_LEGACY, AREA(copy),
       HOST_IN(copy))
EITHER(cuMemcpy2D_v2, (const CUDA_MEMCPY2D *copy), (copy), CU_STREAM_LEGACY, AREA(copy),
       HOST_IN(copy))
EITHER(cuMemcpy2D_v2_ptds, (const CUDA_MEMCPY2D *copy), (copy), CU_STREAM_PER_THREAD, AREA(copy),
       HOST_IN(copy))
EITHER(cuMemcpy2DUnaligned, (const CUDA_MEMCPY2D_v1 *copy), (copy), CU_STREAM_LEGACY, AREA(copy),
       HOST_IN(copy))
EITHER(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *copy), (copy), CU_STREAM_LEGACY, AREA(copy),
       HOST_IN(copy))
EITHER(cuMemcpy2DUnaligned_v2_ptds, (const CUDA_MEMCPY2D *copy), (copy), CU_STREAM_PER_THREAD,
       AREA(copy), HOST_IN(copy))
EITHER(cuMemcpy2DAsync, (const CUDA_MEMCPY2D_v1 *copy, CUstream stream), (copy, stream),
       gate_stream_of(stream), AREA(copy), HOST_IN(copy))
EITHER(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *copy, CUstream stream), (copy, stream),
       gate_stream_of(stream), AREA(copy), HOST_IN(copy))
EITHER(cuMemcpy2DAsync_v2_ptsz, (const CUDA_MEMCPY2D *copy, CUstream stream), (copy, stream),
       gate_stream_ptsz(stream), AREA(copy), HOST_IN(copy))
EITHER(cuMemcpy3D, (const CUDA_MEMCPY3D_v1 *copy), (copy), CU_STREAM_LEGACY, VOLUME(copy),
       HOST_IN(copy))
EITHER(cuMemcpy3D_v2, (const CUDA_MEMCPY3D *copy), (copy), CU_STREAM_LEGACY, VOLUME(copy),
       HOST_IN(copy))
EITHER(cuMemcpy3D_v2_ptds, (const CUDA_MEMCPY3D *copy), (copy), CU_STREAM_PER_THREAD, VOLUME(copy),
       HOST_IN(copy))
EITHER(cuMemcpy3DAsync, (const CUDA_MEMCPY3D_v1 *copy, CUstream stream), (copy, stream),
       gate_stream_of(stream), VOLUME(copy), HOST_IN(copy))
EITHER(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *copy, CUstream stream), (copy, stream),
       gate_stream_of(stream), VOLUME(copy), HOST_IN(copy))
EITHER(cuMemcpy3DAsync_v2_ptsz, (const CUDA_MEMCPY3D *copy, CUstream stream), (copy, stream),
       gate_stream_ptsz(stream), VOLUME(copy), HOST_IN(copy))
EITHER(cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER *copy), (copy), CU_STREAM_LEGACY, VOLUME(copy),
       HOST_IN(copy))
EITHER(cuMemcpy3DPeer_ptds, (const CUDA_MEMCPY3D_PEER *copy), (copy), CU_STREAM_PER_THREAD,
       VOLUME(copy), HOST_IN(copy))
EITHER(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *copy, CUstream stream), (copy, stream),
       gate_stream_of(stream), VOLUME(copy), HOST_IN(copy))
EITHER(cuMemcpy3DPeerAsync_ptsz, (const CUDA_MEMCPY3D_PEER *copy, CUstream stream), (copy, stream),
       gate_stream_ptsz(stream), VOLUME(copy), HOST_IN(copy))

EITHER(cuMemcpy3DWithAttributesAsync,
       (CUDA_MEMCPY3D_BATCH_OP * op, unsigned long long flags, CUstream stream),
       (op, flags, stream), gate_stream_of(stream), volumes(op, 1), volumes_are_host(op, 1))
EITHER(cuMemcpy3DWithAttributesAsync_ptsz,
       (CUDA_MEMCPY3D_BATCH_OP * op, unsigned long long flags, CUstream stream),
       (op, flags, stream), gate_stream_ptsz(stream), volumes(op, 1), volumes_are_host(op, 1))

/* Many at once. */
EITHER(cuMemcpyBatchAsync,
       (CUdeviceptr * to, CUdeviceptr *from, size_t *sizes, size_t count,
	CUmemcpyAttributes *attributes, size_t *attribute_indices, size_t attribute_count,
	size_t *failed, CUstream stream),
       (to, from, sizes, count, attributes, attribute_indices, attribute_count, failed, stream),
       gate_stream_of(stream), batch_bytes(sizes, count), batch_is_host(to, from, count))
EITHER(cuMemcpyBatchAsync_ptsz,
       (CUdeviceptr * to, CUdeviceptr *from, size_t *sizes, size_t count,
	CUmemcpyAttributes *attributes, size_t *attribute_indices, size_t attribute_count,
	size_t *failed, CUstream stream),
       (to, from, sizes, count, attributes, attribute_indices, attribute_count, failed, stream),
       gate_stream_ptsz(stream), batch_bytes(sizes, count), batch_is_host(to, from, count))
EITHER(cuMemcpyBatchAsync_v2,
       (CUdeviceptr * to, CUdeviceptr *from, size_t *sizes, size_t count,
	CUmemcpyAttributes *attributes, size_t *attribute_indices, size_t attribute_count,
	CUstream stream),
       (to, from, sizes, count, attributes, attribute_indices, attribute_count, stream),
       gate_stream_of(stream), batch_bytes(sizes, count), batch_is_host(to, from, count))
EITHER(cuMemcpyBatchAsync_v2_ptsz,
       (CUdeviceptr * to, CUdeviceptr *from, size_t *sizes, size_t count,
	CUmemcpyAttributes *attributes, size_t *attribute_indices, size_t attribute_count,
	CUstream stream),
       (to, from, sizes, count, attributes, attribute_indices, attribute_count, stream),
       gate_stream_ptsz(stream), batch_bytes(sizes, count), batch_is_host(to, from, count))
EITHER(cuMemcpy3DBatchAsync,
       (size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *failed, unsigned long long flags,
	CUstream stream),
       (count, ops, failed, flags, stream), gate_stream_of(stream), volumes(ops, count),
       volumes_are_host(ops, count))
EITHER(cuMemcpy3DBatchAsync_ptsz,
       (size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *failed, unsigned long long flags,
	CUstream stream),
       (count, ops, failed, flags, stream), gate_stream_ptsz(stream), volumes(ops, count),
       volumes_are_host(ops, count))
EITHER(cuMemcpy3DBatchAsync_v2,
       (size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, unsigned long long flags, CUstream stream),
       (count, ops, flags, stream), gate_stream_of(stream), volumes(ops, count),
       volumes_are_host(ops, count))
EITHER(cuMemcpy3DBatchAsync_v2_ptsz,
       (size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, unsigned long long flags, CUstream stream),
       (count, ops, flags, stream), gate_stream_ptsz(stream), volumes(ops, count),
       volumes_are_host(ops, count))
