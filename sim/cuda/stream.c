/* Streams: creating, what runs after what, waiting. */
#include "cuda/stream.h"

#include <stdlib.h>

#include "cuda/capture.h"
#include "cuda/context.h"
#include "cuda/event.h"
#include "cuda/handle.h"
#include "cuda/parts.h"
#include "cuda/pool.h"

static __thread int per_thread_calls;
static _Atomic unsigned long long next_id = 1;

void stream_per_thread_begin(void)
{
	per_thread_calls++;
}

void stream_per_thread_end(void)
{
	per_thread_calls--;
}

static CUstream stream_new(CUcontext ctx, enum stream_kind kind, unsigned int flags, int priority)
{
	CUstream stream = calloc(1, sizeof(*stream));

	if (!stream)
		return NULL;
	stream->lane = lane_create(ctx->device, ctx);
	if (!stream->lane || !handle_add(stream, HANDLE_STREAM)) {
		stream_free(stream);
		return NULL;
	}
	stream->ctx = ctx;
	stream->kind = kind;
	stream->flags = flags;
	stream->priority = priority;
	stream->id = atomic_fetch_add(&next_id, 1);
	return stream;
}

CUstream stream_create_legacy(CUcontext ctx)
{
	return stream_new(ctx, STREAM_LEGACY, CU_STREAM_DEFAULT, STREAM_PRIORITY_LEAST);
}

void stream_free(CUstream stream)
{
	if (!stream)
		return;
	handle_remove(stream);
	if (stream->lane)
		lane_close(stream->lane);
	free(stream);
}

static void stream_link(CUstream stream)
{
	pthread_mutex_lock(&driver.lock);
	stream->next = stream->ctx->streams;
	stream->ctx->streams = stream;
	pthread_mutex_unlock(&driver.lock);
}

/* Frees destroyed streams whose work is over. */
static void streams_reap(CUcontext ctx)
{
	CUstream over = NULL, next;

	pthread_mutex_lock(&driver.lock);
	for (CUstream *link = &ctx->streams; *link;) {
		CUstream stream = *link;
		struct fence *last = stream->destroyed ? lane_last(stream->lane) : NULL;

		if (!stream->destroyed || last) {
			fence_unref(last);
			link = &stream->next;
			continue;
		}
		*link = stream->next;
		stream->next = over;
		over = stream;
	}
	pthread_mutex_unlock(&driver.lock);
	for (; over; over = next) {
		next = over->next;
		stream_free(over);
	}
}

/* The program is done with it. Queued work still runs, and is waited for with the context's
 * other work: until then the stream stays in its list. */
static void stream_end(CUstream stream)
{
	CUcontext ctx = stream->ctx;

	handle_remove(stream);
	capture_abandon(stream);
	pthread_mutex_lock(&driver.lock);
	stream->destroyed = true;
	pthread_mutex_unlock(&driver.lock);
	/* By now another thread may have freed it. */
	streams_reap(ctx);
}

void streams_destroy_all(CUcontext ctx)
{
	CUstream list, next;

	pthread_mutex_lock(&driver.lock);
	list = ctx->streams;
	ctx->streams = NULL;
	if (ctx->legacy)
		ctx->legacy->next = list;
	list = ctx->legacy ? ctx->legacy : list;
	ctx->legacy = NULL;
	pthread_mutex_unlock(&driver.lock);
	/* First all are told, since one may wait for another. */
	for (CUstream s = list; s; s = s->next)
		lane_abort(s->lane);
	for (; list; list = next) {
		next = list->next;
		capture_abandon(list);
		stream_free(list);
	}
}

/* A thread's default streams go with it. */
struct thread_stream {
	struct thread_stream *next;
	CUstream stream;
};

static pthread_key_t thread_key;
static pthread_once_t thread_key_once = PTHREAD_ONCE_INIT;

static void thread_streams_end(void *list)
{
	struct thread_stream *entry = list, *next;

	/* A forked child has none of its parent's lanes. */
	bool ours = driver.client && client_check(driver.client) == 0;
	for (; entry; entry = next) {
		CUstream stream = entry->stream;

		next = entry->next;
		free(entry);
		/* Its context may have ended before, and the address be another stream's by now. */
		if (!ours || !handle_is(stream, HANDLE_STREAM) ||
		    stream->kind != STREAM_PER_THREAD ||
		    !pthread_equal(stream->thread, pthread_self()))
			continue;
		stream_end(stream);
	}
}

static void thread_key_make(void)
{
	pthread_key_create(&thread_key, thread_streams_end);
}

static void thread_stream_note(CUstream stream)
{
	struct thread_stream *entry = malloc(sizeof(*entry));

	pthread_once(&thread_key_once, thread_key_make);
	if (!entry)
		return;
	*entry = (struct thread_stream){pthread_getspecific(thread_key), stream};
	pthread_setspecific(thread_key, entry);
}

