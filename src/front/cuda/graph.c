/* Memory nodes of graphs: the driver takes their memory when an executable graph is made, uploaded
 * or launched, into what it holds for graphs on the device, and gives it back when asked to trim.
 * Graphs without memory nodes go straight to the driver. */
#include <sys/mman.h>

#include "front/books.h"
#include "front/cuda/gate.h"
#include "front/cuda/grow.h"
#include "front/cuda/hooks.h"

_Atomic bool graphs_have_memory;

/* Graphs in graphs in graphs. */
#define DEPTH_MAX 8

static uint64_t graph_bytes(CUgraph graph, int depth);

static uint64_t node_bytes(CUgraphNode node, int depth)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params;
	CUgraphNodeType type;
	CUgraph child;

	if (real_cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
		return 0;
	if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
	    real_cuGraphMemAllocNodeGetParams(node, &params) == CUDA_SUCCESS)
		return books_blocks(params.bytesize);
	if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
	    real_cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS)
		return graph_bytes(child, depth + 1);
	return 0;
}

/* What its memory nodes ask for together. */
static uint64_t graph_bytes(CUgraph graph, int depth)
{
	size_t count = 0;
	uint64_t sum = 0;

	if (depth > DEPTH_MAX || real_cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS ||
	    !count)
		return 0;
	CUgraphNode *nodes = mmap(NULL, count * sizeof(CUgraphNode), PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (nodes == MAP_FAILED)
		return 0;
	size_t mapped = count * sizeof(CUgraphNode);
	if (real_cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS)
		for (size_t i = 0; i < count && sum < BOOKS_MOST; i++)
			sum += node_bytes(nodes[i], depth);
	munmap(nodes, mapped);
	return sum;
}

struct graph_call {
	struct growing growing;
	uint64_t bytes; /* 0: nothing is charged */
	uint64_t exec;  /* 0: there is none yet */
	uint64_t stream;
};

/* Where the slice has no room for all that the graph asks for, it is launched only if it has its
 * memory already; else what graphs hold unused is given back first. */
static CUresult tight_begin(struct graph_call *c, struct process *p, CUdevice device, int gpu)
{
	const int kind = OBJECT_GRAPH_POOL;
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	if (c->exec &&
	    grow_begin_alone(&c->growing, p, kind, (uint64_t)device, gpu) == CUDA_SUCCESS) {
		if (books_graph_has_memory(p, c->exec, c->stream))
			return CUDA_SUCCESS;
		grow_end(&c->growing);
	}
	for (int i = 0; i < 2 && result != CUDA_SUCCESS; i++) {
		if (i && !grow_quiesce())
			break;
		grow_trim(p, gpu);
		result = grow_begin(&c->growing, p, kind, (uint64_t)device, gpu, c->bytes);
	}
	if (result != CUDA_SUCCESS)
		books_count_refused(p, gpu);
	return result;
}

static CUresult graph_begin(struct graph_call *c, struct process *p, uint64_t bytes)
{
	CUdevice device;

	c->bytes = 0;
	if (!bytes || real_cuCtxGetDevice(&device) != CUDA_SUCCESS)
		return CUDA_SUCCESS;
	int gpu = charge_gpu_of(p, device);
	if (gpu < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	c->bytes = bytes;
	CUresult result =
		grow_begin(&c->growing, p, OBJECT_GRAPH_POOL, (uint64_t)device, gpu, bytes);
	if (result != CUDA_SUCCESS)
		result = tight_begin(c, p, device, gpu);
	if (result != CUDA_SUCCESS)
		c->bytes = 0;
	return result;
}

/* What it grew beyond the reservation, which is rare, the daemon posts: the call cannot be undone.
 */
static CUresult graph_end(struct graph_call *c, CUresult result)
{
	if (c->bytes)
		(void)grow_end(&c->growing);
	return result;
}

static CUresult instantiate_begin(struct graph_call *c, CUgraph graph)
{
	struct process *p = process_peek();

	*c = (struct graph_call){0};
	if (!p || !atomic_load_explicit(&graphs_have_memory, memory_order_relaxed))
		return CUDA_SUCCESS;
	return graph_begin(c, p, graph_bytes(graph, 0));
}

static CUresult instantiate_end(struct graph_call *c, CUresult result, const CUgraphExec *exec)
{
	if (!c->bytes)
		return result;
	struct process *p = c->growing.taking.process;
	struct object object = {.kind = OBJECT_GRAPH, .memory = c->bytes};

	graph_end(c, result);
	if (result == CUDA_SUCCESS) {
		object.handle = (uintptr_t)*exec;
		books_note(p, &object);
	}
	return result;
}

/* What every way to instantiate does around the driver's call. */
#define INSTANTIATE(exec, graph, call)                  \
	struct graph_call c;                            \
	CUresult result = instantiate_begin(&c, graph); \
	return result != CUDA_SUCCESS ? result : instantiate_end(&c, call, exec)

CUresult hook_cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
				 char *log, size_t log_size)
{
	INSTANTIATE(exec, graph, real_cuGraphInstantiate(exec, graph, error_node, log, log_size));
}

CUresult hook_cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
				    char *log, size_t log_size)
{
	INSTANTIATE(exec, graph,
		    real_cuGraphInstantiate_v2(exec, graph, error_node, log, log_size));
}

