/* Captures. One has a graph, an origin stream, and other streams that joined it by waiting for an
 * event recorded in it. Each of its streams has the nodes that its next node depends on; an event
 * recorded in it has a copy of those. All under driver.lock. */
#include "cuda/capture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/capture_private.h"
#include "cuda/context.h"
#include "cuda/event.h"
#include "cuda/graph.h"
#include "cuda/handle.h"
#include "cuda/pool.h"
#include "cuda/stream.h"

static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
static struct capture_session *sessions;
static unsigned long long next_id = 1;

bool nodes_set(struct node_set *set, const CUgraphNode *nodes, size_t count)
{
	CUgraphNode *copy = malloc((count + 1) * sizeof(CUgraphNode));

	if (!copy)
		return false;
	if (count)
		memcpy(copy, nodes, count * sizeof(CUgraphNode));
	free(set->nodes);
	set->nodes = copy;
	set->count = count;
	return true;
}

bool nodes_add(struct node_set *set, const CUgraphNode *nodes, size_t count)
{
	CUgraphNode *grown = realloc(set->nodes, (set->count + count + 1) * sizeof(CUgraphNode));

	if (!grown)
		return false;
	set->nodes = grown;
	for (size_t i = 0; i < count; i++) {
		bool known = false;

		for (size_t k = 0; k < set->count && !known; k++)
			known = set->nodes[k] == nodes[i];
		if (!known)
			set->nodes[set->count++] = nodes[i];
	}
	return true;
}

struct capture *capture_join(struct capture_session *session, CUstream stream)
{
	struct capture *part = calloc(1, sizeof(*part));

	if (!part)
		return NULL;
	part->session = session;
	part->stream = stream;
	part->next = session->parts;
	session->parts = part;
	stream->capture = part;
	return part;
}

struct capture_session *capture_begin(CUstream stream, CUgraph graph, bool own_graph,
				      CUstreamCaptureMode mode)
{
	struct capture_session *session = calloc(1, sizeof(*session));

	if (!session || !capture_join(session, stream)) {
		free(session);
		return NULL;
	}
	session->id = next_id++;
	session->graph = graph;
	session->own_graph = own_graph;
	session->origin = stream;
	session->mode = mode;
	session->thread = pthread_self();
	session->next = sessions;
	sessions = session;
	return session;
}

void capture_end(struct capture_session *session)
{
	struct capture *part, *next;

	for (struct capture_session **link = &sessions; *link; link = &(*link)->next) {
		if (*link == session) {
			*link = session->next;
			break;
		}
	}
	for (part = session->parts; part; part = next) {
		next = part->next;
		if (part->stream)
			part->stream->capture = NULL;
		free(part->last.nodes);
		free(part);
	}
	while (session->events)
		event_uncapture(session->events);
	free(session);
}

void event_uncapture(CUevent event)
{
	struct capture_session *session = event->captured_by;

	if (!session)
		return;
	for (CUevent *link = &session->events; *link; link = &(*link)->next_captured) {
		if (*link == event) {
			*link = event->next_captured;
			break;
		}
	}
	event->captured_by = NULL;
	free(event->captured.nodes);
	event->captured = (struct node_set){0};
}

void capture_forget_event(CUevent event)
{
	pthread_mutex_lock(&driver.lock);
	event_uncapture(event);
	pthread_mutex_unlock(&driver.lock);
}

/* Appends the op to the stream's part of its capture. driver.lock is held. */
static CUresult part_append(struct capture *part, struct op *op, CUgraphNode *ret)
{
	CUgraph graph = part->session->graph;
	CUgraphNode node =
		graph_node_add(graph, graph_type_of_op(op), op, part->last.nodes, part->last.count);

	if (!node || !nodes_set(&part->last, &node, 1))
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret = node;
	return CUDA_SUCCESS;
}

