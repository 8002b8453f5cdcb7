/* Streams: a lane each, and the rules by which the NULL stream orders itself among them. */
#pragma once

#include "base/cuda_abi.h"
#include "cuda/op.h"
#include "cuda/work.h"

struct capture;

enum stream_kind {
	STREAM_CREATED,
	STREAM_LEGACY,     /* the NULL stream */
	STREAM_PER_THREAD, /* a thread's own default stream */
};

struct CUstream_st {
	CUstream next; /* the next one of its context; under driver.lock */
	CUcontext ctx;
	struct lane *lane;
	enum stream_kind kind;
	unsigned int flags;
	bool destroyed; /* no handle any more; waits for its work */
	int priority;
	unsigned long long id;
	CUaccessPolicyWindow window;
	CUsynchronizationPolicy sync_policy;
	pthread_t thread;        /* the thread of STREAM_PER_THREAD */
	struct capture *capture; /* not NULL: capturing; under driver.lock */
};

/* Stream calls with the suffixes _ptsz and _ptds run between these two: NULL then means the calling
 * thread's own stream. */
void stream_per_thread_begin(void);
void stream_per_thread_end(void);

/* The stream that a handle means for a context; CUDA_ERROR_INVALID_HANDLE. */
CUresult stream_resolve(CUcontext ctx, CUstream handle, CUstream *ret);
/* Gives the stream an op, or its capture a node. Takes over what the op owns, always. */
CUresult stream_submit(CUstream stream, struct op *op);
/* The same, and waits until it is complete. CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED while capturing.
 */
CUresult stream_submit_wait(CUstream stream, struct op *op);
/* Like stream_submit, never to the capture; the fence is NULL on failure. */
CUresult stream_enqueue(CUstream stream, struct op *op, struct fence *after,
			struct fence **ret_fence);
/* Appends it to the context's NULL stream, after all work of all its streams. */
CUresult context_enqueue(CUcontext ctx, struct op *op, struct fence **ret_fence);
CUresult stream_synchronize(CUstream stream);
