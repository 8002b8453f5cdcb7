/* Stream capture: what a capturing stream is told to do becomes nodes of a graph instead. */
#pragma once

#include <stdbool.h>

#include "cuda/op.h"

/* A stream's part in a capture; struct CUstream_st.capture. */
struct capture;
struct device;

/* Whether what the stream is told now becomes a node. */
bool capture_is_on(CUstream stream);
/* True where the op has become a node, or the capture makes it an error: *ret says which. The op's
 * possessions are taken over then. */
bool capture_takes(CUstream stream, struct op *op, CUresult *ret);
/* The same for a graph, which becomes the child of a node. */
bool capture_takes_graph(CUstream stream, CUgraph child, CUresult *ret);
/* The same for recording an event, ... */
bool capture_takes_record(CUstream stream, struct op *op, unsigned int flags, CUresult *ret);
/* ... for waiting for one: this may draw a stream into the event's capture, ... */
bool capture_takes_wait(CUstream stream, struct op *op, unsigned int flags, CUresult *ret);
/* ... and for an allocation: *address is what it will have. */
bool capture_takes_alloc(CUstream stream, CUmemoryPool pool, size_t bytes, CUdeviceptr *address,
			 CUresult *ret);
/* Whether a call that waits for the stream is allowed now; it invalidates a capture. */
CUresult capture_check_sync(CUstream stream);
/* Whether the calling thread may make a call that captures do not know (cuMemAlloc, and all that
 * asks or tells pools something); it invalidates a capture. */
CUresult capture_check_unsafe(void);
#define RETURN_IF_CAPTURE_FORBIDS()                        \
	do {                                               \
		CUresult unsafe_ = capture_check_unsafe(); \
		if (unsafe_ != CUDA_SUCCESS)               \
			return unsafe_;                    \
	} while (0)
/* Whether all of a device may be waited for now; it invalidates the captures there. */
CUresult capture_check_wait_all(const struct device *device);
/* The stream goes away: the capture that began in it ends, any other keeps what it did. */
void capture_abandon(CUstream stream);
/* The event stands for something else, or goes away. */
void capture_forget_event(CUevent event);