/* A capture whose blocking streams the NULL stream would have to wait for. driver.lock is held. */
static struct capture_session *implicit_capture(CUstream stream)
{
	if (stream->kind != STREAM_LEGACY)
		return NULL;
	for (struct capture_session *s = sessions; s; s = s->next)
		for (struct capture *p = s->parts; p; p = p->next)
			if (p->stream && p->stream->ctx == stream->ctx &&
			    !(p->stream->flags & CU_STREAM_NON_BLOCKING))
				return s;
	return NULL;
}

/* Whether work for the stream goes on as usual (false), or the capture has it: *ret_part where to,
 * NULL with *ret where it cannot. driver.lock is held. */
static bool capture_route(CUstream stream, struct capture **ret_part, CUresult *ret)
{
	struct capture_session *implicit = implicit_capture(stream);

	*ret_part = NULL;
	if (implicit) {
		implicit->invalid = true;
		*ret = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
		return true;
	}
	if (!stream->capture)
		return false;
	if (stream->capture->session->invalid)
		*ret = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else
		*ret_part = stream->capture;
	return true;
}

/* A node frees what a node has allocated, nothing else. */
static bool may_be_node(const struct op *op)
{
	struct range range;

	return op->kind != OP_FREE ||
	       (range_find(op->memory.address, &range) && range.kind == RANGE_GRAPH &&
		range.start == op->memory.address);
}

bool capture_is_on(CUstream stream)
{
	pthread_mutex_lock(&driver.lock);
	bool is_on = stream->capture != NULL;
	pthread_mutex_unlock(&driver.lock);
	return is_on;
}

bool capture_takes(CUstream stream, struct op *op, CUresult *ret)
{
	struct capture *part;
	CUgraphNode node;

	pthread_mutex_lock(&driver.lock);
	bool takes = capture_route(stream, &part, ret);
	if (part && !may_be_node(op)) {
		part = NULL;
		*ret = CUDA_ERROR_INVALID_VALUE;
	}
	if (part)
		*ret = part_append(part, op, &node);
	else if (takes)
		op_release(op);
	pthread_mutex_unlock(&driver.lock);
	return takes;
}

bool capture_takes_graph(CUstream stream, CUgraph child, CUresult *ret)
{
	struct op op = {.kind = OP_EMPTY};
	struct capture *part;
	CUgraphNode node;

	pthread_mutex_lock(&driver.lock);
	bool takes = capture_route(stream, &part, ret);
	if (part)
		*ret = part_append(part, &op, &node);
	if (part && *ret == CUDA_SUCCESS) {
		node->type = CU_GRAPH_NODE_TYPE_GRAPH;
		node->child = child;
		child->is_child = true;
	} else if (takes) {
		graph_free(child);
	}
	pthread_mutex_unlock(&driver.lock);
	return takes;
}

bool capture_takes_record(CUstream stream, struct op *op, unsigned int flags, CUresult *ret)
{
	struct capture *part;
	CUgraphNode node;
	CUevent event = op->event;

	pthread_mutex_lock(&driver.lock);
	bool takes = capture_route(stream, &part, ret);
	if (part && flags & CU_EVENT_RECORD_EXTERNAL) {
		*ret = part_append(part, op, &node);
		op->kind = OP_EMPTY;
	} else if (part) {
		event_uncapture(event);
		*ret = nodes_set(&event->captured, part->last.nodes, part->last.count)
			       ? CUDA_SUCCESS
			       : CUDA_ERROR_OUT_OF_MEMORY;
		event->captured_by = part->session;
		event->next_captured = part->session->events;
		part->session->events = event;
	}
	pthread_mutex_unlock(&driver.lock);
	if (takes)
		op_release(op);
	return takes;
}

