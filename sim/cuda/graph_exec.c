/* Executable graphs: made flat and in order, changed, launched. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/capture.h"
#include "cuda/context.h"
#include "cuda/event.h"
#include "cuda/function.h"
#include "cuda/graph.h"
#include "cuda/graph_params.h"
#include "cuda/handle.h"
#include "cuda/stream.h"
#include "cuda/user_object.h"

/* A node as it will run. Children's nodes stand in the place of their parent's. */
struct step {
	CUgraphNode node; /* to find it by; may be gone */
	CUgraphNodeType type;
	bool disabled;
	struct op op;
	struct graph_memory *memory; /* an alloc node's; owned by the graph */
	bool freed_here;             /* by a node of the same graph */
	size_t dependency_count;     /* the node's, to compare shapes */
};

struct CUgraphExec_st {
	CUgraph graph; /* the graph that it was made from; may be gone */
	unsigned int id;
	cuuint64_t flags;
	size_t count;
	struct step *steps;
	struct fence *last; /* the last launch's: an exec does not overlap itself */
	struct graph_user_object
		*objects; /* objects kept alive by the graphs that it is made from */
	size_t object_count;
};

struct graph_run {
	_Atomic unsigned int refs;
	size_t count, memory_count;
	struct graph_memory **memories; /* the graph may go before */
	struct op ops[];
};

void graph_run_ref(struct graph_run *run)
{
	atomic_fetch_add(&run->refs, 1);
}

void graph_run_unref(struct graph_run *run)
{
	if (!run || atomic_fetch_sub(&run->refs, 1) != 1)
		return;
	for (size_t i = 0; i < run->count; i++)
		op_release(&run->ops[i]);
	for (size_t i = 0; i < run->memory_count; i++)
		graph_memory_unref(run->memories[i]);
	free(run->memories);
	free(run);
}

/* In a graph, which recording of the event is meant shows when the node runs. One of this very lane
 * is before it anyway, or is this graph's own, or a later launch's. */
static void event_wait(CUevent event, struct lane *lane)
{
	struct fence *fence = event_fence(event);

	if (fence && !fence_is_of(fence, lane) && !fence_done(fence)) {
		lane_expect_nothing(lane);
		fence_wait(fence);
	}
	fence_unref(fence);
}

static CUresult run_node(struct lane *lane, struct op *op)
{
	uint64_t sure_until;

	/* Effects that others see come when the GPU has got there. */
	if (op->kind == OP_HOST || op->kind == OP_MEMOPS) {
		lane_expect_nothing(lane);
		lane_wait_done(lane, &sure_until);
	}
	if (op->kind == OP_EVENT_WAIT)
		event_wait(op->event, lane);
	return op_run(lane, op);
}

CUresult graph_run(struct lane *lane, struct graph_run *run)
{
	CUresult result = CUDA_SUCCESS;

	for (size_t i = 0; i < run->count && result == CUDA_SUCCESS; i++) {
		bool last = i + 1 == run->count;

		if (!last)
			lane_sequence_begin(lane);
		result = run_node(lane, &run->ops[i]);
		if (!last)
			lane_sequence_end(lane);
	}
	return result;
}

static void exec_free(CUgraphExec exec)
{
	if (!exec)
		return;
	handle_remove(exec);
	for (size_t i = 0; i < exec->count; i++) {
		op_release(&exec->steps[i].op);
		graph_memory_unref(exec->steps[i].memory);
	}
	user_objects_release(exec->objects, exec->object_count);
	fence_unref(exec->last);
	free(exec->steps);
	free(exec);
}

static size_t steps_of(CUgraph graph)
{
	size_t count = graph->node_count;

	for (size_t i = 0; i < graph->node_count; i++)
		if (graph->nodes[i]->child)
			count += steps_of(graph->nodes[i]->child);
	return count;
}

/* Appends the graph's nodes in order. */
static CUresult steps_append(CUgraphExec exec, CUgraph graph)
{
	CUgraphNode *order = graph_order(graph);
	CUresult result = order ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	if (!user_objects_share(graph->objects, graph->object_count, &exec->objects,
				&exec->object_count))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; i < graph->node_count && result == CUDA_SUCCESS; i++) {
		CUgraphNode node = order[i];
		struct step *step = &exec->steps[exec->count];

		*step = (struct step){.node = node,
				      .type = node->type,
				      .memory = graph_memory_ref(node->memory),
				      .dependency_count = node->dependency_count};
		exec->count++;
		if (!op_clone(&node->op, &step->op)) {
			step->op.kind = OP_EMPTY;
			result = CUDA_ERROR_OUT_OF_MEMORY;
		}
		if (result == CUDA_SUCCESS && node->child)
			result = steps_append(exec, node->child);
	}
	free(order);
	return result;
}

