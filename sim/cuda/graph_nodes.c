/* Making nodes, by kind, and their parameters. */
#include <stdlib.h>
#include <string.h>

#include "cuda/context.h"
#include "cuda/copy.h"
#include "cuda/event.h"
#include "cuda/function.h"
#include "cuda/graph_params.h"
#include "cuda/handle.h"
#include "cuda/memory.h"

CUresult kernel_op(CUcontext ctx, const CUDA_KERNEL_NODE_PARAMS *p, struct op *ret)
{
	return p ? kernel_prepare(ctx, p, false, ret) : CUDA_ERROR_INVALID_VALUE;
}

CUresult memcpy_op(const CUDA_MEMCPY3D *p, struct op *ret)
{
	struct op_copy copy;

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = copy_from_3d(p, &copy);
	if (result == CUDA_SUCCESS)
		result = copy_check(&copy);
	if (result == CUDA_SUCCESS)
		*ret = (struct op){.kind = OP_COPY, .copy = copy};
	return result;
}

CUresult memset_op(const CUDA_MEMSET_NODE_PARAMS *p, struct op *ret)
{
	if (!p || !p->width || !p->height ||
	    (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4))
		return CUDA_ERROR_INVALID_VALUE;
	size_t row = p->width * p->elementSize;
	if ((p->height > 1 && p->pitch < row) ||
	    !range_covers(p->dst, (p->height - 1) * p->pitch + row))
		return CUDA_ERROR_INVALID_VALUE;
	*ret = (struct op){
		.kind = OP_SET,
		.set = {p->dst, p->pitch, p->value, p->elementSize, p->width, p->height}};
	return CUDA_SUCCESS;
}

CUresult host_op(const CUDA_HOST_NODE_PARAMS *p, struct op *ret)
{
	if (!p || !p->fn)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = (struct op){.kind = OP_HOST, .host = {.function = p->fn, .data = p->userData}};
	return CUDA_SUCCESS;
}