/* The calling thread's own default stream of the context, made on first use. */
static CUstream stream_of_thread(CUcontext ctx)
{
	CUstream stream;

	pthread_mutex_lock(&driver.lock);
	for (stream = ctx->streams; stream; stream = stream->next)
		if (stream->kind == STREAM_PER_THREAD && !stream->destroyed &&
		    pthread_equal(stream->thread, pthread_self()))
			break;
	pthread_mutex_unlock(&driver.lock);
	if (stream)
		return stream;
	stream = stream_new(ctx, STREAM_PER_THREAD, CU_STREAM_DEFAULT, STREAM_PRIORITY_LEAST);
	if (stream) {
		stream->thread = pthread_self();
		stream_link(stream);
		thread_stream_note(stream);
	}
	return stream;
}

CUresult stream_resolve(CUcontext ctx, CUstream handle, CUstream *ret)
{
	CUstream stream = handle;

	if (!handle)
		handle = per_thread_calls ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
	if (handle == CU_STREAM_LEGACY)
		stream = ctx->legacy;
	else if (handle == CU_STREAM_PER_THREAD)
		stream = stream_of_thread(ctx);
	else if (!handle_is(handle, HANDLE_STREAM))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret = stream;
	return CUDA_SUCCESS;
}

static bool stream_blocks(const struct CUstream_st *stream)
{
	return !(stream->flags & CU_STREAM_NON_BLOCKING);
}

/* The fences that work appended to the stream now must wait for, besides its own lane's order: the
 * NULL stream and the blocking streams wait for each other. Returns how many; all are references.
 * driver.lock is held. */
static size_t barrier_fences(CUstream stream, struct fence **fences)
{
	CUcontext ctx = stream->ctx;
	size_t count = 0;
	struct fence *fence;

	if (!stream_blocks(stream))
		return 0;
	if (stream->kind != STREAM_LEGACY) {
		fence = ctx->legacy ? lane_last(ctx->legacy->lane) : NULL;
		if (fence)
			fences[count++] = fence;
		return count;
	}
	for (CUstream s = ctx->streams; s; s = s->next) {
		fence = stream_blocks(s) ? lane_last(s->lane) : NULL;
		if (fence)
			fences[count++] = fence;
	}
	return count;
}

static size_t streams_count(CUcontext ctx)
{
	size_t count = 0;

	for (CUstream s = ctx->streams; s; s = s->next)
		count++;
	return count;
}

static CUresult run_op(struct lane *lane, void *data)
{
	return op_run(lane, data);
}

static void release_op(void *data)
{
	op_release(data);
	free(data);
}

/* These are seen by others the moment they run, so not before the GPU's time for what precedes. */
static bool op_is_strict(const struct op *op)
{
	return op->kind == OP_HOST || op->kind == OP_MEMOPS;
}

/* The fences of all work of the context's streams but the NULL stream. driver.lock is held. */
static size_t context_fences(CUcontext ctx, struct fence **fences)
{
	size_t count = 0;

	for (CUstream s = ctx->streams; s; s = s->next) {
		fences[count] = lane_last(s->lane);
		count += fences[count] != NULL;
	}
	return count;
}

/* With `every`, after all work of the context, and else after what comes before it on the stream.
 */
static CUresult enqueue(CUstream stream, struct op *op, bool every, struct fence *after,
			struct fence **ret_fence)
{
	struct op *own = malloc(sizeof(*own));
	struct work *work = NULL;

	pthread_mutex_lock(&driver.lock);
	if (own)
		work = work_create(run_op, release_op, own, streams_count(stream->ctx) + 2);
	if (!work) {
		pthread_mutex_unlock(&driver.lock);
		free(own);
		op_release(op);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*own = *op;
	work->strict = op_is_strict(op);
	work->prompt = op->kind == OP_MEMOPS && op_memops_only_write(&op->memops);
	work->dependency_count = every ? context_fences(stream->ctx, work->dependencies)
				       : barrier_fences(stream, work->dependencies);
	if (after)
		work->dependencies[work->dependency_count++] = fence_ref(after);
	*ret_fence = lane_enqueue(stream->lane, work);
	pthread_mutex_unlock(&driver.lock);
	return CUDA_SUCCESS;
}

CUresult stream_enqueue(CUstream stream, struct op *op, struct fence *after,
			struct fence **ret_fence)
{
	return enqueue(stream, op, false, after, ret_fence);
}

CUresult context_enqueue(CUcontext ctx, struct op *op, struct fence **ret_fence)
{
	return enqueue(ctx->legacy, op, true, NULL, ret_fence);
}

CUresult stream_submit(CUstream stream, struct op *op)
{
	struct fence *fence;
	CUresult result;

	if (capture_takes(stream, op, &result))
		return result;
	result = stream_enqueue(stream, op, NULL, &fence);
	if (result == CUDA_SUCCESS)
		fence_unref(fence);
	return result;
}

CUresult stream_submit_wait(CUstream stream, struct op *op)
{
	struct fence *fence;
	CUresult result = capture_check_sync(stream);

	if (result != CUDA_SUCCESS) {
		op_release(op);
		return result;
	}
	CUcontext ctx = stream->ctx;
	result = stream_enqueue(stream, op, NULL, &fence);
	if (result != CUDA_SUCCESS)
		return result;
	fence_wait(fence);
	fence_unref(fence);
	return context_health(ctx);
}

static void fences_wait(struct fence **fences, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		fence_wait(fences[i]);
		fence_unref(fences[i]);
	}
}