/* Memory that the graph itself frees comes and goes as it runs. */
static void steps_pair(CUgraphExec exec)
{
	for (size_t i = 0; i < exec->count; i++) {
		if (exec->steps[i].type != CU_GRAPH_NODE_TYPE_MEM_FREE)
			continue;
		for (size_t k = 0; k < exec->count; k++)
			if (exec->steps[k].memory &&
			    exec->steps[k].op.memory.address == exec->steps[i].op.memory.address)
				exec->steps[k].freed_here = true;
	}
}

static CUresult exec_make(CUgraph graph, cuuint64_t flags, CUgraphExec *ret)
{
	CUgraphExec exec = calloc(1, sizeof(*exec));
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	pthread_mutex_lock(&driver.lock);
	if (exec)
		exec->id = graph_next_id();
	if (exec)
		exec->steps = calloc(steps_of(graph) + 1, sizeof(exec->steps[0]));
	if (exec && exec->steps)
		result = steps_append(exec, graph);
	pthread_mutex_unlock(&driver.lock);
	if (result == CUDA_SUCCESS && !handle_add(exec, HANDLE_GRAPH_EXEC))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result != CUDA_SUCCESS) {
		exec_free(exec);
		return result;
	}
	steps_pair(exec);
	exec->graph = graph;
	exec->flags = flags;
	*ret = exec;
	return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	const unsigned long long known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
					 CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
					 CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

	API_BEGIN_CONTEXT(ctx);
	if (!exec || !handle_is(graph, HANDLE_GRAPH))
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & ~known)
		return flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH ? CUDA_ERROR_NOT_SUPPORTED
									 : CUDA_ERROR_INVALID_VALUE;
	return exec_make(graph, flags, exec);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
			       size_t log_size)
{
	CUresult result = cuGraphInstantiateWithFlags(exec, graph, 0);

	if (error_node)
		*error_node = NULL;
	if (log && log_size)
		*log = '\0';
	return result;
}

/* The local memory of what runs in it, also of a launch that was captured. */
static CUresult op_book_local(const struct op *op)
{
	CUresult result = CUDA_SUCCESS;

	if (op->kind == OP_KERNEL)
		return kernel_book_local(&op->kernel);
	if (op->kind != OP_GRAPH)
		return CUDA_SUCCESS;
	for (size_t i = 0; i < op->run->count && result == CUDA_SUCCESS; i++)
		result = op_book_local(&op->run->ops[i]);
	return result;
}

