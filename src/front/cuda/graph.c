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

/* What memory nodes ask for together, by the device that they are on, whichever is current. */
struct graph_needs {
	uint64_t bytes[LEDGER_GPUS_MAX];
};

static void graph_needs_add(struct graph_needs *needs, CUgraph graph, int depth);

static void node_needs_add(struct graph_needs *needs, CUgraphNode node, int depth)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params;
	CUgraphNodeType type;
	CUgraph child;

	if (real_cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
		return;
	if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
	    real_cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS)
		graph_needs_add(needs, child, depth + 1);
	if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
	    real_cuGraphMemAllocNodeGetParams(node, &params) != CUDA_SUCCESS)
		return;
	CUdevice device = params.poolProps.location.id;
	/* A driver that does not say where means here. */
	if (params.poolProps.location.type == CU_MEM_LOCATION_TYPE_INVALID &&
	    real_cuCtxGetDevice(&device) != CUDA_SUCCESS)
		return;
	if (params.poolProps.location.type <= CU_MEM_LOCATION_TYPE_DEVICE &&
	    (uint32_t)device < LEDGER_GPUS_MAX && needs->bytes[device] < BOOKS_MOST)
		needs->bytes[device] += books_blocks(MIN(params.bytesize, BOOKS_MOST));
}

