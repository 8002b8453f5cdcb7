/* The forms of cuMemcpy. */
#include "cuda/array.h"
#include "cuda/context.h"
#include "cuda/copy.h"
#include "cuda/handle.h"
#include "cuda/stream.h"

static struct op_copy_side host_side(const void *pointer)
{
	return (struct op_copy_side){.type = CU_MEMORYTYPE_HOST,
				     .address = (uint64_t)(uintptr_t)pointer};
}

static struct op_copy_side device_side(CUdeviceptr address)
{
	return (struct op_copy_side){.type = CU_MEMORYTYPE_DEVICE, .address = address};
}

static struct op_copy_side unified_side(CUdeviceptr address)
{
	return (struct op_copy_side){.type = CU_MEMORYTYPE_UNIFIED, .address = address};
}

/* Offsets into arrays count bytes of the first row, as these calls want one-dimensional arrays. */
static struct op_copy_side array_side(CUarray array, size_t offset)
{
	struct op_copy_side side = {.type = CU_MEMORYTYPE_ARRAY, .array = array, .x = offset};

	if (handle_is(array, HANDLE_ARRAY) && array->pitch) {
		side.y = offset / array->pitch;
		side.x = offset % array->pitch;
	}
	return side;
}

static CUresult copy_1d(CUcontext ctx, struct op_copy_side dst, struct op_copy_side src,
			size_t bytes, CUstream stream, bool async)
{
	struct op_copy copy = {.src = src, .dst = dst, .width = bytes, .height = 1, .depth = 1};

	return copy_start(ctx, stream, &copy, async);
}

/* A call's two faces: one that waits, on the default stream, and one on a stream. */
#define COPY_SYNC(dst, src)                                        \
	do {                                                       \
		API_BEGIN_CONTEXT(ctx);                            \
		return copy_1d(ctx, dst, src, bytes, NULL, false); \
	} while (0)
#define COPY_ASYNC(dst, src)                                        \
	do {                                                        \
		API_BEGIN_CONTEXT(ctx);                             \
		return copy_1d(ctx, dst, src, bytes, stream, true); \
	} while (0)

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
	COPY_SYNC(unified_side(dst), unified_side(src));
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
	COPY_ASYNC(unified_side(dst), unified_side(src));
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t bytes)
{
	COPY_SYNC(device_side(dst), host_side(src));
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream)
{
	COPY_ASYNC(device_side(dst), host_side(src));
}

CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t bytes)
{
	COPY_SYNC(host_side(dst), device_side(src));
}

CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
	COPY_ASYNC(host_side(dst), device_side(src));
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
	COPY_SYNC(device_side(dst), device_side(src));
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
	COPY_ASYNC(device_side(dst), device_side(src));
}

CUresult cuMemcpyDtoA_v2(CUarray dst, size_t offset, CUdeviceptr src, size_t bytes)
{
	COPY_SYNC(array_side(dst, offset), device_side(src));
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr dst, CUarray src, size_t offset, size_t bytes)
{
	COPY_SYNC(device_side(dst), array_side(src, offset));
}

CUresult cuMemcpyHtoA_v2(CUarray dst, size_t offset, const void *src, size_t bytes)
{
	COPY_SYNC(array_side(dst, offset), host_side(src));
}

CUresult cuMemcpyHtoAAsync_v2(CUarray dst, size_t offset, const void *src, size_t bytes,
			      CUstream stream)
{
	COPY_ASYNC(array_side(dst, offset), host_side(src));
}

CUresult cuMemcpyAtoH_v2(void *dst, CUarray src, size_t offset, size_t bytes)
{
	COPY_SYNC(host_side(dst), array_side(src, offset));
}

CUresult cuMemcpyAtoHAsync_v2(void *dst, CUarray src, size_t offset, size_t bytes, CUstream stream)
{
	COPY_ASYNC(host_side(dst), array_side(src, offset));
}

CUresult cuMemcpyAtoA_v2(CUarray dst, size_t dst_offset, CUarray src, size_t src_offset,
			 size_t bytes)
{
	COPY_SYNC(array_side(dst, dst_offset), array_side(src, src_offset));
}

/* Contexts only say which device memory belongs to, and with unified addresses that is known. */
CUresult cuMemcpyPeer(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx,
		      size_t bytes)
{
	COPY_SYNC(device_side(dst), device_side(src));
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx,
			   size_t bytes, CUstream stream)
{
	COPY_ASYNC(device_side(dst), device_side(src));
}

static CUresult copy_2d(const CUDA_MEMCPY2D *p, CUstream stream, bool async)
{
	struct op_copy copy;

	API_BEGIN_CONTEXT(ctx);
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = copy_from_2d(p, &copy);
	return result == CUDA_SUCCESS ? copy_start(ctx, stream, &copy, async) : result;
}

static CUresult copy_3d(const CUDA_MEMCPY3D *p, CUstream stream, bool async)
{
	struct op_copy copy;

	API_BEGIN_CONTEXT(ctx);
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = copy_from_3d(p, &copy);
	return result == CUDA_SUCCESS ? copy_start(ctx, stream, &copy, async) : result;
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *p)
{
	return copy_2d(p, NULL, false);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *p)
{
	return copy_2d(p, NULL, false);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *p, CUstream stream)
{
	return copy_2d(p, stream, true);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *p)
{
	return copy_3d(p, NULL, false);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *p, CUstream stream)
{
	return copy_3d(p, stream, true);
}

/* The two descriptions differ only in what stands in the places of reserved0 and reserved1. */
static CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER *p, CUstream stream, bool async)
{
	_Static_assert(sizeof(CUDA_MEMCPY3D_PEER) == sizeof(CUDA_MEMCPY3D), "alike");
	return copy_3d((const CUDA_MEMCPY3D *)p, stream, async);
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *p)
{
	return copy_3d_peer(p, NULL, false);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *p, CUstream stream)
{
	return copy_3d_peer(p, stream, true);
}
