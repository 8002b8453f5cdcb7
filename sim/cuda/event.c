#include "cuda/event.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/macros.h"
#include "cuda/capture.h"
#include "cuda/capture_private.h"
#include "cuda/context.h"
#include "cuda/handle.h"
#include "cuda/parts.h"
#include "cuda/pool.h"
#include "cuda/stream.h"

/* Time stamps in use, one bit each; the first is never given out. */
static struct {
	pthread_mutex_t lock;
	uint64_t taken[WIRE_STAMPS_MAX / 64];
	size_t next; /* word to look at first */
} stamps = {.lock = PTHREAD_MUTEX_INITIALIZER, .taken = {1}};

#define STAMP_WORDS (WIRE_STAMPS_MAX / 64)

static uint32_t stamp_take(void)
{
	uint32_t stamp = 0;

	pthread_mutex_lock(&stamps.lock);
	for (size_t i = 0; i < STAMP_WORDS && !stamp; i++) {
		size_t word = (stamps.next + i) % STAMP_WORDS;

		if (stamps.taken[word] == UINT64_MAX)
			continue;
		int bit = __builtin_ctzll(~stamps.taken[word]);
		stamps.taken[word] |= 1ull << bit;
		stamps.next = word;
		stamp = (uint32_t)(word * 64) + (uint32_t)bit;
	}
	pthread_mutex_unlock(&stamps.lock);
	return stamp;
}

static void stamp_give(uint32_t stamp)
{
	if (!stamp)
		return;
	pthread_mutex_lock(&stamps.lock);
	stamps.taken[stamp / 64] &= ~(1ull << stamp % 64);
	pthread_mutex_unlock(&stamps.lock);
}

struct fence *event_fence(CUevent event)
{
	pthread_mutex_lock(&driver.lock);
	struct fence *fence = event->fence, *done = NULL;
	if (fence && fence_done(fence)) {
		done = fence;
		event->fence = fence = NULL;
	}
	fence = fence_ref(fence);
	pthread_mutex_unlock(&driver.lock);
	fence_unref(done);
	return fence;
}

void event_set(CUevent event, struct fence *fence)
{
	pthread_mutex_lock(&driver.lock);
	struct fence *before = event->fence;
	event->fence = fence_ref(fence);
	event->recorded = true;
	event_uncapture(event);
	pthread_mutex_unlock(&driver.lock);
	if (event->shared)
		event_shared_recorded(event->shared);
	fence_unref(before);
}

void event_stamp(CUevent event, struct lane *lane)
{
	uint64_t sure_until;

	if (event->shared) {
		/* Others see it at once. */
		lane_expect_nothing(lane);
		lane_wait_done(lane, &sure_until);
		event_shared_over(event->shared);
	}
	if (event->stamp)
		lane_submit(lane, (struct wire_item){.engine = WIRE_ENGINE_NONE,
						     .stamp_done = (uint16_t)event->stamp});
}

CUevent event_ref(CUevent event)
{
	atomic_fetch_add(&event->refs, 1);
	return event;
}

void event_unref(CUevent event)
{
	if (atomic_fetch_sub(&event->refs, 1) != 1)
		return;
	fence_unref(event->fence);
	stamp_give(event->stamp);
	event_shared_close(event->shared);
	free(event);
}

/* It is no event of the program's any more. */
static void event_end(CUevent event)
{
	handle_remove(event);
	capture_forget_event(event);
	event_unref(event);
}

void events_destroy_all(CUcontext ctx)
{
	CUevent list, next;

	pthread_mutex_lock(&driver.lock);
	list = ctx->events;
	ctx->events = NULL;
	pthread_mutex_unlock(&driver.lock);
	for (; list; list = next) {
		next = list->next;
		event_end(list);
	}
}

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
	const unsigned int known =
		CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

	API_BEGIN_CONTEXT(ctx);
	if (!event || flags & ~known)
		return CUDA_ERROR_INVALID_VALUE;
	struct event_shared *shared = NULL;
	if (flags & CU_EVENT_INTERPROCESS) {
		if (!(flags & CU_EVENT_DISABLE_TIMING))
			return CUDA_ERROR_INVALID_VALUE;
		shared = event_shared_make();
		if (!shared)
			return CUDA_ERROR_OPERATING_SYSTEM;
	}
	return event_make(ctx, flags, shared, event);
}

