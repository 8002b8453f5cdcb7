/* Attributes of functions, and occupancy. */
#include "cuda/function.h"

#include "base/macros.h"
#include "cuda/context.h"
#include "cuda/handle.h"
#include "cuda/library.h"

int occupancy_blocks(const struct device *device, const struct CUfunc_st *f, int threads,
		     size_t dynamic_shared)
{
	const struct sim_model *model = device->model;
	size_t reserved = model->cc_major >= 8 ? 1024 : 0;
	size_t shared = ALIGN_UP(f->info->shared_bytes + dynamic_shared + reserved, 128);
	/* Registers are given out to warps, 256 at a time. */
	size_t warps = ((size_t)threads + 31) / 32;
	size_t registers = warps * ALIGN_UP((size_t)f->info->registers * 32, 256);
	size_t blocks = model->max_blocks_per_sm;

	blocks = MIN(blocks, model->max_threads_per_sm / 32 / warps);
	if (registers)
		blocks = MIN(blocks, 65536 / registers);
	if (shared)
		blocks = MIN(blocks, model->shared_per_sm / shared);
	return (int)blocks;
}

CUfunction function_resolve(CUcontext ctx, CUfunction handle)
{
	switch (handle_type_of(handle)) {
	case HANDLE_FUNCTION:
		return handle->module->ctx == ctx ? handle : NULL;
	case HANDLE_KERNEL:
		return kernel_function(ctx, (CUkernel)handle);
	default:
		return NULL;
	}
}