static void graph_needs_add(struct graph_needs *needs, CUgraph graph, int depth)
{
	size_t count = 0;

	if (depth > DEPTH_MAX || real_cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS ||
	    !count)
		return;
	CUgraphNode *nodes = mmap(NULL, count * sizeof(CUgraphNode), PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (nodes == MAP_FAILED)
		return;
	size_t mapped = count * sizeof(CUgraphNode);
	if (real_cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS)
		for (size_t i = 0; i < count; i++)
			node_needs_add(needs, nodes[i], depth);
	munmap(nodes, mapped);
}

/* On one device. */
struct graph_part {
	CUdevice device;
	int gpu;
	uint64_t bytes;
	bool is_growing;
	struct growing growing;
};

struct graph_call {
	struct process *process;
	uint32_t count; /* 0: nothing is charged */
	struct graph_part parts[LEDGER_GPUS_MAX];
	uint64_t exec; /* 0: there is none yet */
	uint64_t stream;
};

static void part_add(struct graph_call *c, CUdevice device, uint64_t bytes)
{
	if (bytes)
		c->parts[c->count++] = (struct graph_part){.device = device, .bytes = bytes};
}

/* What it grew beyond the reservation, which is rare, the daemon posts: the call cannot be undone.
 */
static void parts_end(struct graph_call *c)
{
	for (uint32_t i = 0; i < c->count; i++) {
		if (c->parts[i].is_growing)
			(void)grow_end(&c->parts[i].growing);
		c->parts[i].is_growing = false;
	}
}

static CUresult parts_begin(struct graph_call *c)
{
	CUresult result = CUDA_SUCCESS;

	for (uint32_t i = 0; i < c->count && result == CUDA_SUCCESS; i++) {
		struct graph_part *part = &c->parts[i];

		result = grow_begin(&part->growing, c->process, OBJECT_GRAPH_POOL,
				    (uint64_t)part->device, part->gpu, part->bytes);
		part->is_growing = result == CUDA_SUCCESS;
	}
	if (result != CUDA_SUCCESS)
		parts_end(c);
	return result;
}

/* That it has its memory already is true of all devices or none. */
static CUresult alone_begin(struct graph_call *c)
{
	struct graph_part *part = &c->parts[0];

	if (!c->exec || grow_begin_alone(&part->growing, c->process, OBJECT_GRAPH_POOL,
					 (uint64_t)part->device, part->gpu) != CUDA_SUCCESS)
		return CUDA_ERROR_OUT_OF_MEMORY;
	part->is_growing = true;
	if (books_graph_has_memory(c->process, c->exec + (uint32_t)part->device, c->stream))
		return CUDA_SUCCESS;
	parts_end(c);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Where the slice has no room for all that the graph asks for, it is launched only if it has its
 * memory already; else what graphs hold unused is given back first. */
static CUresult tight_begin(struct graph_call *c)
{
	CUresult result = alone_begin(c);

	for (int i = 0; i < 2 && result != CUDA_SUCCESS; i++) {
		if (i && !grow_quiesce())
			break;
		for (uint32_t k = 0; k < c->count; k++)
			grow_trim(c->process, c->parts[k].gpu);
		result = parts_begin(c);
	}
	for (uint32_t k = 0; k < c->count; k++) {
		const struct graph_part *part = &c->parts[k];
		struct charge_tries tries = {0};

		while (result != CUDA_SUCCESS &&
		       charge_again(c->process, part->gpu, part->bytes, &tries))
			result = parts_begin(c);
	}
	if (result != CUDA_SUCCESS)
		books_count_refused(c->process, (uint32_t)c->parts[0].gpu);
	return result;
}

static CUresult graph_begin(struct graph_call *c, struct process *p)
{
	c->process = p;
	for (uint32_t i = 0; i < c->count; i++) {
		c->parts[i].gpu = charge_gpu_of(p, c->parts[i].device);
		if (c->parts[i].gpu < 0) {
			c->count = 0;
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	CUresult result = c->count ? parts_begin(c) : CUDA_SUCCESS;
	if (result != CUDA_SUCCESS)
		result = tight_begin(c);
	if (result != CUDA_SUCCESS)
		c->count = 0;
	return result;
}

static CUresult instantiate_begin(struct graph_call *c, CUgraph graph)
{
	struct process *p = process_peek();
	struct graph_needs needs = {0};

	c->count = 0;
	c->exec = 0;
	if (!p || !atomic_load_explicit(&graphs_have_memory, memory_order_relaxed))
		return CUDA_SUCCESS;
	graph_needs_add(&needs, graph, 0);
	for (uint32_t device = 0; device < LEDGER_GPUS_MAX; device++)
		part_add(c, (CUdevice)device, needs.bytes[device]);
	return graph_begin(c, p);
}

/* What it needs on each device is booked by the exec's handle and the device: handles are no two so
 * near to each other. */
static CUresult instantiate_end(struct graph_call *c, CUresult result, const CUgraphExec *exec)
{
	parts_end(c);
	for (uint32_t i = 0; i < c->count && result == CUDA_SUCCESS; i++) {
		struct object object = {.kind = OBJECT_GRAPH,
					.handle = (uintptr_t)*exec + (uint32_t)c->parts[i].device,
					.memory = c->parts[i].bytes};

		books_note(c->process, &object);
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

/* The driver's devices that memory nodes may be on. */
static uint32_t device_count(void)
{
	int count = 0;

	real_cuDeviceGetCount(&count);
	return (uint32_t)MAX(0, MIN(count, (int)LEDGER_GPUS_MAX));
}

static CUresult launch_begin(struct graph_call *c, CUgraphExec exec, uint64_t stream)
{
	struct process *p = process_peek();
	struct object object;

	c->count = 0;
	c->exec = (uintptr_t)exec;
	c->stream = stream;
	if (!p || !atomic_load_explicit(&graphs_have_memory, memory_order_relaxed))
		return CUDA_SUCCESS;
	for (uint32_t device = 0, count = device_count(); device < count; device++)
		if (books_look(p, OBJECT_GRAPH, c->exec + device, &object))
			part_add(c, (CUdevice)device, object.memory);
	return graph_begin(c, p);
}

static CUresult launch_end(struct graph_call *c, CUresult result)
{
	for (uint32_t i = 0; i < c->count && result == CUDA_SUCCESS; i++)
		books_graph_launched(c->process, c->exec + (uint32_t)c->parts[i].device, c->stream);
	parts_end(c);
	return result;
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

/* The driver may give its memory back with it, now or when its launches are over. */
static void graph_gone(struct process *p)
{
	grow_settle_all(p);
	grow_expect_less(p);
}

CUresult hook_cuGraphExecDestroy(CUgraphExec exec)
{
	struct process *p = process_peek();
	CUresult result = real_cuGraphExecDestroy(exec);

	if (result == CUDA_SUCCESS)
		gate_forget_work(exec);
	if (result == CUDA_SUCCESS && p) {
		for (uint32_t device = 0, count = device_count(); device < count; device++)
			books_forget(p, OBJECT_GRAPH, (uintptr_t)exec + device, 0);
		graph_gone(p);
	}
	return result;
}

CUresult hook_cuGraphDestroy(CUgraph graph)
{
	struct process *p = process_peek();
	CUresult result = real_cuGraphDestroy(graph);

	if (result == CUDA_SUCCESS && p && !graphs_are_plain())
		graph_gone(p);
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
