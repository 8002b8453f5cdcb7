/* The hook table: every exported function that does not go straight to the driver, one line each.
 * hook_X stands for it, real_X calls the driver's. generate.py reads this list too. */
#pragma once

#include "base/cuda_abi.h"

#define CUDA_HOOKS(X)       \
	X(cuGetProcAddress) \
	X(cuGetProcAddress_v2)

#define CUDA_HOOK_DECLARE(name)                                                     \
	extern __typeof__(name) *real_##name __attribute__((visibility("hidden"))); \
	__typeof__(name) hook_##name;
