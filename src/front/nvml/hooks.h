/* The hook table of the NVML front; see cuda/hooks.h. */
#pragma once

#include "base/nvml_abi.h"

#define NVML_HOOKS(X)

#define NVML_HOOK_DECLARE(name)                                                     \
	extern __typeof__(name) *real_##name __attribute__((visibility("hidden"))); \
	__typeof__(name) hook_##name;
