/* The null driver's pools, virtual memory, arrays and graphs: as much of them as is needed to see
 * what the front makes of each call. Not for threads, and of fixed size: a test of the front does
 * not need more. */
#include <string.h>

#include "base/cuda_abi.h"
#include "base/macros.h"

#define STEP MIB(32)
#define MOST 256
/* Pieces of pools are as far from one another. */
#define PIECE_SHIFT 40

struct CUmemPoolHandle_st {
	uint64_t reserved, used;
};

struct piece {
	CUdeviceptr ptr;
	size_t size;
	CUmemoryPool pool;
};

struct CUgraphNode_st {
	size_t bytes;
};

struct CUgraph_st {
	struct CUgraphNode_st nodes[8];
	size_t count;
};

struct CUgraphExec_st {
	uint64_t bytes;
};

static struct CUmemPoolHandle_st pools[MOST];
static int pool_count = 2; /* the first two are the defaults of the device and of the host */
static struct piece pieces[MOST];
static struct CUgraph_st graphs[MOST];
static struct CUgraphExec_st execs[MOST];
static int graph_count, exec_count;
static uint64_t graph_reserved;
static struct {
	CUdeviceptr ptr;
	CUmemGenericAllocationHandle handle;
} mappings[MOST];
static CUmemGenericAllocationHandle last_handle = 0x1000;
static uintptr_t last_array = 0x1000;

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
	*pool = &pools[0];
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
	return cuDeviceGetDefaultMemPool(pool, device);
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
	*pool = &pools[pool_count++ % MOST];
	return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location,
				CUmemAllocationType type)
{
	*pool = &pools[location->type != CU_MEM_LOCATION_TYPE_DEVICE];
	return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	if (pool == &pools[0] || pool == &pools[1])
		return CUDA_ERROR_INVALID_VALUE;
	*pool = (struct CUmemPoolHandle_st){0};
	return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	*(uint64_t *)value =
		attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? pool->reserved : pool->used;
	return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	pool->reserved = MIN(pool->reserved, ALIGN_UP(MAX(pool->used, keep), STEP));
	return CUDA_SUCCESS;
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *ptr, size_t size, CUmemoryPool pool, CUstream stream)
{
	for (size_t i = 0; i < MOST; i++) {
		if (pieces[i].ptr)
			continue;
		*ptr = (CUdeviceptr)(i + 1) << PIECE_SHIFT;
		pieces[i] = (struct piece){*ptr, size, pool};
		pool->used += size;
		pool->reserved = MAX(pool->reserved, ALIGN_UP(pool->used, STEP));
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAllocAsync(CUdeviceptr *ptr, size_t size, CUstream stream)
{
	return cuMemAllocFromPoolAsync(ptr, size, &pools[0], stream);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *ptr, size_t size, CUstream stream)
{
	return cuMemAllocAsync(ptr, size, stream);
}

static const struct piece *piece_find(CUdeviceptr ptr)
{
	const struct piece *piece = &pieces[((ptr >> PIECE_SHIFT) - 1) % MOST];

	return piece->ptr == ptr ? piece : NULL;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr ptr)
{
	const struct piece *piece = piece_find(ptr);

	if (!piece)
		return CUDA_ERROR_INVALID_VALUE;
	*base = piece->ptr;
	*size = piece->size;
	return CUDA_SUCCESS;
}

/* All that a pool has free lies behind each piece. */
CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	const struct piece *piece = piece_find(ptr);

	if (!piece)
		return CUDA_ERROR_INVALID_VALUE;
	if (attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE)
		*(CUmemoryPool *)data = piece->pool;
	else if (attribute == CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR)
		*(CUdeviceptr *)data = piece->ptr;
	else if (attribute == CU_POINTER_ATTRIBUTE_MAPPING_SIZE)
		*(size_t *)data = piece->size + (piece->pool->reserved - piece->pool->used);
	else
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
	for (size_t i = 0; i < MOST; i++) {
		if (pieces[i].ptr != ptr)
			continue;
		pieces[i].pool->used -= pieces[i].size;
		pieces[i].ptr = 0;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr ptr, CUstream stream)
{
	return cuMemFreeAsync(ptr, stream);
}

/* Free memory of a pool goes back at once. */
CUresult cuStreamSynchronize(CUstream stream)
{
	for (int i = 0; i < pool_count; i++)
		cuMemPoolTrimTo(&pools[i], 0);
	return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
	return cuStreamSynchronize(stream);
}

CUresult cuCtxSynchronize(void)
{
	return cuStreamSynchronize(NULL);
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
	*status = CU_STREAM_CAPTURE_STATUS_NONE;
	return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus *status)
{
	return cuStreamIsCapturing(stream, status);
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
				       CUmemAllocationGranularity_flags option)
{
	*granularity = MIB(2);
	return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
		     const CUmemAllocationProp *prop, unsigned long long flags)
{
	*handle = ++last_handle;
	return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	return handle > 0x1000 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	for (size_t i = 0; i < MOST; i++) {
		if (mappings[i].ptr)
			continue;
		mappings[i].ptr = ptr;
		mappings[i].handle = handle;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	for (size_t i = 0; i < MOST; i++)
		if (mappings[i].ptr >= ptr && mappings[i].ptr < ptr + size)
			mappings[i].ptr = 0;
	return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *at)
{
	for (size_t i = 0; i < MOST; i++) {
		if (mappings[i].ptr != (CUdeviceptr)at)
			continue;
		*handle = mappings[i].handle;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr ptr, size_t size,
				       CUmemRangeHandleType type, unsigned long long flags)
{
	return CUDA_SUCCESS;
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo *list, unsigned int count, CUstream stream)
{
	return CUDA_SUCCESS;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t multicast_offset,
			    CUmemGenericAllocationHandle handle, size_t offset, size_t size,
			    unsigned long long flags)
{
	return CUDA_SUCCESS;
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle multicast, size_t multicast_offset,
			     CUdeviceptr ptr, size_t size, unsigned long long flags)
{
	return CUDA_SUCCESS;
}

CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle multicast, CUdevice device,
			       size_t multicast_offset, CUmemGenericAllocationHandle handle,
			       size_t offset, size_t size, unsigned long long flags)
{
	return CUDA_SUCCESS;
}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle multicast, CUdevice device,
				size_t multicast_offset, CUdeviceptr ptr, size_t size,
				unsigned long long flags)
{
	return CUDA_SUCCESS;
}

CUresult cuLogicalEndpointBindMem(CUlogicalEndpointId endpoint, CUdevice device,
				  cuuint64_t endpoint_offset, CUmemGenericAllocationHandle handle,
				  cuuint64_t offset, cuuint64_t size, unsigned long long flags)
{
	return CUDA_SUCCESS;
}

CUresult cuLogicalEndpointBindAddr(CUlogicalEndpointId endpoint, CUdevice device,
				   cuuint64_t endpoint_offset, void *ptr, cuuint64_t size,
				   unsigned long long flags)
{
	return CUDA_SUCCESS;
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor)
{
	*array = (CUarray)(last_array += 8);
	return CUDA_SUCCESS;
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
	*array = (CUarray)(last_array += 8);
	return CUDA_SUCCESS;
}

CUresult cuArrayDestroy(CUarray array)
{
	return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
				unsigned int levels)
{
	*array = (CUmipmappedArray)(last_array += 8);
	return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
	return CUDA_SUCCESS;
}

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags)
{
	*graph = &graphs[graph_count++ % MOST];
	return CUDA_SUCCESS;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
				size_t after_count, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	*node = &graph->nodes[graph->count++ % ARRAY_SIZE(graph->nodes)];
	(*node)->bytes = params->bytesize;
	params->dptr = GIB(512) + graph_count;
	return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	for (size_t i = 0; nodes && i < MIN(*count, graph->count); i++)
		nodes[i] = &graph->nodes[i];
	*count = graph->count;
	return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
	*type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
	return CUDA_SUCCESS;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	*params = (CUDA_MEM_ALLOC_NODE_PARAMS){.bytesize = node->bytes};
	return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	*exec = &execs[exec_count++ % MOST];
	for (size_t i = 0; i < graph->count; i++)
		(*exec)->bytes += graph->nodes[i].bytes;
	return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	graph_reserved = MAX(graph_reserved, ALIGN_UP(exec->bytes, STEP));
	return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	return CUDA_SUCCESS;
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
	graph_reserved = 0;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
	*(uint64_t *)value =
		attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT ? graph_reserved : 0;
	return CUDA_SUCCESS;
}
