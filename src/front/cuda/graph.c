/* Memory nodes of graphs: the driver takes their memory when an executable graph is uploaded or
 * launched, not yet when it is made. It takes it into what it holds for graphs on the device, and
 * gives it back when asked to trim. So it does with local memory that kernels of a graph need
 * (local.h). Graphs without any of these go straight to the driver. */
#include <string.h>
#include <sys/mman.h>

#include "front/books.h"
#include "front/cuda/charge/grow.h"
#include "front/cuda/charge/local.h"
#include "front/cuda/device.h"
#include "front/cuda/gate/gate.h"
#include "front/cuda/hooks.h"

_Atomic bool graphs_have_memory;

/* Graphs in graphs in graphs. */
#define DEPTH_MAX 128

/* The memory that memory nodes ask for together, by the device that they are on, whichever is
 * current; and what its kernels' threads need, by the ledger's GPU. */
struct graph_needs {
	uint64_t bytes[LEDGER_GPUS_MAX];
	struct local_need local[LEDGER_GPUS_MAX];
};

static void graph_needs_add(struct graph_needs *needs, CUgraph graph, int depth);

/* Old drivers lack the second form. */
static void kernel_needs_add(struct graph_needs *needs, CUgraphNode node)
{
	CUDA_KERNEL_NODE_PARAMS params = {0};
	CUDA_KERNEL_NODE_PARAMS_v1 old;

	if (real_cuGraphKernelNodeGetParams_v2(node, &params) == CUDA_SUCCESS)
		local_need_add(needs->local, params.func, params.kern, params.ctx);
	else if (real_cuGraphKernelNodeGetParams(node, &old) == CUDA_SUCCESS)
		local_need_add(needs->local, old.func, NULL, NULL);
}

static void node_needs_add(struct graph_needs *needs, CUgraphNode node, int depth)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params;
	CUgraphNodeType type;
	CUgraph child;

	if (real_cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
		return;
	if (type == CU_GRAPH_NODE_TYPE_KERNEL)
		kernel_needs_add(needs, node);
	if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
	    real_cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS)
		graph_needs_add(needs, child, depth + 1);
	if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
	    real_cuGraphMemAllocNodeGetParams(node, &params) != CUDA_SUCCESS)
		return;
	CUdevice device = location_device(&params.poolProps.location);
	/* A driver that does not say where means here. */
	if (params.poolProps.location.type == CU_MEM_LOCATION_TYPE_INVALID &&
	    real_cuCtxGetDevice(&device) != CUDA_SUCCESS)
		return;
	if ((uint32_t)device < LEDGER_GPUS_MAX && needs->bytes[device] < BOOKS_MOST)
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
	bool takes;     /* the call takes the nodes' memory; else they are only noted */
	struct graph_part parts[LEDGER_GPUS_MAX];
	uint64_t exec; /* 0: there is none yet */
	uint64_t stream;
	struct local_need needs[LEDGER_GPUS_MAX];
	struct local_calls local;
};

static void part_add(struct graph_call *c, CUdevice device, uint64_t bytes)
{
	if (bytes)
		c->parts[c->count++] = (struct graph_part){.device = device, .bytes = bytes};
}

/* Its growth beyond the reservation, which is rare, is posted by the daemon: the call cannot be
 * undone.
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

/* It has its memory already on all devices or on none. */
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

/* If the slice has no room for all that the graph asks for, it is launched only if it has its
 * memory already. Else what graphs hold unused is given back first. */
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
		charge_short_end(c->process, part->gpu, &tries);
	}
	if (result != CUDA_SUCCESS)
		books_count_refused(c->process, (uint32_t)c->parts[0].gpu, c->parts[0].bytes);
	return result;
}

