/* Kernels. */
#include "front/cuda/charge/local.h"
#include "front/cuda/gate/gate.h"
#include "front/cuda/hooks.h"

/* Defines gated_NAME, as GATED_SELDOM (gate.h) does, for a kernel: an open gate is passed the short
 * way, and local memory is reserved. */
#define GATED(name, parameters, arguments, stream, what_, size_)                             \
	static __attribute__((noinline)) CUresult slowly_##name parameters                   \
	{                                                                                    \
		struct gate_call call_;                                                      \
		gate_begin(&call_, stream,                                                   \
			   (struct gate_work){.what = (uintptr_t)(what_), .size = (size_)}); \
		return gate_end(&call_, LOCAL_LAUNCH(what_, stream, real_##name arguments)); \
	}                                                                                    \
	CUresult gated_##name parameters                                                     \
	{                                                                                    \
		struct gate_local *local_ = gate_enter(stream);                              \
		CUresult result_;                                                            \
		if (GATE_UNLIKELY(!local_)) {                                                \
			result_ = slowly_##name arguments;                                   \
			/* Not as a jump: the arguments would be carried about for it. */    \
			__asm__ volatile("");                                                \
		} else {                                                                     \
			result_ = real_##name arguments;                                     \
			gate_leave(local_);                                                  \
		}                                                                            \
		return result_;                                                              \
	}

static inline uint64_t blocks(unsigned int x, unsigned int y, unsigned int z)
{
	return (uint64_t)x * y * z;
}

#define GRID                                                                                \
	CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, \
		unsigned int block_x, unsigned int block_y, unsigned int block_z,           \
		unsigned int shared_bytes, CUstream stream, void **params
#define GRID_GIVEN \
	function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params

GATED(cuLaunchKernel, (GRID, void **extra), (GRID_GIVEN, extra), gate_stream_of(stream), function,
      blocks(grid_x, grid_y, grid_z))
GATED(cuLaunchKernel_ptsz, (GRID, void **extra), (GRID_GIVEN, extra), gate_stream_ptsz(stream),
      function, blocks(grid_x, grid_y, grid_z))
GATED(cuLaunchCooperativeKernel, (GRID), (GRID_GIVEN), gate_stream_of(stream), function,
      blocks(grid_x, grid_y, grid_z))
GATED(cuLaunchCooperativeKernel_ptsz, (GRID), (GRID_GIVEN), gate_stream_ptsz(stream), function,
      blocks(grid_x, grid_y, grid_z))

/* Without a configuration the driver has the word. */
static CUstream config_stream(const CUlaunchConfig *config)
{
	return config ? config->hStream : NULL;
}

static uint64_t config_blocks(const CUlaunchConfig *config)
{
	return config ? blocks(config->gridDimX, config->gridDimY, config->gridDimZ) : 0;
}

GATED(cuLaunchKernelEx,
      (const CUlaunchConfig *config, CUfunction function, void **params, void **extra),
      (config, function, params, extra), gate_stream_of(config_stream(config)), function,
      config_blocks(config))
GATED(cuLaunchKernelEx_ptsz,
      (const CUlaunchConfig *config, CUfunction function, void **params, void **extra),
      (config, function, params, extra), gate_stream_ptsz(config_stream(config)), function,
      config_blocks(config))

/* The oldest forms. */
GATED(cuLaunch, (CUfunction function), (function), CU_STREAM_LEGACY, function, 1)
GATED(cuLaunchGrid, (CUfunction function, int width, int height), (function, width, height),
      CU_STREAM_LEGACY, function, blocks((unsigned int)width, (unsigned int)height, 1))
GATED(cuLaunchGridAsync, (CUfunction function, int width, int height, CUstream stream),
      (function, width, height, stream), gate_stream_of(stream), function,
      blocks((unsigned int)width, (unsigned int)height, 1))

/* Each in its stream's context. */
static CUresult launch_list(CUDA_LAUNCH_PARAMS *list, unsigned int count, unsigned int flags)
{
	struct local_need needs[LEDGER_GPUS_MAX] = {0};
	struct local_calls local;

	for (unsigned int i = 0; i < count && gate_is_watched(); i++) {
		CUcontext context = NULL;

		real_cuStreamGetCtx(list[i].hStream, &context);
		local_need_add(needs, list[i].function, NULL, context);
	}
	CUresult result = local_begin_all(&local, needs);
	if (result != CUDA_SUCCESS)
		return result;
	result = real_cuLaunchCooperativeKernelMultiDevice(list, count, flags);
	return local_end_all(&local, result, true);
}

/* The first that the gate is for; 0: there is none. */
static unsigned int launch_list_first(const CUDA_LAUNCH_PARAMS *list, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		if (gate_is_for_stream(gate_stream_of(list[i].hStream)))
			return i;
	return 0;
}

/* A kernel on several devices at once passes the gate as one part does; the others are counted in
 * their streams afterwards. */
CUresult gated_cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int count,
						    unsigned int flags)
{
	struct gate_call call;

	if (!list || !count)
		return real_cuLaunchCooperativeKernelMultiDevice(list, count, flags);
	unsigned int first = launch_list_first(list, count);
	const CUDA_LAUNCH_PARAMS *part = &list[first];
	gate_begin(
		&call, gate_stream_of(part->hStream),
		(struct gate_work){.what = (uintptr_t)part->function,
				   .size = blocks(part->gridDimX, part->gridDimY, part->gridDimZ)});
	CUresult result = launch_list(list, count, flags);
	for (unsigned int i = 0; result == CUDA_SUCCESS && i < count; i++)
		if (i != first)
			gate_count_more(&call, gate_stream_of(list[i].hStream));
	return gate_end(&call, result);
}