/* The fences of the stream's last work and of what the NULL stream stands for. */
static size_t pending_fences(CUstream stream, struct fence ***ret)
{
	pthread_mutex_lock(&driver.lock);
	struct fence **fences = calloc(streams_count(stream->ctx) + 2, sizeof(struct fence *));
	size_t count = 0;
	if (fences) {
		if (stream->kind == STREAM_LEGACY)
			count = barrier_fences(stream, fences);
		fences[count] = lane_last(stream->lane);
		count += fences[count] != NULL;
	}
	pthread_mutex_unlock(&driver.lock);
	*ret = fences;
	return count;
}

CUresult stream_synchronize(CUstream stream)
{
	CUcontext ctx = stream->ctx;
	struct fence **fences;
	size_t count = pending_fences(stream, &fences);

	fences_wait(fences, count);
	free(fences);
	pools_settle(ctx->device);
	return context_health(ctx);
}

CUresult context_synchronize(CUcontext ctx)
{
	size_t count = 0;

	pthread_mutex_lock(&driver.lock);
	struct fence **fences = calloc(streams_count(ctx) + 1, sizeof(struct fence *));
	if (fences)
		count = context_fences(ctx, fences);
	if (fences && ctx->legacy) {
		fences[count] = lane_last(ctx->legacy->lane);
		count += fences[count] != NULL;
	}
	pthread_mutex_unlock(&driver.lock);
	fences_wait(fences, count);
	free(fences);
	pools_settle(ctx->device);
	return context_health(ctx);
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
	API_BEGIN_CONTEXT(ctx);
	if (!stream || flags & ~(unsigned int)CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	if (priority > STREAM_PRIORITY_LEAST)
		priority = STREAM_PRIORITY_LEAST;
	if (priority < STREAM_PRIORITY_GREATEST)
		priority = STREAM_PRIORITY_GREATEST;
	streams_reap(ctx);
	CUstream made = stream_new(ctx, STREAM_CREATED, flags, priority);
	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stream_link(made);
	*stream = made;
	return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
	return cuStreamCreateWithPriority(stream, flags, STREAM_PRIORITY_LEAST);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
	API_BEGIN();
	if (!handle_is(stream, HANDLE_STREAM))
		return CUDA_ERROR_INVALID_HANDLE;
	if (stream->kind != STREAM_CREATED)
		return CUDA_ERROR_INVALID_VALUE;
	stream_end(stream);
	return CUDA_SUCCESS;
}

/* The context's stream for a handle, for calls that only look at it. */
/* NOLINTBEGIN(bugprone-macro-parentheses): a name that is declared */
#define STREAM_OR_RETURN(stream, handle)                                     \
	API_BEGIN_CONTEXT(stream##_ctx);                                     \
	CUstream stream;                                                     \
	do {                                                                 \
		CUresult s_ = stream_resolve(stream##_ctx, handle, &stream); \
		if (s_ != CUDA_SUCCESS)                                      \
			return s_;                                           \
	} while (0)
/* NOLINTEND(bugprone-macro-parentheses) */

CUresult cuStreamSynchronize(CUstream handle)
{
	STREAM_OR_RETURN(stream, handle);
	CUresult result = capture_check_sync(stream);
	return result == CUDA_SUCCESS ? stream_synchronize(stream) : result;
}

CUresult cuStreamQuery(CUstream handle)
{
	STREAM_OR_RETURN(stream, handle);
	struct fence **fences;
	CUresult result = capture_check_sync(stream);
	if (result != CUDA_SUCCESS)
		return result;
	size_t count = pending_fences(stream, &fences);
	for (size_t i = 0; i < count; i++) {
		if (!fence_done(fences[i]))
			result = CUDA_ERROR_NOT_READY;
		fence_unref(fences[i]);
	}
	free(fences);
	return context_error(stream_ctx) ? context_error(stream_ctx) : result;
}

CUresult cuStreamGetPriority(CUstream handle, int *priority)
{
	STREAM_OR_RETURN(stream, handle);
	if (!priority)
		return CUDA_ERROR_INVALID_VALUE;
	*priority = stream->priority;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int *flags)
{
	STREAM_OR_RETURN(stream, handle);
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = stream->flags;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream handle, unsigned long long *id)
{
	STREAM_OR_RETURN(stream, handle);
	if (!id)
		return CUDA_ERROR_INVALID_VALUE;
	*id = stream->id;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext *ctx)
{
	STREAM_OR_RETURN(stream, handle);
	if (!ctx)
		return CUDA_ERROR_INVALID_VALUE;
	*ctx = stream->ctx;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext *ctx, CUgreenCtx *green)
{
	if (green)
		*green = NULL;
	return cuStreamGetCtx(handle, ctx);
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice *device)
{
	STREAM_OR_RETURN(stream, handle);
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	*device = stream->ctx->device->ordinal;
	return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags)
{
	STREAM_OR_RETURN(stream, handle);
	if (flags & ~(unsigned int)CU_EVENT_WAIT_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	if (!handle_is(event, HANDLE_EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	struct op op = {.kind = OP_EVENT_WAIT, .event = event_ref(event)};
	CUresult result;
	if (capture_takes_wait(stream, &op, flags, &result))
		return result;
	/* An event that was never recorded, or is over, holds nobody up. */
	struct fence *after = event_fence(event), *fence;
	if (event->shared)
		op.wait.target = event_shared_target(event->shared);
	if (!after && !op.wait.target) {
		op_release(&op);
		return CUDA_SUCCESS;
	}
	result = stream_enqueue(stream, &op, after, &fence);
	if (result == CUDA_SUCCESS)
		fence_unref(fence);
	fence_unref(after);
	return result;
}

static bool context_captures(CUcontext ctx)
{
	bool any = ctx->legacy->capture != NULL;

	pthread_mutex_lock(&driver.lock);
	for (CUstream s = ctx->streams; s; s = s->next)
		any |= s->capture != NULL;
	pthread_mutex_unlock(&driver.lock);
	return any;
}

CUresult cuCtxRecordEvent(CUcontext ctx, CUevent event)
{
	struct fence *fence;

	API_BEGIN();
	if (!context_is_alive(ctx))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!handle_is(event, HANDLE_EVENT) || event->ctx != ctx)
		return CUDA_ERROR_INVALID_HANDLE;
	if (context_captures(ctx))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	struct op op = {.kind = OP_EVENT_RECORD, .event = event_ref(event)};
	CUresult result = context_enqueue(ctx, &op, &fence);
	if (result == CUDA_SUCCESS) {
		event_set(event, fence);
		fence_unref(fence);
	}
	return result;
}

/* The streams that the context has now wait for it. */
CUresult cuCtxWaitEvent(CUcontext ctx, CUevent event)
{
	CUresult result = CUDA_SUCCESS;
	struct fence *fence;
	size_t count = 0;

	API_BEGIN();
	if (!context_is_alive(ctx))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!handle_is(event, HANDLE_EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	if (context_captures(ctx))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	struct fence *after = event_fence(event);
	if (!after)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&driver.lock);
	CUstream *streams = calloc(streams_count(ctx) + 1, sizeof(CUstream));
	for (CUstream s = streams ? ctx->streams : NULL; s; s = s->next)
		if (!s->destroyed)
			streams[count++] = s;
	pthread_mutex_unlock(&driver.lock);
	if (!streams)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	else
		streams[count++] = ctx->legacy;
	for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
		struct op op = {.kind = OP_EVENT_WAIT, .event = event_ref(event)};

		result = stream_enqueue(streams[i], &op, after, &fence);
		if (result == CUDA_SUCCESS)
			fence_unref(fence);
	}
	free(streams);
	fence_unref(after);
	return result;
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data)
{
	STREAM_OR_RETURN(stream, handle);
	struct op op = {.kind = OP_HOST, .host = {.function = function, .data = data}};
	return function ? stream_submit(stream, &op) : CUDA_ERROR_INVALID_VALUE;
}

/* CU_HOST_TASK_SPINWAIT of CUDA 13.2, the highest mode. */
#define HOST_TASK_SPINWAIT 1u

/* Threads of the driver wait for host functions in one way here, whichever is asked for. */
CUresult cuLaunchHostFunc_v2(CUstream stream, CUhostFn function, void *data, unsigned int mode)
{
	return mode <= HOST_TASK_SPINWAIT ? cuLaunchHostFunc(stream, function, data)
					  : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void *data,
			     unsigned int flags)
{
	STREAM_OR_RETURN(stream, handle);
	struct op op = {.kind = OP_HOST,
			.host = {.callback = callback, .stream = handle, .data = data}};
	return callback && !flags ? stream_submit(stream, &op) : CUDA_ERROR_INVALID_VALUE;
}