/* NOLINTBEGIN(bugprone-macro-parentheses): a name that is declared */
#define FUNCTION_OR_RETURN(f, handle)                     \
	API_BEGIN_CONTEXT(f##_ctx);                       \
	CUfunction f = function_resolve(f##_ctx, handle); \
	do {                                              \
		if (!f)                                   \
			return CUDA_ERROR_INVALID_HANDLE; \
	} while (0)
/* NOLINTEND(bugprone-macro-parentheses) */

static CUresult attribute_get(const struct device *device, CUfunction f,
			      CUfunction_attribute attribute, int *ret)
{
	const struct ptx_kernel_info *info = f->info;

	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*ret = (int)MIN(info->max_threads,
				65536 / MAX(ALIGN_UP(info->registers, 8), 8) / 32 * 32);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
		*ret = (int)info->shared_bytes;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
		*ret = (int)info->const_bytes;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
		*ret = (int)info->local_bytes;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*ret = (int)info->registers;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
		*ret = info->sm;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*ret = device->model->cc_major * 10 + device->model->cc_minor;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*ret = f->dynamic_shared_max ? f->dynamic_shared_max
					     : 49152 - (int)MIN(info->shared_bytes, 49152);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		*ret = f->carveout;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
		*ret = (int)info->reqnctapercluster[attribute -
						    CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH];
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
	case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		*ret = 0;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult attribute_set(const struct device *device, CUfunction f,
			      CUfunction_attribute attribute, int value)
{
	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		if (value < 0 ||
		    (uint32_t)value + f->info->shared_bytes > device->model->shared_per_block_optin)
			return CUDA_ERROR_INVALID_VALUE;
		f->dynamic_shared_max = value;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		if (value < -1 || value > 100)
			return CUDA_ERROR_INVALID_VALUE;
		f->carveout = value;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle)
{
	FUNCTION_OR_RETURN(f, handle);
	return value ? attribute_get(f_ctx->device, f, attribute, value) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value)
{
	FUNCTION_OR_RETURN(f, handle);
	return attribute_set(f_ctx->device, f, attribute, value);
}

CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config)
{
	FUNCTION_OR_RETURN(f, handle);
	f->cache_config = config;
	return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config)
{
	FUNCTION_OR_RETURN(f, handle);
	return CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction handle)
{
	FUNCTION_OR_RETURN(f, handle);
	if (!module)
		return CUDA_ERROR_INVALID_VALUE;
	*module = f->module;
	return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction handle)
{
	FUNCTION_OR_RETURN(f, handle);
	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	*name = f->info->name;
	return CUDA_SUCCESS;
}

CUresult cuFuncGetParamCount(CUfunction handle, size_t *count)
{
	FUNCTION_OR_RETURN(f, handle);
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = f->info->param_count;
	return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset, size_t *size)
{
	FUNCTION_OR_RETURN(f, handle);
	if (!offset || index >= f->info->param_count)
		return CUDA_ERROR_INVALID_VALUE;
	*offset = f->info->params[index].offset;
	if (size)
		*size = f->info->params[index].size;
	return CUDA_SUCCESS;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction handle)
{
	FUNCTION_OR_RETURN(f, handle);
	if (!state)
		return CUDA_ERROR_INVALID_VALUE;
	*state = CU_FUNCTION_LOADING_STATE_LOADED;
	return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction handle)
{
	FUNCTION_OR_RETURN(f, handle);
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction handle,
							      int threads, size_t shared,
							      unsigned int flags)
{
	FUNCTION_OR_RETURN(f, handle);
	if (!blocks || threads <= 0 || flags & ~(unsigned int)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
		return CUDA_ERROR_INVALID_VALUE;
	*blocks = threads > (int)f->info->max_threads
			  ? 0
			  : occupancy_blocks(f_ctx->device, f, threads, shared);
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction f, int threads,
						     size_t shared)
{
	return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, f, threads, shared, 0);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *min_grid, int *block, CUfunction handle,
						   CUoccupancyB2DSize shared_of, size_t shared,
						   int limit, unsigned int flags)
{
	int best_threads = 0, best_block = 0, best_blocks = 0;

	FUNCTION_OR_RETURN(f, handle);
	if (!min_grid || !block)
		return CUDA_ERROR_INVALID_VALUE;
	int max = (int)f->info->max_threads;
	if (limit > 0 && limit < max)
		max = limit;
	for (int threads = max; threads > 0; threads -= threads % 32 ? threads % 32 : 32) {
		size_t dynamic = shared_of ? shared_of(threads) : shared;
		int blocks = occupancy_blocks(f_ctx->device, f, threads, dynamic);

		if (blocks * threads <= best_threads)
			continue;
		best_threads = blocks * threads;
		best_block = threads;
		best_blocks = blocks;
	}
	*block = best_block;
	*min_grid = best_blocks * (int)f_ctx->device->sm_count;
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *min_grid, int *block, CUfunction f,
					  CUoccupancyB2DSize shared_of, size_t shared, int limit)
{
	return cuOccupancyMaxPotentialBlockSizeWithFlags(min_grid, block, f, shared_of, shared,
							 limit, 0);
}

/* The most blocks of a cluster that every GPU with clusters takes. */
#define CLUSTER_BLOCKS_PORTABLE 8
/* And that it takes of functions that allow it. */
#define CLUSTER_BLOCKS_MAX 16

static int cluster_blocks(const struct CUfunc_st *f, const CUlaunchConfig *config)
{
	const uint32_t *want = f->info->reqnctapercluster;
	uint64_t blocks = want[0] ? (uint64_t)want[0] * want[1] * want[2] : 1;

	for (unsigned int i = 0; i < config->numAttrs; i++) {
		const CUlaunchAttribute *a = &config->attrs[i];

		if (a->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
			blocks = (uint64_t)a->value.clusterDim.x * a->value.clusterDim.y *
				 a->value.clusterDim.z;
	}
	return blocks > CLUSTER_BLOCKS_MAX ? 0 : (int)blocks;
}

static int config_blocks(const struct device *device, const struct CUfunc_st *f,
			 const CUlaunchConfig *config)
{
	uint64_t threads = (uint64_t)config->blockDimX * config->blockDimY * config->blockDimZ;

	if (!threads || threads > f->info->max_threads)
		return 0;
	return occupancy_blocks(device, f, (int)threads, config->sharedMemBytes);
}

CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction handle,
				      const CUlaunchConfig *config)
{
	FUNCTION_OR_RETURN(f, handle);
	if (!clusters || !config || (config->numAttrs && !config->attrs))
		return CUDA_ERROR_INVALID_VALUE;
	const struct device *device = f_ctx->device;
	int blocks = cluster_blocks(f, config);
	if (!blocks || (blocks > 1 && device->model->cc_major < 9))
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	*clusters = config_blocks(device, f, config) * (int)device->sm_count / blocks;
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialClusterSize(int *size, CUfunction handle,
					    const CUlaunchConfig *config)
{
	FUNCTION_OR_RETURN(f, handle);
	if (!size || !config || (config->numAttrs && !config->attrs))
		return CUDA_ERROR_INVALID_VALUE;
	const struct device *device = f_ctx->device;
	if (device->model->cc_major < 9)
		return CUDA_ERROR_NOT_SUPPORTED;
	int room = config_blocks(device, f, config) * (int)device->sm_count;
	*size = MIN(room, CLUSTER_BLOCKS_PORTABLE);
	return CUDA_SUCCESS;
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction handle, int blocks,
						 int threads)
{
	FUNCTION_OR_RETURN(f, handle);
	if (!bytes || blocks <= 0 || threads <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	const struct sim_model *model = f_ctx->device->model;
	size_t reserved = (model->cc_major >= 8 ? 1024 : 0) + f->info->shared_bytes;
	size_t each = model->shared_per_sm / (size_t)blocks / 128 * 128;
	*bytes = MIN(each > reserved ? each - reserved : 0, model->shared_per_block_optin);
	return CUDA_SUCCESS;
}

/* The CUkernel forms of the same. */
CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel,
			      CUdevice dev)
{
	API_BEGIN_CONTEXT(ctx);
	CUfunction f = function_resolve(ctx, (CUfunction)kernel);
	if (!f || !value)
		return f ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	return attribute_get(ctx->device, f, attribute, value);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
			      CUdevice dev)
{
	API_BEGIN_CONTEXT(ctx);
	CUfunction f = function_resolve(ctx, (CUfunction)kernel);
	return f ? attribute_set(ctx->device, f, attribute, value) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
	return cuFuncSetCacheConfig((CUfunction)kernel, config);
}

CUresult cuKernelGetParamCount(CUkernel kernel, size_t *count)
{
	return cuFuncGetParamCount((CUfunction)kernel, count);
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size)
{
	return cuFuncGetParamInfo((CUfunction)kernel, index, offset, size);
}
