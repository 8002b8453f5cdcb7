/* The null driver's launches beside cuLaunchKernel. Each says what reached it, as that does, and
 * first calls what it was told to: tests look at the stack from in there. */
#include "base/cuda_abi.h"

extern __attribute__((visibility("default"))) CUresult cuNullInLaunch(void (*call)(void));

static void (*in_launch)(void);

CUresult cuNullInLaunch(void (*call)(void))
{
	in_launch = call;
	return CUDA_SUCCESS;
}

static CUresult reached(uintptr_t sum)
{
	if (in_launch)
		in_launch();
	return (CUresult)sum;
}

#define GRID                                                                                \
	CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, \
		unsigned int block_x, unsigned int block_y, unsigned int block_z,           \
		unsigned int shared_bytes, CUstream stream, void **params
#define GRID_SUM                                                                     \
	grid_x + 2 * grid_y + 3 * grid_z + 4 * block_x + 5 * block_y + 6 * block_z + \
		7 * shared_bytes + (uintptr_t)function + 2 * (uintptr_t)stream +     \
		3 * (uintptr_t)params

CUresult cuLaunchKernel_ptsz(GRID, void **extra)
{
	return reached(GRID_SUM + 4 * (uintptr_t)extra);
}

CUresult cuLaunchCooperativeKernel(GRID)
{
	return reached(GRID_SUM);
}

CUresult cuLaunchCooperativeKernel_ptsz(GRID)
{
	return reached(GRID_SUM);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params,
			  void **extra)
{
	return reached((config ? config->gridDimX + (uintptr_t)config->hStream : 0) +
		       2 * (uintptr_t)function + 3 * (uintptr_t)params + 4 * (uintptr_t)extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params,
			       void **extra)
{
	return cuLaunchKernelEx(config, function, params, extra);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
	return reached((uintptr_t)exec + 2 * (uintptr_t)stream);
}
