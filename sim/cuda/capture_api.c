/* Beginning and ending captures, and what can be asked about them. */
#include <stdlib.h>

#include "cuda/capture_private.h"
#include "cuda/context.h"
#include "cuda/graph.h"
#include "cuda/handle.h"
#include "cuda/stream.h"

static CUresult begin(CUstream handle, CUgraph graph, const CUgraphNode *dependencies, size_t count,
		      CUstreamCaptureMode mode)
{
	CUstream stream;
	bool own = !graph;

	API_BEGIN_CONTEXT(ctx);
	CUresult result = stream_resolve(ctx, handle, &stream);
	if (result != CUDA_SUCCESS)
		return result;
	if ((unsigned int)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	if (stream->kind == STREAM_LEGACY)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (own)
		graph = graph_new();
	if (!graph)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&driver.lock);
	struct capture_session *session =
		stream->capture ? NULL : capture_begin(stream, graph, own, mode);
	if (!session)
		result = stream->capture ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_OUT_OF_MEMORY;
	else if (count && !nodes_set(&session->parts->last, dependencies, count))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&driver.lock);
	if (!session && own)
		graph_free(graph);
	return result;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
	return begin(stream, NULL, NULL, 0, mode);
}

CUresult cuStreamBeginCapture(CUstream stream)
{
	return begin(stream, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
				     const CUgraphNode *dependencies, const CUgraphEdgeData *edges,
				     size_t count, CUstreamCaptureMode mode)
{
	if (!handle_is(graph, HANDLE_GRAPH) || (count && !dependencies))
		return CUDA_ERROR_INVALID_VALUE;
	return begin(stream, graph, dependencies, count, mode);
}

/* Marks a node and all before it. */
static void mark_back(CUgraphNode node)
{
	if (node->mark)
		return;
	node->mark = 1;
	for (size_t i = 0; i < node->dependency_count; i++)
		mark_back(node->dependencies[i]);
}

/* Whether what other streams did in the capture leads back into its origin. */
static bool is_joined(const struct capture_session *session)
{
	CUgraph graph = session->graph;

	for (size_t i = 0; i < graph->node_count; i++)
		graph->nodes[i]->mark = 0;
	for (size_t i = 0; i < session->origin->capture->last.count; i++)
		mark_back(session->origin->capture->last.nodes[i]);
	for (struct capture *part = session->parts; part; part = part->next)
		for (size_t i = 0; i < part->last.count; i++)
			if (!part->last.nodes[i]->mark)
				return false;
	return true;
}

static CUresult end_check(CUstream stream)
{
	const struct capture *part = stream->capture;

	if (!part)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (part->session->origin != stream)
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	if (part->session->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
	    !pthread_equal(part->session->thread, pthread_self()))
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
	CUstream stream;

	API_BEGIN_CONTEXT(ctx);
	CUresult result = stream_resolve(ctx, handle, &stream);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&driver.lock);
	result = end_check(stream);
	if (result != CUDA_SUCCESS) {
		pthread_mutex_unlock(&driver.lock);
		return result;
	}
	struct capture_session *session = stream->capture->session;
	CUgraph made = session->graph;
	bool own = session->own_graph;
	if (session->invalid)
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (!is_joined(session))
		result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	capture_end(session);
	pthread_mutex_unlock(&driver.lock);
	if (result != CUDA_SUCCESS && own) {
		graph_free(made);
		made = NULL;
	}
	if (graph)
		*graph = result == CUDA_SUCCESS ? made : NULL;
	return result;
}

static CUstreamCaptureStatus status_of(const struct CUstream_st *stream)
{
	if (!stream->capture)
		return CU_STREAM_CAPTURE_STATUS_NONE;
	return stream->capture->session->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
						 : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id,
				   CUgraph *graph, const CUgraphNode **dependencies, size_t *count)
{
	CUstream stream;

	API_BEGIN_CONTEXT(ctx);
	CUresult result = stream_resolve(ctx, handle, &stream);
	if (result != CUDA_SUCCESS)
		return result;
	if (!status)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver.lock);
	*status = status_of(stream);
	if (*status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
		const struct capture *part = stream->capture;

		if (id)
			*id = part->session->id;
		if (graph)
			*graph = part->session->graph;
		if (dependencies)
			*dependencies = part->last.nodes;
		if (count)
			*count = part->last.count;
	}
	pthread_mutex_unlock(&driver.lock);
	return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
	return cuStreamGetCaptureInfo_v2(stream, status, id, NULL, NULL, NULL);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
				   CUgraph *graph, const CUgraphNode **dependencies,
				   const CUgraphEdgeData **edges, size_t *count)
{
	if (edges)
		*edges = NULL; /* all of the default kind */
	return cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count);
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
	return cuStreamGetCaptureInfo_v2(stream, status, NULL, NULL, NULL, NULL);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream handle, CUgraphNode *dependencies, size_t count,
					   unsigned int flags)
{
	CUstream stream;

	API_BEGIN_CONTEXT(ctx);
	CUresult result = stream_resolve(ctx, handle, &stream);
	if (result != CUDA_SUCCESS)
		return result;
	if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (count && !dependencies))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver.lock);
	struct capture *part = stream->capture;
	if (!part)
		result = CUDA_ERROR_ILLEGAL_STATE;
	for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
		if (!graph_has_node(part->session->graph, dependencies[i]))
			result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS && !(flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES
						? nodes_set(&part->last, dependencies, count)
						: nodes_add(&part->last, dependencies, count)))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&driver.lock);
	return result;
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *dependencies,
					      const CUgraphEdgeData *edges, size_t count,
					      unsigned int flags)
{
	return cuStreamUpdateCaptureDependencies(stream, dependencies, count, flags);
}
