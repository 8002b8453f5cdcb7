/* Parts of the null driver for other interposers alone: functions that they look for when they
 * start, and do without none of. */
#include "base/cuda_abi.h"

CUresult cuGetErrorString(CUresult error, const char **text)
{
	*text = "an error of the null driver";
	return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
	*name = "CUDA_ERROR";
	return CUDA_SUCCESS;
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size)
{
	return CUDA_SUCCESS;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
	return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size)
{
	return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
	return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
	return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size)
{
	return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
	return CUDA_SUCCESS;
}