CUresult hook_cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
					  unsigned long long flags)
{
	INSTANTIATE(exec, graph, real_cuGraphInstantiateWithFlags(exec, graph, flags));
}

CUresult hook_cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
					   CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	INSTANTIATE(exec, graph, real_cuGraphInstantiateWithParams(exec, graph, params));
}

CUresult hook_cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
						CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	INSTANTIATE(exec, graph, real_cuGraphInstantiateWithParams_ptsz(exec, graph, params));
}

/* What a stream is called: the two defaults have names of their own. */
static uint64_t stream_of(CUstream stream, bool own_default)
{
	return own_default && !stream ? (uintptr_t)CU_STREAM_PER_THREAD : (uintptr_t)stream;
}

static CUresult launch_begin(struct graph_call *c, CUgraphExec exec, uint64_t stream)
{
	struct process *p = process_peek();
	struct object object;

	*c = (struct graph_call){.exec = (uintptr_t)exec, .stream = stream};
	if (!p || !atomic_load_explicit(&graphs_have_memory, memory_order_relaxed) ||
	    !books_look(p, OBJECT_GRAPH, (uintptr_t)exec, &object))
		return CUDA_SUCCESS;
	return graph_begin(c, p, object.memory);
}

static CUresult launch_end(struct graph_call *c, CUresult result)
{
	if (c->bytes && result == CUDA_SUCCESS)
		books_graph_launched(c->growing.taking.process, c->exec, c->stream);
	return graph_end(c, result);
}

/* No graph of the process has memory nodes. */
static inline bool graphs_are_plain(void)
{
	return !atomic_load_explicit(&graphs_have_memory, memory_order_relaxed);
}

#define LAUNCH(exec, stream, call)                        \
	struct graph_call c;                              \
	if (graphs_are_plain())                           \
		return call;                              \
	CUresult result = launch_begin(&c, exec, stream); \
	return result != CUDA_SUCCESS ? result : launch_end(&c, call)

static CUresult launch(CUgraphExec exec, CUstream stream)
{
	LAUNCH(exec, stream_of(stream, false), real_cuGraphLaunch(exec, stream));
}

static CUresult launch_ptsz(CUgraphExec exec, CUstream stream)
{
	LAUNCH(exec, stream_of(stream, true), real_cuGraphLaunch_ptsz(exec, stream));
}

/* A graph passes the gate as a whole. */
CUresult gated_cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	struct gate_call call;

	if (gate_is_off())
		return launch(exec, stream);
	struct gate_local *local = gate_enter(gate_stream_of(stream));
	if (!local) {
		gate_begin(&call, gate_stream_of(stream),
			   (struct gate_work){.what = (uintptr_t)exec});
		return gate_end(&call, launch(exec, stream));
	}
	CUresult result = launch(exec, stream);
	gate_leave(local);
	return result;
}

CUresult gated_cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
	struct gate_call call;

	if (gate_is_off())
		return launch_ptsz(exec, stream);
	struct gate_local *local = gate_enter(gate_stream_ptsz(stream));
	if (!local) {
		gate_begin(&call, gate_stream_ptsz(stream),
			   (struct gate_work){.what = (uintptr_t)exec});
		return gate_end(&call, launch_ptsz(exec, stream));
	}
	CUresult result = launch_ptsz(exec, stream);
	gate_leave(local);
	return result;
}

CUresult hook_cuGraphUpload(CUgraphExec exec, CUstream stream)
{
	LAUNCH(exec, stream_of(stream, false), real_cuGraphUpload(exec, stream));
}

CUresult hook_cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
	LAUNCH(exec, stream_of(stream, true), real_cuGraphUpload_ptsz(exec, stream));
}

CUresult hook_cuGraphExecDestroy(CUgraphExec exec)
{
	struct process *p = process_peek();
	CUresult result = real_cuGraphExecDestroy(exec);

	if (result == CUDA_SUCCESS)
		gate_forget_work(exec);
	if (result == CUDA_SUCCESS && p) {
		books_forget(p, OBJECT_GRAPH, (uintptr_t)exec, 0);
		grow_settle(p);
	}
	return result;
}

CUresult hook_cuDeviceGraphMemTrim(CUdevice device)
{
	struct process *p = process_peek();

	if (p)
		books_graphs_changed(p);
	CUresult result = real_cuDeviceGraphMemTrim(device);
	if (p)
		grow_settle_one(p, OBJECT_GRAPH_POOL, (uint64_t)device);
	return result;
}

/* From now on instantiated graphs are looked into. */
static void graph_gets_memory(void)
{
	process_get();
	atomic_store(&graphs_have_memory, true);
}

CUresult hook_cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
				     size_t after_count, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	graph_gets_memory();
	return real_cuGraphAddMemAllocNode(node, graph, after, after_count, params);
}

CUresult hook_cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
			     size_t after_count, CUgraphNodeParams *params)
{
	if (params && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		graph_gets_memory();
	return real_cuGraphAddNode(node, graph, after, after_count, params);
}

CUresult hook_cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
				const CUgraphEdgeData *edges, size_t after_count,
				CUgraphNodeParams *params)
{
	if (params && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		graph_gets_memory();
	return real_cuGraphAddNode_v2(node, graph, after, edges, after_count, params);
}