/* Puts memory behind what the graph allocates, and what its kernels need. */
static CUresult exec_upload(CUgraphExec exec)
{
	CUresult result = CUDA_SUCCESS;

	for (size_t i = 0; i < exec->count && result == CUDA_SUCCESS; i++) {
		struct step *step = &exec->steps[i];

		if (step->memory)
			result = graph_memory_back(step->memory);
		if (result == CUDA_SUCCESS && !step->disabled)
			result = op_book_local(&step->op);
	}
	return result;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
				      CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = cuGraphInstantiateWithFlags(exec, graph, params->flags);
	if (result == CUDA_SUCCESS && params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
		result = exec_upload(*exec);
	params->hErrNode_out = NULL;
	params->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS
						    : CUDA_GRAPH_INSTANTIATE_ERROR;
	return result;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	API_BEGIN();
	if (!handle_is(exec, HANDLE_GRAPH_EXEC))
		return CUDA_ERROR_INVALID_VALUE;
	exec_free(exec);
	return CUDA_SUCCESS;
}

CUresult cuGraphExecGetId(CUgraphExec exec, unsigned int *id)
{
	API_BEGIN();
	if (!handle_is(exec, HANDLE_GRAPH_EXEC) || !id)
		return CUDA_ERROR_INVALID_VALUE;
	*id = exec->id;
	return CUDA_SUCCESS;
}

CUresult cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags)
{
	API_BEGIN();
	if (!handle_is(exec, HANDLE_GRAPH_EXEC) || !flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = exec->flags;
	return CUDA_SUCCESS;
}

static struct step *step_find(CUgraphExec exec, CUgraphNode node)
{
	for (size_t i = 0; i < exec->count; i++)
		if (exec->steps[i].node == node)
			return &exec->steps[i];
	return NULL;
}

CUresult graph_exec_set_op(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type, struct op *op)
{
	struct step *step = handle_is(exec, HANDLE_GRAPH_EXEC) ? step_find(exec, node) : NULL;

	if (!step || step->type != type) {
		op_release(op);
		return CUDA_ERROR_INVALID_VALUE;
	}
	op_release(&step->op);
	step->op = *op;
	return CUDA_SUCCESS;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int enabled)
{
	API_BEGIN();
	struct step *step = handle_is(exec, HANDLE_GRAPH_EXEC) ? step_find(exec, node) : NULL;
	if (!step || step->type > CU_GRAPH_NODE_TYPE_MEMSET)
		return CUDA_ERROR_INVALID_VALUE;
	step->disabled = !enabled;
	return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int *enabled)
{
	API_BEGIN();
	struct step *step = handle_is(exec, HANDLE_GRAPH_EXEC) ? step_find(exec, node) : NULL;
	if (!step || !enabled)
		return CUDA_ERROR_INVALID_VALUE;
	*enabled = !step->disabled;
	return CUDA_SUCCESS;
}

/* Compares the shapes of an executable graph and one freshly made: CU_GRAPH_EXEC_UPDATE_SUCCESS, or
 * what differs and at which of the fresh one's nodes. */
static CUgraphExecUpdateResult shapes_compare(CUgraphExec exec, CUgraphExec fresh,
					      CUgraphNode *ret_node)
{
	*ret_node = NULL;
	if (exec->count != fresh->count)
		return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	for (size_t i = 0; i < exec->count; i++) {
		*ret_node = fresh->steps[i].node;
		if (exec->steps[i].type != fresh->steps[i].type)
			return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
		if (exec->steps[i].dependency_count != fresh->steps[i].dependency_count)
			return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
		/* A graph's memory stays where it is. */
		if (exec->steps[i].memory != fresh->steps[i].memory)
			return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
	}
	*ret_node = NULL;
	return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	CUgraphExec fresh;

	API_BEGIN();
	if (!handle_is(exec, HANDLE_GRAPH_EXEC) || !handle_is(graph, HANDLE_GRAPH) || !info)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = exec_make(graph, exec->flags, &fresh);
	if (result != CUDA_SUCCESS)
		return result;
	*info = (CUgraphExecUpdateResultInfo){0};
	info->result = shapes_compare(exec, fresh, &info->errorNode);
	if (info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS) {
		for (size_t i = 0; i < exec->count; i++) {
			struct step *step = &exec->steps[i];
			struct op op = step->op;

			/* Nodes keep the names by which they were first known. */
			step->op = fresh->steps[i].op;
			fresh->steps[i].op = op;
		}
	}
	exec_free(fresh);
	return info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS
							    : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
			   CUgraphExecUpdateResult *update)
{
	CUgraphExecUpdateResultInfo info = {0};

	API_BEGIN();
	if (!update)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = cuGraphExecUpdate_v2(exec, graph, &info);
	if (result == CUDA_SUCCESS || result == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) {
		*update = info.result;
		if (error_node)
			*error_node = info.errorNode;
	}
	return result;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
	CUgraphExec fresh;
	CUgraphNode differs;

	API_BEGIN();
	struct step *step = handle_is(exec, HANDLE_GRAPH_EXEC) ? step_find(exec, node) : NULL;
	if (!step || step->type != CU_GRAPH_NODE_TYPE_GRAPH || !handle_is(child, HANDLE_GRAPH))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = exec_make(child, 0, &fresh);
	if (result != CUDA_SUCCESS)
		return result;
	/* The child's steps follow its node's. */
	size_t first = (size_t)(step - exec->steps) + 1;
	struct CUgraphExec_st part = {.steps = exec->steps + first, .count = fresh->count};
	if (first + fresh->count > exec->count ||
	    shapes_compare(&part, fresh, &differs) != CU_GRAPH_EXEC_UPDATE_SUCCESS)
		result = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < fresh->count && result == CUDA_SUCCESS; i++) {
		struct op op = part.steps[i].op;

		part.steps[i].op = fresh->steps[i].op;
		fresh->steps[i].op = op;
	}
	exec_free(fresh);
	return result;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream handle)
{
	CUstream stream;

	API_BEGIN_CONTEXT(ctx);
	if (!handle_is(exec, HANDLE_GRAPH_EXEC))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = stream_resolve(ctx, handle, &stream);
	return result == CUDA_SUCCESS ? exec_upload(exec) : result;
}

