/* From the API's descriptions of nodes to ops, checked. */
#pragma once

#include "cuda/graph.h"

CUresult kernel_op(CUcontext ctx, const CUDA_KERNEL_NODE_PARAMS *p, struct op *ret);
CUresult memcpy_op(const CUDA_MEMCPY3D *p, struct op *ret);
CUresult memset_op(const CUDA_MEMSET_NODE_PARAMS *p, struct op *ret);
CUresult host_op(const CUDA_HOST_NODE_PARAMS *p, struct op *ret);
CUresult event_op(CUevent event, enum op_kind kind, struct op *ret);
CUresult memops_op(const CUDA_BATCH_MEM_OP_NODE_PARAMS *p, struct op *ret);
/* Makes an op of the same kind as the node of a generic description. */
CUresult params_op(CUcontext ctx, CUgraphNodeType type, CUgraphNodeParams *p, struct op *ret);
/* Gives the executable graph's node another op; takes it over, always. */
CUresult graph_exec_set_op(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type, struct op *op);
