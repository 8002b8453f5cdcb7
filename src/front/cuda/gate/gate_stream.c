/* Events of streams and contexts that the gate's records have to know: captures begin and end,
 * streams come and go, another context becomes current. */
#include "front/cuda/gate/gate.h"
#include "front/cuda/hooks.h"

/* ---- captures ------------------------------------------------------------------------------ */

/* The streams that captures began in, which alone end them; others that joined one may go before.
 * More than these are counted. */
#define ORIGINS_MOST 64u
static _Atomic(CUstream) origins[ORIGINS_MOST];
static _Atomic uint32_t origins_more;

static void origin_note(CUstream stream)
{
	for (uint32_t i = 0; i < ORIGINS_MOST; i++) {
		CUstream none = NULL;

		if (atomic_compare_exchange_strong(&origins[i], &none, stream))
			return;
	}
	atomic_fetch_add(&origins_more, 1);
}

static bool origin_forget(CUstream stream)
{
	for (uint32_t i = 0; i < ORIGINS_MOST; i++) {
		CUstream it = stream;

		if (atomic_compare_exchange_strong(&origins[i], &it, NULL))
			return true;
	}
	for (uint32_t more = atomic_load(&origins_more); more;)
		if (atomic_compare_exchange_weak(&origins_more, &more, more - 1))
			return true;
	return false;
}

/* Counted before it begins and until it has ended for certain, so that nobody disturbs it; where
 * one ends unseen, launches are looked at a little longer, no more. */
#define BEGIN_CAPTURE(stream, call)   \
	gate_capture_begins();        \
	CUresult result_ = call;      \
	gate_capture_begun();         \
	if (result_ != CUDA_SUCCESS)  \
		gate_capture_ended(); \
	else                          \
		origin_note(stream);  \
	return result_

CUresult hook_cuStreamBeginCapture(CUstream stream)
{
	BEGIN_CAPTURE(gate_stream_of(stream), real_cuStreamBeginCapture(stream));
}

CUresult hook_cuStreamBeginCapture_ptsz(CUstream stream)
{
	BEGIN_CAPTURE(gate_stream_ptsz(stream), real_cuStreamBeginCapture_ptsz(stream));
}

CUresult hook_cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
	BEGIN_CAPTURE(gate_stream_of(stream), real_cuStreamBeginCapture_v2(stream, mode));
}

CUresult hook_cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
	BEGIN_CAPTURE(gate_stream_ptsz(stream), real_cuStreamBeginCapture_v2_ptsz(stream, mode));
}

CUresult hook_cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *after,
					  const CUgraphEdgeData *edges, size_t after_count,
					  CUstreamCaptureMode mode)
{
	BEGIN_CAPTURE(
		gate_stream_of(stream),
		real_cuStreamBeginCaptureToGraph(stream, graph, after, edges, after_count, mode));
}

CUresult hook_cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
					       const CUgraphNode *after,
					       const CUgraphEdgeData *edges, size_t after_count,
					       CUstreamCaptureMode mode)
{
	BEGIN_CAPTURE(gate_stream_ptsz(stream),
		      real_cuStreamBeginCaptureToGraph_ptsz(stream, graph, after, edges,
							    after_count, mode));
}

CUresult hook_cuStreamBeginRecaptureToGraph(CUstream stream, CUstreamCaptureMode mode,
					    CUgraph graph, CUgraphRecaptureCallback callback,
					    void *data)
{
	BEGIN_CAPTURE(gate_stream_of(stream),
		      real_cuStreamBeginRecaptureToGraph(stream, mode, graph, callback, data));
}

CUresult hook_cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, CUstreamCaptureMode mode,
						 CUgraph graph, CUgraphRecaptureCallback callback,
						 void *data)
{
	BEGIN_CAPTURE(gate_stream_ptsz(stream),
		      real_cuStreamBeginRecaptureToGraph_ptsz(stream, mode, graph, callback, data));
}

/* Into the command list of a graphics API, which launches it. */
CUresult hook_cuStreamBeginCaptureToCig(CUstream stream, CUstreamCigCaptureParams *params)
{
	BEGIN_CAPTURE(gate_stream_of(stream), real_cuStreamBeginCaptureToCig(stream, params));
}

CUresult hook_cuStreamBeginCaptureToCig_ptsz(CUstream stream, CUstreamCigCaptureParams *params)
{
	BEGIN_CAPTURE(gate_stream_ptsz(stream),
		      real_cuStreamBeginCaptureToCig_ptsz(stream, params));
}

static bool captures(CUstream stream)
{
	CUstreamCaptureStatus status;

	return real_cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* A capture that was spoiled ends with an error, and one of another thread's does not end. */
#define END_CAPTURE(stream, call)                                  \
	bool before_ = captures(stream);                           \
	CUresult result_ = call;                                   \
	if (before_ && !captures(stream) && origin_forget(stream)) \
		gate_capture_ended();                              \
	return result_

CUresult hook_cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	END_CAPTURE(gate_stream_of(stream), real_cuStreamEndCapture(stream, graph));
}

CUresult hook_cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
	END_CAPTURE(gate_stream_ptsz(stream), real_cuStreamEndCapture_ptsz(stream, graph));
}

CUresult hook_cuStreamEndCaptureToCig(CUstream stream)
{
	END_CAPTURE(gate_stream_of(stream), real_cuStreamEndCaptureToCig(stream));
}

CUresult hook_cuStreamEndCaptureToCig_ptsz(CUstream stream)
{
	END_CAPTURE(gate_stream_ptsz(stream), real_cuStreamEndCaptureToCig_ptsz(stream));
}

/* ---- streams ------------------------------------------------------------------------------- */

/* Before it is made, so that no marker gets in between. */
static void stream_made(unsigned int flags)
{
	if (!(flags & CU_STREAM_NON_BLOCKING))
		gate_blocking_stream_made();
}

CUresult hook_cuStreamCreate(CUstream *stream, unsigned int flags)
{
	stream_made(flags);
	return real_cuStreamCreate(stream, flags);
}

CUresult hook_cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
	stream_made(flags);
	return real_cuStreamCreateWithPriority(stream, flags, priority);
}

static void stream_ends(CUstream stream)
{
	if (captures(stream) && origin_forget(gate_stream_of(stream)))
		gate_capture_ended();
	if (stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD)
		gate_stream_destroy(stream);
}

CUresult hook_cuStreamDestroy(CUstream stream)
{
	stream_ends(stream);
	return real_cuStreamDestroy(stream);
}

CUresult hook_cuStreamDestroy_v2(CUstream stream)
{
	stream_ends(stream);
	return real_cuStreamDestroy_v2(stream);
}

/* ---- contexts ------------------------------------------------------------------------------ */

#define CHANGE_CONTEXT(call)     \
	CUresult result_ = call; \
	gate_context_changed();  \
	return result_

CUresult hook_cuCtxSetCurrent(CUcontext context)
{
	CHANGE_CONTEXT(real_cuCtxSetCurrent(context));
}

CUresult hook_cuCtxPushCurrent(CUcontext context)
{
	CHANGE_CONTEXT(real_cuCtxPushCurrent(context));
}

CUresult hook_cuCtxPushCurrent_v2(CUcontext context)
{
	CHANGE_CONTEXT(real_cuCtxPushCurrent_v2(context));
}

CUresult hook_cuCtxPopCurrent(CUcontext *context)
{
	CHANGE_CONTEXT(real_cuCtxPopCurrent(context));
}

CUresult hook_cuCtxPopCurrent_v2(CUcontext *context)
{
	CHANGE_CONTEXT(real_cuCtxPopCurrent_v2(context));
}