static CUresult nodes_begin(struct graph_call *c, struct process *p)
{
	c->process = p;
	for (uint32_t i = 0; i < c->count; i++) {
		c->parts[i].gpu = device_gpu(p, c->parts[i].device);
		if (c->parts[i].gpu < 0) {
			c->count = 0;
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	CUresult result = c->count && c->takes ? parts_begin(c) : CUDA_SUCCESS;
	if (result != CUDA_SUCCESS)
		result = tight_begin(c);
	if (result != CUDA_SUCCESS)
		c->count = 0;
	return result;
}

static CUresult graph_begin(struct graph_call *c, struct process *p)
{
	CUresult result = nodes_begin(c, p);

	if (result == CUDA_SUCCESS)
		result = local_begin_all(&c->local, c->needs);
	if (result != CUDA_SUCCESS)
		parts_end(c);
	return result;
}

/* No graph of the process has memory nodes, and no kernel needs local memory. */
static inline bool graphs_are_plain(void)
{
	return !atomic_load_explicit(&graphs_have_memory, memory_order_relaxed) &&
	       !gate_is_watched();
}

/* Also while no context has too little for any kernel: that may be so when it is launched. */
static bool graphs_are_looked_into(const struct process *p)
{
	return atomic_load_explicit(&graphs_have_memory, memory_order_relaxed) ||
	       local_is_needed(p);
}

/* uploads: with the flag by which it takes its memory at once. */
static CUresult instantiate_begin(struct graph_call *c, CUgraph graph, bool uploads)
{
	struct process *p = process_peek();
	struct graph_needs needs = {0};

	c->process = NULL;
	c->count = c->local.count = 0;
	c->takes = uploads;
	c->exec = 0;
	memset(c->needs, 0, sizeof(c->needs));
	if (!p || !graphs_are_looked_into(p))
		return CUDA_SUCCESS;
	graph_needs_add(&needs, graph, 0);
	for (uint32_t device = 0; device < LEDGER_GPUS_MAX; device++)
		part_add(c, (CUdevice)device, needs.bytes[device]);
	memcpy(c->needs, needs.local, sizeof(c->needs));
	return graph_begin(c, p);
}

/* The memory that its kernels need is booked by the exec's handle and the GPU, and grows where it
 * is changed.
 */
static void exec_needs_note(struct process *p, CUgraphExec exec, const struct local_need *needs)
{
	struct object object = {.kind = OBJECT_GRAPH_LOCAL}, before;

	for (uint32_t gpu = 0; gpu < LEDGER_GPUS_MAX; gpu++) {
		object.handle = (uintptr_t)exec + gpu;
		object.gpu = (uint16_t)gpu;
		object.context = needs[gpu].context;
		object.memory = needs[gpu].bytes;
		if (needs[gpu].bytes &&
		    (!books_look(p, OBJECT_GRAPH_LOCAL, object.handle, &before) ||
		     before.memory < needs[gpu].bytes))
			books_note(p, &object);
	}
}

/* The memory that it needs on each device is booked by the exec's handle and the device: handles
 * are no two so near to each other. */
static CUresult instantiate_end(struct graph_call *c, CUresult result, const CUgraphExec *exec)
{
	parts_end(c);
	local_end_all(&c->local, result, false);
	if (result == CUDA_SUCCESS && c->process)
		exec_needs_note(c->process, *exec, c->needs);
	for (uint32_t i = 0; i < c->count && result == CUDA_SUCCESS; i++) {
		struct object object = {.kind = OBJECT_GRAPH,
					.handle = (uintptr_t)*exec + (uint32_t)c->parts[i].device,
					.memory = c->parts[i].bytes};

		books_note(c->process, &object);
	}
	/* A driver that takes something all the same has it charged now. */
	for (uint32_t i = 0; i < c->count && !c->takes; i++)
		grow_settle_one(c->process, OBJECT_GRAPH_POOL, (uint64_t)c->parts[i].device);
	return result;
}

/* The outputs that a driver writes beside its result where it refuses: no node is to blame, and
 * there is no text about it. */
static void refusal_note(CUgraphNode *error_node, char *log, size_t log_size)
{
	if (error_node)
		*error_node = NULL;
	if (log && log_size)
		*log = '\0';
}

static void refusal_note_in(CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	if (!params)
		return;
	params->hErrNode_out = NULL;
	params->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
}

/* Every way to instantiate does this around the driver's call. note: says elsewhere, too, that it
 * was refused. Without a place for the result the driver has the better word, and takes nothing. */
#define INSTANTIATE(exec, graph, flags, note, call)                                       \
	struct graph_call c;                                                              \
	if (!(exec))                                                                      \
		return call;                                                              \
	CUresult result =                                                                 \
		instantiate_begin(&c, graph, (flags)&CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD); \
	if (result == CUDA_SUCCESS)                                                       \
		return instantiate_end(&c, call, exec);                                   \
	note;                                                                             \
	return result

CUresult hook_cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
				 char *log, size_t log_size)
{
	INSTANTIATE(exec, graph, 0, refusal_note(error_node, log, log_size),
		    real_cuGraphInstantiate(exec, graph, error_node, log, log_size));
}

CUresult hook_cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
				    char *log, size_t log_size)
{
	INSTANTIATE(exec, graph, 0, refusal_note(error_node, log, log_size),
		    real_cuGraphInstantiate_v2(exec, graph, error_node, log, log_size));
}

