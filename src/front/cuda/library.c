#include "front/library.h"

#include "base/cuda_abi.h"
#include "proto/attach.h"

static CUresult function_missing(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult no_driver(void)
{
	return CUDA_ERROR_NO_DEVICE;
}

const struct front_library front_library = {
	.soname = "libcuda.so.1",
	.stem = "libcuda.so",
	.prefix = "cu",
	.absent_name = "libcuda.so.1 (no driver behind the front)",
	.hidden_name = "libcuda.so.1 (no driver behind the front: a sandbox "
		       "hides " ATTACH_SLICE_DIR ")",
	.driver_env = ATTACH_ENV_CUDA,
	.attach_kind = ATTACH_WORKLOAD,
	.missing = (void (*)(void))function_missing,
	.no_driver = (void (*)(void))no_driver,
};
