/* Shared by the files of captures and by events; everything under driver.lock. */
#pragma once

#include <pthread.h>

#include "base/cuda_abi.h"
#include "cuda/node_set.h"

struct capture_session {
	struct capture_session *next;
	unsigned long long id;
	CUgraph graph;
	bool own_graph; /* made by the capture, and the program's with its end */
	CUstream origin;
	CUstreamCaptureMode mode;
	pthread_t thread; /* that began it */
	bool invalid;
	struct capture *parts;
	CUevent events; /* recorded in it */
};

/* A stream in a capture. */
struct capture {
	struct capture *next;
	struct capture_session *session;
	CUstream stream;      /* NULL: destroyed; what it did is still to be joined */
	struct node_set last; /* the nodes that its next node depends on */
};

/* NULL: no memory. */
struct capture_session *capture_begin(CUstream stream, CUgraph graph, bool own_graph,
				      CUstreamCaptureMode mode);
struct capture *capture_join(struct capture_session *session, CUstream stream);
/* Frees it all but the graph. */
void capture_end(struct capture_session *session);
void event_uncapture(CUevent event);
