/* Contexts: making, destroying, the thread's stack of them, what they say of themselves. */
#include "cuda/context.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "cuda/device_heap.h"
#include "cuda/handle.h"
#include "cuda/memory.h"
#include "cuda/parts.h"
#include "cuda/pool.h"

#define STACK_MAX 256
/* The contents of a context's cost: local memory of a thread, and the heap of the kernels' malloc.
 */
#define STACK_BYTES 1024u
#define HEAP_BYTES MIB(8)
#define FIFO_BYTES MIB(1) /* the buffer of printf */

static __thread struct {
	CUcontext entry[STACK_MAX];
	int depth;
} stack;

static _Atomic unsigned long long next_id = 1;

CUcontext context_current(void)
{
	return stack.depth ? stack.entry[stack.depth - 1] : NULL;
}

bool context_is_alive(CUcontext ctx)
{
	return handle_is(ctx, HANDLE_CONTEXT);
}

CUresult context_error(CUcontext ctx)
{
	return (CUresult)atomic_load_explicit(&ctx->error, memory_order_relaxed);
}

void context_set_error(CUcontext ctx, CUresult error)
{
	int none = CUDA_SUCCESS;

	atomic_compare_exchange_strong(&ctx->error, &none, (int)error);
}

CUresult context_health(CUcontext ctx)
{
	const struct wire_gpu *gpu = ctx->device->gpu;

	if (client_is_lost(driver.client))
		return CUDA_ERROR_SYSTEM_NOT_READY;
	if (atomic_load_explicit(&gpu->flags, memory_order_relaxed) & WIRE_GPU_LOST)
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	if (atomic_load_explicit(&gpu->ecc_errors, memory_order_relaxed) != ctx->ecc_errors)
		context_set_error(ctx, CUDA_ERROR_ECC_UNCORRECTABLE);
	return context_error(ctx);
}

static CUresult booking_set(CUcontext ctx, struct context_booking *booking, uint64_t bytes)
{
	int status = 0;

	if (booking->bytes)
		client_memory_free(driver.client, booking->id);
	booking->bytes = 0;
	if (bytes)
		status = client_memory_reserve(driver.client, ctx->device->wire, WIRE_MEMORY_LOCAL,
					       bytes, &booking->id);
	if (status == 0)
		booking->bytes = bytes;
	return result_from_errno(status);
}

/* As with a real driver, the old makes room for the new. */
static CUresult book(CUcontext ctx, struct context_booking *booking, uint64_t bytes)
{
	uint64_t size = ALIGN_UP(bytes, BLOCK_SIZE);
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&driver.lock);
	uint64_t before = booking->bytes;
	if (size != before)
		result = booking_set(ctx, booking, size);
	if (result != CUDA_SUCCESS)
		booking_set(ctx, booking, before);
	pthread_mutex_unlock(&driver.lock);
	return result;
}

CUresult context_book_local(CUcontext ctx, uint64_t bytes_per_thread)
{
	const struct device *device = ctx->device;
	uint64_t threads = (uint64_t)device->sm_count * device->model->max_threads_per_sm;

	if (bytes_per_thread <= atomic_load(&ctx->local_per_thread))
		return CUDA_SUCCESS;
	CUresult result = book(ctx, &ctx->local, (bytes_per_thread - STACK_BYTES) * threads);
	if (result == CUDA_SUCCESS)
		atomic_store(&ctx->local_per_thread, bytes_per_thread);
	return result;
}

CUresult context_book_heap(CUcontext ctx, uint64_t bytes)
{
	return book(ctx, &ctx->heap, bytes > HEAP_BYTES ? bytes - HEAP_BYTES : 0);
}

CUresult context_book_fifo(CUcontext ctx, uint64_t bytes)
{
	return book(ctx, &ctx->fifo, bytes > FIFO_BYTES ? bytes - FIFO_BYTES : 0);
}

struct device *context_device(CUcontext ctx)
{
	return ctx->device;
}

struct slab **context_slabs(CUcontext ctx)
{
	return &ctx->slabs;
}

static void limits_init(CUcontext ctx)
{
	ctx->limits[CU_LIMIT_STACK_SIZE] = STACK_BYTES;
	ctx->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = FIFO_BYTES;
	ctx->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = HEAP_BYTES;
	ctx->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
	ctx->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
	ctx->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
}

