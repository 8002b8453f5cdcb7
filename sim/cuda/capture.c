#include "cuda/capture.h"

#include "cuda/stream.h"

bool capture_takes(CUstream stream, struct op *op, CUresult *ret)
{
	return false;
}

bool capture_takes_record(CUstream stream, struct op *op, unsigned int flags, CUresult *ret)
{
	return false;
}

CUresult capture_check_sync(CUstream stream)
{
	return CUDA_SUCCESS;
}

void capture_abandon(CUstream stream)
{
}

bool capture_takes_alloc(CUstream stream, CUmemoryPool pool, size_t bytes, CUdeviceptr *address,
			 CUresult *ret)
{
	return false;
}
