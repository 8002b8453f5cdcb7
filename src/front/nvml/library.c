#include "front/library.h"

#include "base/nvml_abi.h"
#include "proto/attach.h"

static nvmlReturn_t function_missing(void)
{
	return NVML_ERROR_FUNCTION_NOT_FOUND;
}

static nvmlReturn_t no_driver(void)
{
	return NVML_ERROR_LIBRARY_NOT_FOUND;
}

const struct front_library front_library = {
	.soname = "libnvidia-ml.so.1",
	.stem = "libnvidia-ml.so",
	.prefix = "nvml",
	.absent_name = "libnvidia-ml.so.1 (no driver behind the front)",
	.hidden_name = "libnvidia-ml.so.1 (no driver behind the front: a sandbox "
		       "hides " ATTACH_SLICE_DIR ")",
	.driver_env = ATTACH_ENV_NVML,
	.attach_kind = ATTACH_OBSERVE,
	.missing = (void (*)(void))function_missing,
	.no_driver = (void (*)(void))no_driver,
};