CUresult event_op(CUevent event, enum op_kind kind, struct op *ret)
{
	if (!handle_is(event, HANDLE_EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	*ret = (struct op){.kind = kind, .event = event_ref(event)};
	return CUDA_SUCCESS;
}

CUresult memops_op(const CUDA_BATCH_MEM_OP_NODE_PARAMS *p, struct op *ret)
{
	if (!p || (p->count && !p->paramArray) || p->flags)
		return CUDA_ERROR_INVALID_VALUE;
	struct op op = {.kind = OP_MEMOPS, .memops = {.count = p->count}};
	op.memops.list = calloc(p->count + 1, sizeof(p->paramArray[0]));
	if (!op.memops.list)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(op.memops.list, p->paramArray, p->count * sizeof(p->paramArray[0]));
	*ret = op;
	return CUDA_SUCCESS;
}

/* Puts a node of this op into the graph; takes the op over. */
static CUresult add(CUgraphNode *ret, CUgraph graph, const CUgraphNode *dependencies, size_t count,
		    struct op *op)
{
	CUresult result = ret && (dependencies || !count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	if (result == CUDA_SUCCESS && !handle_is(graph, HANDLE_GRAPH))
		result = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
		if (!graph_has_node(graph, dependencies[i]))
			result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS) {
		op_release(op);
		return result;
	}
	pthread_mutex_lock(&driver.lock);
	CUgraphNode node = graph_node_add(graph, graph_type_of_op(op), op, dependencies, count);
	pthread_mutex_unlock(&driver.lock);
	if (!node)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret = node;
	return CUDA_SUCCESS;
}

/* Begins an entry point that makes a node: `make` fills in `op`. */
#define ADD_NODE(make)                                             \
	do {                                                       \
		struct op op;                                      \
		API_BEGIN_CONTEXT(ctx);                            \
		CUresult made_ = make;                             \
		if (made_ != CUDA_SUCCESS)                         \
			return made_;                              \
		return add(node, graph, dependencies, count, &op); \
	} while (0)

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
				 size_t count, const CUDA_KERNEL_NODE_PARAMS *params)
{
	ADD_NODE(kernel_op(ctx, params, &op));
}

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
			      size_t count, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
	CUDA_KERNEL_NODE_PARAMS p = {0};

	API_BEGIN();
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&p, params, sizeof(*params));
	return cuGraphAddKernelNode_v2(node, graph, dependencies, count, &p);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
			      size_t count, const CUDA_MEMCPY3D *params, CUcontext copy_ctx)
{
	ADD_NODE(memcpy_op(params, &op));
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
			      size_t count, const CUDA_MEMSET_NODE_PARAMS *params,
			      CUcontext set_ctx)
{
	ADD_NODE(memset_op(params, &op));
}

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
			    size_t count, const CUDA_HOST_NODE_PARAMS *params)
{
	ADD_NODE(host_op(params, &op));
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph,
				   const CUgraphNode *dependencies, size_t count, CUevent event)
{
	ADD_NODE(event_op(event, OP_EVENT_RECORD, &op));
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
				 size_t count, CUevent event)
{
	ADD_NODE(event_op(event, OP_EVENT_WAIT, &op));
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
				  size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
	ADD_NODE(memops_op(params, &op));
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
			     size_t count)
{
	struct op op = {.kind = OP_EMPTY};

	API_BEGIN();
	return add(node, graph, dependencies, count, &op);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
				  size_t count, CUgraph child)
{
	struct op op = {.kind = OP_EMPTY};
	CUresult result;

	API_BEGIN();
	if (!handle_is(child, HANDLE_GRAPH) || child == graph)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver.lock);
	CUgraph clone = graph_clone(child, &result);
	pthread_mutex_unlock(&driver.lock);
	if (!clone)
		return result;
	result = add(node, graph, dependencies, count, &op);
	if (result != CUDA_SUCCESS) {
		graph_free(clone);
		return result;
	}
	clone->is_child = true;
	(*node)->type = CU_GRAPH_NODE_TYPE_GRAPH;
	(*node)->child = clone;
	return CUDA_SUCCESS;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
				size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	API_BEGIN_CONTEXT(ctx);
	if (!params || !params->bytesize ||
	    params->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	struct device *device = device_find(params->poolProps.location.id);
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	struct graph_memory *memory = graph_memory_create(device, params->bytesize);
	if (!memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct op op = {
		.kind = OP_ALLOC,
		.memory = {.address = graph_memory_address(memory), .size = params->bytesize}};
	CUresult result = add(node, graph, dependencies, count, &op);
	if (result != CUDA_SUCCESS) {
		graph_memory_unref(memory);
		return result;
	}
	(*node)->memory = memory;
	params->dptr = graph_memory_address(memory);
	return CUDA_SUCCESS;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
			       size_t count, CUdeviceptr address)
{
	struct op op = {.kind = OP_FREE, .memory = {.address = address}};
	struct range range;

	API_BEGIN_CONTEXT(ctx);
	if (!range_find(address, &range) || range.kind != RANGE_GRAPH || range.start != address)
		return CUDA_ERROR_INVALID_VALUE;
	return add(node, graph, dependencies, count, &op);
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
			size_t count, CUgraphNodeParams *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return cuGraphAddKernelNode_v2(node, graph, dependencies, count, &p->kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return cuGraphAddMemcpyNode(node, graph, dependencies, count, &p->memcpy.copyParams,
					    p->memcpy.copyCtx);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return cuGraphAddMemsetNode(node, graph, dependencies, count,
					    (const CUDA_MEMSET_NODE_PARAMS *)&p->memset,
					    p->memset.ctx);
	case CU_GRAPH_NODE_TYPE_HOST:
		return cuGraphAddHostNode(node, graph, dependencies, count, &p->host);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return cuGraphAddChildGraphNode(node, graph, dependencies, count, p->graph.graph);
	case CU_GRAPH_NODE_TYPE_EMPTY:
		return cuGraphAddEmptyNode(node, graph, dependencies, count);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return cuGraphAddEventWaitNode(node, graph, dependencies, count,
					       p->eventWait.event);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return cuGraphAddEventRecordNode(node, graph, dependencies, count,
						 p->eventRecord.event);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return cuGraphAddMemAllocNode(node, graph, dependencies, count, &p->alloc);
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return cuGraphAddMemFreeNode(node, graph, dependencies, count, p->free.dptr);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return cuGraphAddBatchMemOpNode(node, graph, dependencies, count, &p->memOp);
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
			   const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
	return cuGraphAddNode(node, graph, dependencies, count, params);
}

CUresult cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
			   const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
	return cuGraphAddNode(node, graph, dependencies, count, params);
}
