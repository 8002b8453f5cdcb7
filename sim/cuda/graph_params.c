/* Looking at nodes' parameters, and changing them, in graphs and in executable graphs. */
#include "cuda/graph_params.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/context.h"
#include "cuda/handle.h"
#include "cuda/module.h"

static CUresult node_check(CUgraphNode node, CUgraphNodeType type)
{
	return handle_is(node, HANDLE_NODE) && node->type == type ? CUDA_SUCCESS
								  : CUDA_ERROR_INVALID_VALUE;
}

/* Takes the op over, always. */
static CUresult node_set(CUgraphNode node, CUgraphNodeType type, struct op *op)
{
	CUresult result = node_check(node, type);

	if (result != CUDA_SUCCESS) {
		op_release(op);
		return result;
	}
	pthread_mutex_lock(&driver.lock);
	op_release(&node->op);
	node->op = *op;
	free(node->param_pointers);
	node->param_pointers = NULL;
	pthread_mutex_unlock(&driver.lock);
	return CUDA_SUCCESS;
}

/* Both entry points of a kind that change parameters: the graph's and the executable graph's. */
#define SET_PARAMS(make, set)              \
	do {                               \
		struct op op;              \
		API_BEGIN_CONTEXT(ctx);    \
		CUresult made_ = make;     \
		if (made_ != CUDA_SUCCESS) \
			return made_;      \
		return set;                \
	} while (0)

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p)
{
	SET_PARAMS(kernel_op(ctx, p, &op), node_set(node, CU_GRAPH_NODE_TYPE_KERNEL, &op));
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
					   const CUDA_KERNEL_NODE_PARAMS *p)
{
	SET_PARAMS(kernel_op(ctx, p, &op),
		   graph_exec_set_op(exec, node, CU_GRAPH_NODE_TYPE_KERNEL, &op));
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
	CUDA_KERNEL_NODE_PARAMS p = {0};

	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&p, params, sizeof(*params));
	return cuGraphKernelNodeSetParams_v2(node, &p);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
					const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
	CUDA_KERNEL_NODE_PARAMS p = {0};

	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&p, params, sizeof(*params));
	return cuGraphExecKernelNodeSetParams_v2(exec, node, &p);
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *p)
{
	SET_PARAMS(memcpy_op(p, &op), node_set(node, CU_GRAPH_NODE_TYPE_MEMCPY, &op));
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *p,
					CUcontext copy_ctx)
{
	SET_PARAMS(memcpy_op(p, &op),
		   graph_exec_set_op(exec, node, CU_GRAPH_NODE_TYPE_MEMCPY, &op));
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *p)
{
	SET_PARAMS(memset_op(p, &op), node_set(node, CU_GRAPH_NODE_TYPE_MEMSET, &op));
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
					const CUDA_MEMSET_NODE_PARAMS *p, CUcontext set_ctx)
{
	SET_PARAMS(memset_op(p, &op),
		   graph_exec_set_op(exec, node, CU_GRAPH_NODE_TYPE_MEMSET, &op));
}

CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *p)
{
	SET_PARAMS(host_op(p, &op), node_set(node, CU_GRAPH_NODE_TYPE_HOST, &op));
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
				      const CUDA_HOST_NODE_PARAMS *p)
{
	SET_PARAMS(host_op(p, &op), graph_exec_set_op(exec, node, CU_GRAPH_NODE_TYPE_HOST, &op));
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event)
{
	SET_PARAMS(event_op(event, OP_EVENT_RECORD, &op),
		   node_set(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &op));
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
	SET_PARAMS(event_op(event, OP_EVENT_RECORD, &op),
		   graph_exec_set_op(exec, node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &op));
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event)
{
	SET_PARAMS(event_op(event, OP_EVENT_WAIT, &op),
		   node_set(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &op));
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
	SET_PARAMS(event_op(event, OP_EVENT_WAIT, &op),
		   graph_exec_set_op(exec, node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &op));
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	SET_PARAMS(memops_op(p, &op), node_set(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &op));
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
					    const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	SET_PARAMS(memops_op(p, &op),
		   graph_exec_set_op(exec, node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &op));
}