/* Books the context's own memory and brings it to life. */
static CUresult context_start(CUcontext ctx, struct device *device, unsigned int flags,
			      unsigned int api_version)
{
	uint64_t cost = ALIGN_UP(device->model->context_bytes, BLOCK_SIZE);

	memset(ctx, 0, sizeof(*ctx));
	CUresult fault = api_allocation_fault(device);
	if (fault != CUDA_SUCCESS)
		return fault;
	int status = client_memory_reserve_unfailing(driver.client, device->wire,
						     WIRE_MEMORY_CONTEXT, cost, &ctx->cost_id);
	if (status < 0)
		return result_from_errno(status);
	ctx->device = device;
	ctx->ecc_errors = atomic_load(&device->gpu->ecc_errors);
	ctx->id = atomic_fetch_add(&next_id, 1);
	ctx->flags = flags;
	ctx->api_version = api_version;
	ctx->attached = 1;
	atomic_store(&ctx->local_per_thread, STACK_BYTES);
	limits_init(ctx);
	ctx->legacy = stream_create_legacy(ctx);
	if (!ctx->legacy || !handle_add(ctx, HANDLE_CONTEXT)) {
		stream_free(ctx->legacy);
		client_memory_free(driver.client, ctx->cost_id);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

/* Everything in it goes; its handle is dead from the first moment. driver.lock is not held. */
static void context_stop(CUcontext ctx)
{
	struct range range;

	handle_remove(ctx);
	streams_destroy_all(ctx);
	events_destroy_all(ctx);
	modules_destroy_all(ctx);
	device_heap_destroy(ctx->device_heap);
	while (range_take_of(ctx, &range))
		memory_release(&range);
	if (ctx->is_primary)
		pools_empty(ctx->device);
	booking_set(ctx, &ctx->local, 0);
	booking_set(ctx, &ctx->heap, 0);
	booking_set(ctx, &ctx->fifo, 0);
	client_memory_free(driver.client, ctx->cost_id);
}

static CUresult context_push(CUcontext ctx)
{
	if (stack.depth == STACK_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stack.entry[stack.depth++] = ctx;
	return CUDA_SUCCESS;
}

static CUresult context_create(CUcontext *ret, unsigned int flags, CUdevice dev,
			       unsigned int api_version)
{
	struct device *device = device_find(dev);

	if (!ret || flags & ~(unsigned int)CU_CTX_FLAGS_MASK)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	CUcontext ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = context_start(ctx, device, flags, api_version);
	if (result != CUDA_SUCCESS) {
		free(ctx);
		return result;
	}
	result = context_push(ctx);
	if (result == CUDA_SUCCESS)
		*ret = ctx;
	return result;
}

CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice dev)
{
	API_BEGIN();
	return context_create(ctx, flags, dev, 3020);
}

CUresult cuCtxCreate(CUcontext *ctx, unsigned int flags, CUdevice dev)
{
	API_BEGIN();
	return context_create(ctx, flags, dev, 3010);
}

CUresult cuCtxCreate_v3(CUcontext *ctx, CUexecAffinityParam *affinity, int affinity_count,
			unsigned int flags, CUdevice dev)
{
	API_BEGIN();
	if (affinity_count > 0)
		return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
	return context_create(ctx, flags, dev, 3020);
}

CUresult cuCtxCreate_v4(CUcontext *ctx, CUctxCreateParams *params, unsigned int flags, CUdevice dev)
{
	API_BEGIN();
	if (params && params->numExecAffinityParams > 0)
		return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
	if (params && params->cigParams)
		return CUDA_ERROR_NOT_SUPPORTED;
	return context_create(ctx, flags, dev, 3020);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	API_BEGIN();
	if (!ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!context_is_alive(ctx))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (ctx->is_primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (context_current() == ctx)
		stack.depth--;
	context_stop(ctx);
	free(ctx);
	return CUDA_SUCCESS;
}

CUresult cuCtxAttach(CUcontext *ctx, unsigned int flags)
{
	API_BEGIN_CONTEXT(current);
	if (!ctx || flags)
		return CUDA_ERROR_INVALID_VALUE;
	current->attached++;
	*ctx = current;
	return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext ctx)
{
	API_BEGIN();
	if (!context_is_alive(ctx) || ctx != context_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	return --ctx->attached ? CUDA_SUCCESS : cuCtxDestroy_v2(ctx);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	API_BEGIN();
	if (!context_is_alive(ctx))
		return ctx ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
	return context_push(ctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext *ctx)
{
	API_BEGIN();
	if (!stack.depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	CUcontext top = stack.entry[--stack.depth];
	if (ctx)
		*ctx = top;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
	API_BEGIN();
	if (ctx && !context_is_alive(ctx))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (stack.depth)
		stack.depth--;
	return ctx ? context_push(ctx) : CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *ctx)
{
	API_BEGIN();
	if (!ctx)
		return CUDA_ERROR_INVALID_VALUE;
	*ctx = context_current();
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev)
{
	CUresult result = CUDA_SUCCESS;

	API_BEGIN();
	struct device *device = device_find(dev);
	if (!ctx)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&driver.lock);
	/* The handle stays the same for ever; it is alive while the context is retained. */
	if (!device->primary)
		device->primary = calloc(1, sizeof(*device->primary));
	if (!device->primary)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	else if (!device->primary_refs)
		result = context_start(device->primary, device, device->primary_flags, 3020);
	if (result == CUDA_SUCCESS) {
		device->primary->is_primary = true;
		device->primary_refs++;
		*ctx = device->primary;
	}
	pthread_mutex_unlock(&driver.lock);
	return result;
}

static CUresult primary_drop(CUdevice dev, bool all)
{
	struct device *device = device_find(dev);
	bool stop;

	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&driver.lock);
	if (!device->primary_refs && !all) {
		pthread_mutex_unlock(&driver.lock);
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	stop = device->primary_refs && (all || device->primary_refs == 1);
	device->primary_refs -= all ? device->primary_refs : 1;
	pthread_mutex_unlock(&driver.lock);
	if (stop)
		context_stop(device->primary);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	API_BEGIN();
	return primary_drop(dev, false);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	API_BEGIN();
	return primary_drop(dev, true);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
	API_BEGIN();
	struct device *device = device_find(dev);
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	if (flags & ~(unsigned int)CU_CTX_FLAGS_MASK)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver.lock);
	device->primary_flags = flags;
	if (device->primary_refs)
		device->primary->flags = flags;
	pthread_mutex_unlock(&driver.lock);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	API_BEGIN();
	struct device *device = device_find(dev);
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver.lock);
	*flags = device->primary_flags;
	*active = device->primary_refs > 0;
	pthread_mutex_unlock(&driver.lock);
	return CUDA_SUCCESS;
}
