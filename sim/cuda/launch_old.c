/* The first way of launching (CUDA 1 to 3). Shape and parameters are set on the function, one call
 * a time, and then it is launched on a grid of two dimensions. */
#include <string.h>

#include "cuda/context.h"
#include "cuda/function.h"

/* NOLINTBEGIN(bugprone-macro-parentheses): a name that is declared */
#define FUNCTION_OR_RETURN(f, handle)                     \
	API_BEGIN_CONTEXT(f##_ctx);                       \
	CUfunction f = function_resolve(f##_ctx, handle); \
	do {                                              \
		if (!f)                                   \
			return CUDA_ERROR_INVALID_HANDLE; \
	} while (0)
/* NOLINTEND(bugprone-macro-parentheses) */

CUresult cuFuncSetBlockShape(CUfunction handle, int x, int y, int z)
{
	FUNCTION_OR_RETURN(f, handle);
	if (x <= 0 || y <= 0 || z <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	f->block[0] = x;
	f->block[1] = y;
	f->block[2] = z;
	return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedSize(CUfunction handle, unsigned int bytes)
{
	FUNCTION_OR_RETURN(f, handle);
	f->shared_size = bytes;
	return CUDA_SUCCESS;
}

CUresult cuParamSetSize(CUfunction handle, unsigned int bytes)
{
	FUNCTION_OR_RETURN(f, handle);
	if (bytes > sizeof(f->params))
		return CUDA_ERROR_INVALID_VALUE;
	f->param_size = bytes;
	return CUDA_SUCCESS;
}

CUresult cuParamSetv(CUfunction handle, int offset, void *value, unsigned int bytes)
{
	FUNCTION_OR_RETURN(f, handle);
	if (!value || offset < 0 || bytes > sizeof(f->params) ||
	    (size_t)offset > sizeof(f->params) - bytes)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(f->params + offset, value, bytes);
	return CUDA_SUCCESS;
}

CUresult cuParamSeti(CUfunction f, int offset, unsigned int value)
{
	return cuParamSetv(f, offset, &value, sizeof(value));
}

CUresult cuParamSetf(CUfunction f, int offset, float value)
{
	return cuParamSetv(f, offset, &value, sizeof(value));
}

CUresult cuLaunchGridAsync(CUfunction handle, int width, int height, CUstream stream)
{
	FUNCTION_OR_RETURN(f, handle);
	size_t size = f->param_size;
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, f->params, CU_LAUNCH_PARAM_BUFFER_SIZE,
			 &size, CU_LAUNCH_PARAM_END};
	if (width <= 0 || height <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	return cuLaunchKernel(f, (unsigned int)width, (unsigned int)height, 1,
			      (unsigned int)f->block[0], (unsigned int)f->block[1],
			      (unsigned int)f->block[2], f->shared_size, stream, NULL, extra);
}

CUresult cuLaunchGrid(CUfunction f, int width, int height)
{
	return cuLaunchGridAsync(f, width, height, NULL);
}

CUresult cuLaunch(CUfunction f)
{
	return cuLaunchGridAsync(f, 1, 1, NULL);
}