CUresult params_op(CUcontext ctx, CUgraphNodeType type, CUgraphNodeParams *p, struct op *ret)
{
	if (!p || p->type != type)
		return CUDA_ERROR_INVALID_VALUE;
	switch (type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return kernel_op(ctx, &p->kernel, ret);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return memcpy_op(&p->memcpy.copyParams, ret);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return memset_op((const CUDA_MEMSET_NODE_PARAMS *)&p->memset, ret);
	case CU_GRAPH_NODE_TYPE_HOST:
		return host_op(&p->host, ret);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return event_op(p->eventWait.event, OP_EVENT_WAIT, ret);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return event_op(p->eventRecord.event, OP_EVENT_RECORD, ret);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return memops_op(&p->memOp, ret);
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *p)
{
	if (!handle_is(node, HANDLE_NODE))
		return CUDA_ERROR_INVALID_VALUE;
	SET_PARAMS(params_op(ctx, node->type, p, &op), node_set(node, node->type, &op));
}

CUresult cuGraphNodeSetParams_v2(CUgraphNode node, CUgraphNodeParams *p)
{
	return cuGraphNodeSetParams(node, p);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	SET_PARAMS(params_op(ctx, p->type, p, &op), graph_exec_set_op(exec, node, p->type, &op));
}

#define NODE_OR_RETURN(node, wanted, out)                \
	do {                                             \
		API_BEGIN();                             \
		CUresult n_ = node_check(node, wanted);  \
		if (n_ != CUDA_SUCCESS || !(out))        \
			return CUDA_ERROR_INVALID_VALUE; \
	} while (0)

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *p)
{
	NODE_OR_RETURN(node, CU_GRAPH_NODE_TYPE_KERNEL, p);
	const struct op_kernel *k = &node->op.kernel;
	const struct ptx_kernel_info *info = k->function->info;
	if (!node->param_pointers) {
		node->param_pointers = calloc(info->param_count + 1, sizeof(void *));
		if (!node->param_pointers)
			return CUDA_ERROR_OUT_OF_MEMORY;
		for (uint32_t i = 0; i < info->param_count; i++)
			node->param_pointers[i] = (char *)k->params + info->params[i].offset;
	}
	*p = (CUDA_KERNEL_NODE_PARAMS){
		.func = k->function,
		.gridDimX = k->grid[0],
		.gridDimY = k->grid[1],
		.gridDimZ = k->grid[2],
		.blockDimX = k->block[0],
		.blockDimY = k->block[1],
		.blockDimZ = k->block[2],
		.sharedMemBytes = k->shared_bytes,
		.kernelParams = node->param_pointers,
		.ctx = k->function->module->ctx,
	};
	return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
	CUDA_KERNEL_NODE_PARAMS p;
	CUresult result =
		params ? cuGraphKernelNodeGetParams_v2(node, &p) : CUDA_ERROR_INVALID_VALUE;

	if (result == CUDA_SUCCESS)
		memcpy(params, &p, sizeof(*params));
	return result;
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *p)
{
	NODE_OR_RETURN(node, CU_GRAPH_NODE_TYPE_MEMCPY, p);
	const struct op_copy *c = &node->op.copy;
	*p = (CUDA_MEMCPY3D){
		.srcXInBytes = c->src.x,
		.srcY = c->src.y,
		.srcZ = c->src.z,
		.srcMemoryType = c->src.type,
		.srcHost = c->src.type == CU_MEMORYTYPE_HOST
				   ? (const void *)(uintptr_t)c->src.address
				   : NULL,
		.srcDevice = c->src.type == CU_MEMORYTYPE_DEVICE ? c->src.address : 0,
		.srcArray = c->src.array,
		.srcPitch = c->src.pitch,
		.srcHeight = c->src.rows,
		.dstXInBytes = c->dst.x,
		.dstY = c->dst.y,
		.dstZ = c->dst.z,
		.dstMemoryType = c->dst.type,
		.dstHost = c->dst.type == CU_MEMORYTYPE_HOST ? (void *)(uintptr_t)c->dst.address
							     : NULL,
		.dstDevice = c->dst.type == CU_MEMORYTYPE_DEVICE ? c->dst.address : 0,
		.dstArray = c->dst.array,
		.dstPitch = c->dst.pitch,
		.dstHeight = c->dst.rows,
		.WidthInBytes = c->width,
		.Height = c->height,
		.Depth = c->depth,
	};
	return CUDA_SUCCESS;
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *p)
{
	NODE_OR_RETURN(node, CU_GRAPH_NODE_TYPE_MEMSET, p);
	const struct op_set *s = &node->op.set;
	*p = (CUDA_MEMSET_NODE_PARAMS){s->address, s->pitch, s->value,
				       s->element, s->width, s->height};
	return CUDA_SUCCESS;
}

CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *p)
{
	NODE_OR_RETURN(node, CU_GRAPH_NODE_TYPE_HOST, p);
	*p = (CUDA_HOST_NODE_PARAMS){node->op.host.function, node->op.host.data};
	return CUDA_SUCCESS;
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event)
{
	NODE_OR_RETURN(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
	*event = node->op.event;
	return CUDA_SUCCESS;
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event)
{
	NODE_OR_RETURN(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
	*event = node->op.event;
	return CUDA_SUCCESS;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph)
{
	NODE_OR_RETURN(node, CU_GRAPH_NODE_TYPE_GRAPH, graph);
	*graph = node->child;
	return CUDA_SUCCESS;
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	NODE_OR_RETURN(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, p);
	*p = (CUDA_BATCH_MEM_OP_NODE_PARAMS){.count = node->op.memops.count,
					     .paramArray = node->op.memops.list};
	return CUDA_SUCCESS;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	NODE_OR_RETURN(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC, p);
	*p = (CUDA_MEM_ALLOC_NODE_PARAMS){
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			      .location = {CU_MEM_LOCATION_TYPE_DEVICE,
					   graph_memory_device(node->memory)->ordinal}},
		.bytesize = graph_memory_size(node->memory),
		.dptr = graph_memory_address(node->memory),
	};
	return CUDA_SUCCESS;
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *address)
{
	NODE_OR_RETURN(node, CU_GRAPH_NODE_TYPE_MEM_FREE, address);
	*address = node->op.memory.address;
	return CUDA_SUCCESS;
}

/* Only that attribute of kernel nodes is kept which changes what runs. */
CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
				       CUkernelNodeAttrValue *value)
{
	NODE_OR_RETURN(node, CU_GRAPH_NODE_TYPE_KERNEL, value);
	memset(value, 0, sizeof(*value));
	if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
		value->cooperative = node->op.kernel.cooperative;
	return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
				       const CUkernelNodeAttrValue *value)
{
	NODE_OR_RETURN(node, CU_GRAPH_NODE_TYPE_KERNEL, value);
	if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
		node->op.kernel.cooperative = value->cooperative != 0;
	return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from)
{
	NODE_OR_RETURN(to, CU_GRAPH_NODE_TYPE_KERNEL, from);
	if (node_check(from, CU_GRAPH_NODE_TYPE_KERNEL) != CUDA_SUCCESS)
		return CUDA_ERROR_INVALID_VALUE;
	to->op.kernel.cooperative = from->op.kernel.cooperative;
	return CUDA_SUCCESS;
}

/* By its kind, as the getters of the kinds say. */
CUresult cuGraphNodeGetParams(CUgraphNode node, CUgraphNodeParams *p)
{
	API_BEGIN();
	if (!handle_is(node, HANDLE_NODE) || !p)
		return CUDA_ERROR_INVALID_VALUE;
	*p = (CUgraphNodeParams){.type = node->type};
	switch (node->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return cuGraphKernelNodeGetParams_v2(node, &p->kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return cuGraphMemcpyNodeGetParams(node, &p->memcpy.copyParams);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return cuGraphMemsetNodeGetParams(node, (CUDA_MEMSET_NODE_PARAMS *)&p->memset);
	case CU_GRAPH_NODE_TYPE_HOST:
		return cuGraphHostNodeGetParams(node, &p->host);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return cuGraphChildGraphNodeGetGraph(node, &p->graph.graph);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return cuGraphEventWaitNodeGetEvent(node, &p->eventWait.event);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return cuGraphEventRecordNodeGetEvent(node, &p->eventRecord.event);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return cuGraphBatchMemOpNodeGetParams(node, &p->memOp);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return cuGraphMemAllocNodeGetParams(node, &p->alloc);
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return cuGraphMemFreeNodeGetParams(node, &p->free.dptr);
	default:
		return node->type == CU_GRAPH_NODE_TYPE_EMPTY ? CUDA_SUCCESS
							      : CUDA_ERROR_NOT_SUPPORTED;
	}
}
