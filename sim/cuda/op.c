#include "cuda/op.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/context.h"
#include "cuda/event.h"
#include "cuda/graph.h"
#include "cuda/pool.h"
#include "cuda/work.h"

static void shared_wait(struct lane *lane, const struct op_wait *wait)
{
	struct event_shared *shared = wait->event->shared;

	if (!shared)
		return;
	lane_expect_nothing(lane);
	event_shared_wait(shared, wait->target ? wait->target : event_shared_target(shared), lane);
}

/* The program's function may not call the driver. */
static void host_run(struct lane *lane, const struct op_host *host)
{
	api_forbid(true);
	if (host->function)
		host->function(host->data);
	else
		host->callback(host->stream, context_error(lane_context(lane)), host->data);
	api_forbid(false);
}

CUresult op_run(struct lane *lane, struct op *op)
{
	switch (op->kind) {
	case OP_KERNEL:
		return op_kernel_run(lane, &op->kernel);
	case OP_COPY:
		return op_copy_run(lane, &op->copy);
	case OP_SET:
		return op_set_run(lane, &op->set);
	case OP_HOST:
		host_run(lane, &op->host);
		return CUDA_SUCCESS;
	case OP_EVENT_RECORD:
		event_stamp(op->event, lane);
		return CUDA_SUCCESS;
	case OP_MEMOPS:
		return op_memops_run(lane, &op->memops);
	case OP_GRAPH:
		return graph_run(lane, op->run);
	case OP_EVENT_WAIT: /* a dependency of the work, met by now, but for other processes */
		shared_wait(lane, &op->wait);
		return CUDA_SUCCESS;
	case OP_EMPTY:
		return CUDA_SUCCESS;
	case OP_ALLOC:
		graph_memory_use_at(op->memory.address, true);
		return CUDA_SUCCESS;
	case OP_FREE:
		memory_free_in_order(op->memory.address, op->memory.ticket);
		return CUDA_SUCCESS;
	}
	return CUDA_SUCCESS;
}

void op_release(struct op *op)
{
	switch (op->kind) {
	case OP_KERNEL:
		free(op->kernel.params);
		break;
	case OP_COPY:
		free(op->copy.staging);
		break;
	case OP_MEMOPS:
		free(op->memops.list);
		break;
	case OP_GRAPH:
		graph_run_unref(op->run);
		break;
	case OP_EVENT_RECORD:
	case OP_EVENT_WAIT:
		event_unref(op->event);
		break;
	default:
		break;
	}
	op->kind = OP_EMPTY;
}

static void *duplicate(const void *from, size_t size)
{
	void *to = malloc(size ? size : 1);

	if (to && size)
		memcpy(to, from, size);
	return to;
}

bool op_clone(const struct op *from, struct op *to)
{
	*to = *from;
	switch (from->kind) {
	case OP_KERNEL:
		to->kernel.params = duplicate(from->kernel.params, from->kernel.param_bytes);
		return to->kernel.params != NULL;
	case OP_MEMOPS:
		to->memops.list = duplicate(from->memops.list,
					    from->memops.count * sizeof(*from->memops.list));
		return to->memops.list != NULL;
	case OP_GRAPH:
		graph_run_ref(to->run);
		return true;
	case OP_EVENT_RECORD:
	case OP_EVENT_WAIT:
		event_ref(to->event);
		return true;
	default:
		return true;
	}
}