bool capture_takes_wait(CUstream stream, struct op *op, unsigned int flags, CUresult *ret)
{
	struct capture *part;
	CUgraphNode node;
	CUevent event = op->event;

	pthread_mutex_lock(&driver.lock);
	bool takes = capture_route(stream, &part, ret);
	if (!takes && event->captured_by) {
		/* Waiting for it draws the stream in. */
		takes = true;
		part = capture_join(event->captured_by, stream);
		*ret = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (part && flags & CU_EVENT_WAIT_EXTERNAL) {
		*ret = part_append(part, op, &node);
		op->kind = OP_EMPTY;
	} else if (part && event->captured_by == part->session) {
		*ret = nodes_add(&part->last, event->captured.nodes, event->captured.count)
			       ? CUDA_SUCCESS
			       : CUDA_ERROR_OUT_OF_MEMORY;
	} else if (part) {
		part->session->invalid = true;
		*ret = event->captured_by ? CUDA_ERROR_STREAM_CAPTURE_MERGE
					  : CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	}
	pthread_mutex_unlock(&driver.lock);
	if (takes)
		op_release(op);
	return takes;
}

bool capture_takes_alloc(CUstream stream, CUmemoryPool pool, size_t bytes, CUdeviceptr *address,
			 CUresult *ret)
{
	struct capture *part;
	CUgraphNode node;

	pthread_mutex_lock(&driver.lock);
	bool takes = capture_route(stream, &part, ret);
	if (part) {
		struct graph_memory *memory = graph_memory_create(pool_device(pool), bytes);
		struct op op = {.kind = OP_ALLOC};

		*ret = CUDA_ERROR_OUT_OF_MEMORY;
		if (memory) {
			op.memory.address = graph_memory_address(memory);
			op.memory.size = bytes;
			*ret = part_append(part, &op, &node);
		}
		if (*ret == CUDA_SUCCESS) {
			node->memory = memory;
			*address = op.memory.address;
		} else {
			graph_memory_unref(memory);
		}
	}
	pthread_mutex_unlock(&driver.lock);
	return takes;
}

CUresult capture_check_sync(CUstream stream)
{
	struct capture *part;
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&driver.lock);
	capture_route(stream, &part, &result);
	if (part) {
		part->session->invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	pthread_mutex_unlock(&driver.lock);
	return result;
}

/* A capture that forbids the thread such calls. */
static struct capture_session *forbidding(void)
{
	for (struct capture_session *s = sessions; s; s = s->next) {
		bool own = pthread_equal(s->thread, pthread_self());

		if (s->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
			continue;
		if (own || (s->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
			    thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL))
			return s;
	}
	return NULL;
}

CUresult capture_check_unsafe(void)
{
	CUresult result = CUDA_SUCCESS;

	if (!__atomic_load_n(&sessions, __ATOMIC_RELAXED) ||
	    thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&driver.lock);
	struct capture_session *session = forbidding();
	if (session) {
		session->invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	pthread_mutex_unlock(&driver.lock);
	return result;
}

/* A wait for a whole device spoils what is captured on it, in any mode of either thread. Others
 * measured that (ROCm/rocm-systems #4508 and #8338, on two GPUs; NVIDIA/TensorRT #2888). */
CUresult capture_check_wait_all(const struct device *device)
{
	CUresult result = CUDA_SUCCESS;

	if (!__atomic_load_n(&sessions, __ATOMIC_RELAXED))
		return CUDA_SUCCESS;
	pthread_mutex_lock(&driver.lock);
	for (struct capture_session *s = sessions; s; s = s->next) {
		if (s->origin->ctx->device != device)
			continue;
		s->invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	pthread_mutex_unlock(&driver.lock);
	return result;
}

void capture_abandon(CUstream stream)
{
	pthread_mutex_lock(&driver.lock);
	struct capture *part = stream->capture;
	if (part) {
		struct capture_session *session = part->session;

		part->stream = NULL;
		stream->capture = NULL;
		if (stream == session->origin) {
			if (session->own_graph)
				graph_free(session->graph);
			capture_end(session);
		}
	}
	pthread_mutex_unlock(&driver.lock);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	API_BEGIN();
	if (!mode || (unsigned int)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	CUstreamCaptureMode before = thread_mode;
	thread_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}