CUresult event_make(CUcontext ctx, unsigned int flags, struct event_shared *shared, CUevent *ret)
{
	CUevent made = calloc(1, sizeof(*made));

	if (!made || !handle_add(made, HANDLE_EVENT)) {
		event_shared_close(shared);
		free(made);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	made->shared = shared;
	made->refs = 1;
	made->ctx = ctx;
	made->flags = flags;
	if (!(flags & CU_EVENT_DISABLE_TIMING))
		made->stamp = stamp_take();
	pthread_mutex_lock(&driver.lock);
	made->next = ctx->events;
	ctx->events = made;
	pthread_mutex_unlock(&driver.lock);
	*ret = made;
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event)
{
	API_BEGIN();
	if (!handle_is(event, HANDLE_EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&driver.lock);
	for (CUevent *link = &event->ctx->events; *link; link = &(*link)->next) {
		if (*link == event) {
			*link = event->next;
			break;
		}
	}
	pthread_mutex_unlock(&driver.lock);
	event_end(event);
	return CUDA_SUCCESS;
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned int flags)
{
	CUstream stream;
	struct fence *fence;

	API_BEGIN_CONTEXT(ctx);
	if (flags & ~(unsigned int)CU_EVENT_RECORD_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	if (!handle_is(event, HANDLE_EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	CUresult result = stream_resolve(ctx, handle, &stream);
	if (result != CUDA_SUCCESS)
		return result;
	if (stream->ctx != event->ctx)
		return CUDA_ERROR_INVALID_HANDLE;
	struct op op = {.kind = OP_EVENT_RECORD, .event = event_ref(event)};
	if (capture_takes_record(stream, &op, flags, &result))
		return result;
	result = stream_enqueue(stream, &op, NULL, &fence);
	if (result == CUDA_SUCCESS) {
		event_set(event, fence);
		fence_unref(fence);
	}
	return result;
}

CUresult cuEventRecord(CUevent event, CUstream handle)
{
	return cuEventRecordWithFlags(event, handle, 0);
}

CUresult cuEventQuery(CUevent event)
{
	API_BEGIN_CONTEXT(ctx);
	if (!handle_is(event, HANDLE_EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	if (event->captured_by)
		return CUDA_ERROR_CAPTURED_EVENT;
	struct fence *fence = event_fence(event);
	fence_unref(fence);
	if (event->shared &&
	    !event_shared_reached(event->shared, event_shared_target(event->shared)))
		return CUDA_ERROR_NOT_READY;
	return fence ? CUDA_ERROR_NOT_READY : context_error(ctx);
}

CUresult cuEventSynchronize(CUevent event)
{
	API_BEGIN_CONTEXT(ctx);
	if (!handle_is(event, HANDLE_EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	if (event->captured_by)
		return CUDA_ERROR_CAPTURED_EVENT;
	/* A recording that another process makes meanwhile is not waited for. */
	uint64_t target = event->shared ? event_shared_target(event->shared) : 0;
	struct fence *fence = event_fence(event);
	if (fence) {
		fence_wait(fence);
		fence_unref(fence);
	}
	if (event->shared)
		event_shared_wait(event->shared, target, NULL);
	pools_settle(ctx->device);
	return context_health(ctx);
}

static CUresult elapsed(float *ms, CUevent start, CUevent end)
{
	if (!ms)
		return CUDA_ERROR_INVALID_VALUE;
	if (!handle_is(start, HANDLE_EVENT) || !handle_is(end, HANDLE_EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!start->stamp || !end->stamp || !start->recorded || !end->recorded)
		return CUDA_ERROR_INVALID_HANDLE;
	CUevent both[] = {start, end};
	for (int i = 0; i < 2; i++) {
		struct fence *fence = event_fence(both[i]);

		fence_unref(fence);
		if (fence)
			return CUDA_ERROR_NOT_READY;
	}
	int64_t ns = (int64_t)(client_stamp(driver.client, end->stamp) -
			       client_stamp(driver.client, start->stamp));
	*ms = (float)((double)ns / 1e6);
	return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
	API_BEGIN_CONTEXT(ctx);
	return elapsed(ms, start, end);
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
	API_BEGIN_CONTEXT(ctx);
	return elapsed(ms, start, end);
}