/* Memory that the program is to free is allocated as of the call; the launch fails where it still
 * is from the last time. */
static CUresult memory_begin(CUgraphExec exec)
{
	bool again = exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;

	for (size_t i = 0; i < exec->count; i++) {
		struct step *step = &exec->steps[i];

		if (step->memory && !step->freed_here && !again &&
		    graph_memory_is_used(step->memory))
			return CUDA_ERROR_INVALID_VALUE;
	}
	for (size_t i = 0; i < exec->count; i++)
		if (exec->steps[i].memory && !exec->steps[i].freed_here)
			graph_memory_use(exec->steps[i].memory);
	return CUDA_SUCCESS;
}

static struct graph_run *run_make(CUgraphExec exec)
{
	struct graph_run *run = calloc(1, sizeof(*run) + exec->count * sizeof(run->ops[0]));

	if (!run)
		return NULL;
	run->refs = 1;
	run->memories = calloc(exec->count + 1, sizeof(struct graph_memory *));
	if (!run->memories) {
		graph_run_unref(run);
		return NULL;
	}
	for (size_t i = 0; i < exec->count; i++) {
		if (exec->steps[i].memory)
			run->memories[run->memory_count++] =
				graph_memory_ref(exec->steps[i].memory);
		if (exec->steps[i].disabled)
			continue;
		if (!op_clone(&exec->steps[i].op, &run->ops[run->count])) {
			graph_run_unref(run);
			return NULL;
		}
		run->count++;
	}
	return run;
}

/* Events that the graph records stand for its launch from now on. */
static void events_set(const struct graph_run *run, struct fence *fence)
{
	for (size_t i = 0; i < run->count; i++)
		if (run->ops[i].kind == OP_EVENT_RECORD)
			event_set(run->ops[i].event, fence);
}

/* The nodes that run, one after the other. NULL: no memory, or it has memory of its own, which
 * stays where it is. */
static CUgraph graph_of_exec(CUgraphExec exec)
{
	CUgraph graph = graph_new();
	CUgraphNode last = NULL;

	for (size_t i = 0; graph && i < exec->count; i++) {
		const struct step *step = &exec->steps[i];
		CUgraphNodeType type = step->type;
		struct op op;

		if (step->op.kind == OP_EMPTY)
			type = CU_GRAPH_NODE_TYPE_EMPTY;
		if (step->memory || !op_clone(&step->op, &op)) {
			graph_free(graph);
			return NULL;
		}
		if (step->disabled) {
			op_release(&op);
			continue;
		}
		last = graph_node_add(graph, type, &op, &last, last != NULL);
		if (!last) {
			graph_free(graph);
			return NULL;
		}
	}
	return graph;
}

/* True: *ret says how. */
static bool launch_is_captured(CUgraphExec exec, CUstream stream, CUresult *ret)
{
	CUgraph graph = capture_is_on(stream) ? graph_of_exec(exec) : NULL;

	if (!graph)
		return false;
	bool takes = capture_takes_graph(stream, graph, ret);
	if (!takes)
		graph_free(graph);
	return takes;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle)
{
	CUstream stream;
	struct fence *fence;

	API_BEGIN_CONTEXT(ctx);
	if (!handle_is(exec, HANDLE_GRAPH_EXEC))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = stream_resolve(ctx, handle, &stream);
	if (result == CUDA_SUCCESS && launch_is_captured(exec, stream, &result))
		return result;
	if (result == CUDA_SUCCESS)
		result = exec_upload(exec);
	if (result == CUDA_SUCCESS)
		result = memory_begin(exec);
	if (result != CUDA_SUCCESS)
		return result;
	struct graph_run *run = run_make(exec);
	if (!run)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct op op = {.kind = OP_GRAPH, .run = run};
	if (capture_takes(stream, &op, &result))
		return result; // NOLINT(clang-analyzer-unix.Malloc): the graph has it
	graph_run_ref(run);
	result = stream_enqueue(stream, &op, exec->last, &fence);
	if (result == CUDA_SUCCESS) {
		events_set(run, fence);
		fence_unref(exec->last);
		exec->last = fence;
	}
	graph_run_unref(run);
	return result;
}