CUresult hook_cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
					  unsigned long long flags)
{
	INSTANTIATE(exec, graph, flags, (void)0,
		    real_cuGraphInstantiateWithFlags(exec, graph, flags));
}

CUresult hook_cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
					   CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	INSTANTIATE(exec, graph, params ? params->flags : 0, refusal_note_in(params),
		    real_cuGraphInstantiateWithParams(exec, graph, params));
}

CUresult hook_cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
						CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	INSTANTIATE(exec, graph, params ? params->flags : 0, refusal_note_in(params),
		    real_cuGraphInstantiateWithParams_ptsz(exec, graph, params));
}

/* The name of a stream: the two defaults have names of their own. */
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

	c->count = c->local.count = 0;
	c->takes = true;
	c->exec = (uintptr_t)exec;
	c->stream = stream;
	memset(c->needs, 0, sizeof(c->needs));
	if (!p)
		return CUDA_SUCCESS;
	for (uint32_t device = 0, count = device_count(); device < count; device++)
		if (books_look(p, OBJECT_GRAPH, c->exec + device, &object))
			part_add(c, (CUdevice)device, object.memory);
	/* In a stream that captures it takes nothing yet. */
	for (uint32_t gpu = 0; gpu < p->attachment.gpu_count && gate_is_watched(); gpu++)
		if (books_look(p, OBJECT_GRAPH_LOCAL, c->exec + gpu, &object) &&
		    !gate_is_capturing((CUstream)(uintptr_t)stream))
			c->needs[gpu] =
				(struct local_need){object.context, (int)gpu, object.memory};
	return graph_begin(c, p);
}

static CUresult launch_end(struct graph_call *c, CUresult result, bool surely)
{
	local_end_all(&c->local, result, surely);
	for (uint32_t i = 0; i < c->count && result == CUDA_SUCCESS; i++)
		books_graph_launched(c->process, c->exec + (uint32_t)c->parts[i].device, c->stream);
	parts_end(c);
	return result;
}

/* surely: a driver that does not take a kernel's local memory then, has it. */
#define LAUNCH(exec, stream, call, surely)                \
	struct graph_call c;                              \
	if (graphs_are_plain())                           \
		return call;                              \
	CUresult result = launch_begin(&c, exec, stream); \
	return result != CUDA_SUCCESS ? result : launch_end(&c, call, surely)

static CUresult launch(CUgraphExec exec, CUstream stream)
{
	LAUNCH(exec, stream_of(stream, false), real_cuGraphLaunch(exec, stream), true);
}

static CUresult launch_ptsz(CUgraphExec exec, CUstream stream)
{
	LAUNCH(exec, stream_of(stream, true), real_cuGraphLaunch_ptsz(exec, stream), true);
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
			   (struct gate_work){.what = (uintptr_t)exec, .anywhere = true});
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
			   (struct gate_work){.what = (uintptr_t)exec, .anywhere = true});
		return gate_end(&call, launch_ptsz(exec, stream));
	}
	CUresult result = launch_ptsz(exec, stream);
	gate_leave(local);
	return result;
}

CUresult hook_cuGraphUpload(CUgraphExec exec, CUstream stream)
{
	LAUNCH(exec, stream_of(stream, false), real_cuGraphUpload(exec, stream), false);
}

