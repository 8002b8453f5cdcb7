/* The answers of contexts about themselves, and their settings. */
#include "cuda/capture.h"
#include "cuda/context.h"
#include "cuda/parts.h"

CUresult cuCtxGetDevice(CUdevice *device)
{
	API_BEGIN();
	CUcontext ctx = context_current();
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (!context_is_alive(ctx))
		return CUDA_ERROR_INVALID_CONTEXT;
	*device = ctx->device->ordinal;
	return CUDA_SUCCESS;
}

/* Local memory of a thread. */
#define LOCAL_BYTES_MAX (512u << 10)

/* The context that a call with a context argument means: NULL is the current one. */
static CUresult context_or_current(CUcontext *ctx)
{
	if (!*ctx)
		*ctx = context_current();
	return context_is_alive(*ctx) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
	API_BEGIN();
	CUresult result = context_or_current(&ctx);
	if (result == CUDA_SUCCESS && !device)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*device = ctx->device->ordinal;
	return result;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *id)
{
	API_BEGIN();
	CUresult result = context_or_current(&ctx);
	if (result == CUDA_SUCCESS && !id)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*id = ctx->id;
	return result;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
	API_BEGIN();
	CUresult result = context_or_current(&ctx);
	if (result == CUDA_SUCCESS && !version)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*version = ctx->api_version;
	return result;
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
	API_BEGIN_CONTEXT(ctx);
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = ctx->flags;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags)
{
	API_BEGIN_CONTEXT(ctx);
	if (flags & ~(unsigned int)CU_CTX_FLAGS_MASK)
		return CUDA_ERROR_INVALID_VALUE;
	ctx->flags = flags;
	return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
	API_BEGIN_CONTEXT(ctx);
	CUresult result = capture_check_wait_all(ctx->device);
	return result == CUDA_SUCCESS ? context_synchronize(ctx) : result;
}

CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
	API_BEGIN();
	CUresult result = context_or_current(&ctx);
	if (result == CUDA_SUCCESS)
		result = capture_check_wait_all(ctx->device);
	return result == CUDA_SUCCESS ? context_synchronize(ctx) : result;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
	API_BEGIN_CONTEXT(ctx);
	if ((unsigned int)limit >= CONTEXT_LIMITS)
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	CUresult result = CUDA_SUCCESS;
	if (limit == CU_LIMIT_STACK_SIZE)
		result = value > LOCAL_BYTES_MAX ? CUDA_ERROR_INVALID_VALUE
						 : context_book_local(ctx, value);
	else if (limit == CU_LIMIT_MALLOC_HEAP_SIZE)
		result = context_book_heap(ctx, value);
	else if (limit == CU_LIMIT_PRINTF_FIFO_SIZE)
		result = context_book_fifo(ctx, value);
	if (result == CUDA_SUCCESS)
		ctx->limits[limit] = value;
	return result;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
	API_BEGIN_CONTEXT(ctx);
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if ((unsigned int)limit >= CONTEXT_LIMITS)
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	*value = ctx->limits[limit];
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *config)
{
	API_BEGIN_CONTEXT(ctx);
	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	*config = ctx->cache_config;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
	API_BEGIN_CONTEXT(ctx);
	ctx->cache_config = config;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config)
{
	API_BEGIN_CONTEXT(ctx);
	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	*config =
		ctx->shared_config ? ctx->shared_config : CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
	API_BEGIN_CONTEXT(ctx);
	ctx->shared_config = config;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	API_BEGIN_CONTEXT(ctx);
	if (least)
		*least = STREAM_PRIORITY_LEAST;
	if (greatest)
		*greatest = STREAM_PRIORITY_GREATEST;
	return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache(void)
{
	API_BEGIN_CONTEXT(ctx);
	return CUDA_SUCCESS;
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam *affinity, CUexecAffinityType type)
{
	API_BEGIN_CONTEXT(ctx);
	return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	API_BEGIN_CONTEXT(ctx);
	int can;
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (!context_is_alive(peer) || peer == ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (cuDeviceCanAccessPeer(&can, ctx->device->ordinal, peer->device->ordinal) !=
		    CUDA_SUCCESS ||
	    !can)
		return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	if (ctx->peers >> peer->device->ordinal & 1)
		return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	ctx->peers |= 1ull << peer->device->ordinal;
	return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
	API_BEGIN_CONTEXT(ctx);
	if (!context_is_alive(peer))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!(ctx->peers >> peer->device->ordinal & 1))
		return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
	ctx->peers &= ~(1ull << peer->device->ordinal);
	return CUDA_SUCCESS;
}
