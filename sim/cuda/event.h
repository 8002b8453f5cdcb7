/* Events: the fence of the work that recorded them last, and when that was. */
#pragma once

#include "base/cuda_abi.h"
#include "cuda/event_ipc.h"
#include "cuda/node_set.h"
#include "cuda/work.h"

struct CUevent_st {
	_Atomic unsigned int refs; /* the program's, and one an op */
	CUevent next;              /* the next one of its context; under driver.lock */
	CUcontext ctx;
	unsigned int flags;
	uint32_t stamp;      /* index of the host's time stamp; 0: keeps no time */
	struct fence *fence; /* under driver.lock; NULL: not pending */
	bool recorded;
	struct event_shared *shared; /* with other processes; NULL: with none */
	/* Recorded in a capture that still goes on: which, and after which nodes. Under
	 * driver.lock. */
	struct capture_session *captured_by;
	CUevent next_captured;
	struct node_set captured;
};

/* A new one of the context. Takes over what it shares, always. */
CUresult event_make(CUcontext ctx, unsigned int flags, struct event_shared *shared, CUevent *ret);
/* Ops keep their events: a program may destroy one that is still to be recorded. */
CUevent event_ref(CUevent event);
void event_unref(CUevent event);
/* A reference to what the event waits for; NULL: nothing (more). */
struct fence *event_fence(CUevent event);
/* Makes the event stand for this work from now on. */
void event_set(CUevent event, struct fence *fence);
/* On the lane's thread: the GPU notes the time when it gets there. */
void event_stamp(CUevent event, struct lane *lane);