CUresult hook_cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
	LAUNCH(exec, stream_of(stream, true), real_cuGraphUpload_ptsz(exec, stream), false);
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
			books_forget(p, OBJECT_GRAPH, (uintptr_t)exec + device);
		for (uint32_t gpu = 0; local_is_needed(p) && gpu < p->attachment.gpu_count; gpu++)
			books_forget(p, OBJECT_GRAPH_LOCAL, (uintptr_t)exec + gpu);
		graph_gone(p);
	}
	return result;
}

CUresult hook_cuGraphDestroy(CUgraph graph)
{
	struct process *p = process_peek();
	CUresult result = real_cuGraphDestroy(graph);

	if (result == CUDA_SUCCESS && p &&
	    atomic_load_explicit(&graphs_have_memory, memory_order_relaxed))
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

static void graph_gets_node(const CUgraphNodeParams *params)
{
	if (params && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		graph_gets_memory();
}

CUresult hook_cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
			     size_t after_count, CUgraphNodeParams *params)
{
	graph_gets_node(params);
	return real_cuGraphAddNode(node, graph, after, after_count, params);
}

CUresult hook_cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
				const CUgraphEdgeData *edges, size_t after_count,
				CUgraphNodeParams *params)
{
	graph_gets_node(params);
	return real_cuGraphAddNode_v2(node, graph, after, edges, after_count, params);
}

CUresult hook_cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
				const CUgraphEdgeData *edges, size_t after_count,
				CUgraphNodeParams *params)
{
	graph_gets_node(params);
	return real_cuGraphAddNode_v3(node, graph, after, edges, after_count, params);
}

/* ---- executable graphs that are changed ---- */

/* True: what kernels need is looked into. */
static bool change_begin(struct graph_needs *needs, CUresult result)
{
	const struct process *p = process_peek();

	if (result != CUDA_SUCCESS || !p || !local_is_needed(p))
		return false;
	*needs = (struct graph_needs){0};
	return true;
}

static CUresult changed_to_graph(CUgraphExec exec, CUgraph graph, CUresult result)
{
	struct graph_needs needs;

	if (change_begin(&needs, result)) {
		graph_needs_add(&needs, graph, 0);
		exec_needs_note(process_peek(), exec, needs.local);
	}
	return result;
}

static CUresult changed_to_kernel(CUgraphExec exec, CUfunction function, CUkernel kernel,
				  CUcontext context, CUresult result)
{
	struct graph_needs needs;

	if (change_begin(&needs, result)) {
		local_need_add(needs.local, function, kernel, context);
		exec_needs_note(process_peek(), exec, needs.local);
	}
	return result;
}

CUresult hook_cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
				CUgraphExecUpdateResult *update)
{
	return changed_to_graph(exec, graph,
				real_cuGraphExecUpdate(exec, graph, error_node, update));
}

CUresult hook_cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
				   CUgraphExecUpdateResultInfo *info)
{
	return changed_to_graph(exec, graph, real_cuGraphExecUpdate_v2(exec, graph, info));
}

CUresult hook_cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
	return changed_to_graph(exec, child,
				real_cuGraphExecChildGraphNodeSetParams(exec, node, child));
}

CUresult hook_cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
					     const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
	CUresult result = real_cuGraphExecKernelNodeSetParams(exec, node, params);

	return params ? changed_to_kernel(exec, params->func, NULL, NULL, result) : result;
}

CUresult hook_cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
						const CUDA_KERNEL_NODE_PARAMS *params)
{
	CUresult result = real_cuGraphExecKernelNodeSetParams_v2(exec, node, params);

	return params ? changed_to_kernel(exec, params->func, params->kern, params->ctx, result)
		      : result;
}

CUresult hook_cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
				       CUgraphNodeParams *params)
{
	CUresult result = real_cuGraphExecNodeSetParams(exec, node, params);

	return params && params->type == CU_GRAPH_NODE_TYPE_KERNEL
		       ? changed_to_kernel(exec, params->kernel.func, params->kernel.kern,
					   params->kernel.ctx, result)
		       : result;
}
