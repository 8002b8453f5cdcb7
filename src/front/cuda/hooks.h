/* The hook table: every exported function that does not go straight to the driver, one line each.
 * hook_X stands for it, real_X calls the driver's. generate.py reads this list too. */
#pragma once

#include "base/cuda_abi.h"

#define CUDA_HOOKS(X)                   \
	X(cuCtxAttach)                  \
	X(cuCtxCreate)                  \
	X(cuCtxCreate_v2)               \
	X(cuCtxCreate_v3)               \
	X(cuCtxCreate_v4)               \
	X(cuCtxDestroy)                 \
	X(cuCtxDestroy_v2)              \
	X(cuCtxDetach)                  \
	X(cuDevicePrimaryCtxRelease)    \
	X(cuDevicePrimaryCtxRelease_v2) \
	X(cuDevicePrimaryCtxReset)      \
	X(cuDevicePrimaryCtxReset_v2)   \
	X(cuDevicePrimaryCtxRetain)     \
	X(cuDeviceTotalMem)             \
	X(cuDeviceTotalMem_v2)          \
	X(cuGetProcAddress)             \
	X(cuGetProcAddress_v2)          \
	X(cuInit)                       \
	X(cuMemAlloc)                   \
	X(cuMemAllocManaged)            \
	X(cuMemAllocPitch)              \
	X(cuMemAllocPitch_v2)           \
	X(cuMemAlloc_v2)                \
	X(cuMemFree)                    \
	X(cuMemFree_v2)                 \
	X(cuMemGetInfo)                 \
	X(cuMemGetInfo_v2)

/* Functions of the driver that hooks call, beside their own. */
#define CUDA_HELPERS(H)       \
	H(cuCtxGetCurrent)    \
	H(cuCtxGetDevice)     \
	H(cuDeviceGetUuid)    \
	H(cuDeviceGetUuid_v2) \
	H(cuDevicePrimaryCtxGetState)

#define CUDA_REAL(name) extern __attribute__((visibility("hidden"))) __typeof__(name) *real_##name;
#define CUDA_HOOK(name) __typeof__(name) hook_##name;
CUDA_HOOKS(CUDA_REAL)
CUDA_HELPERS(CUDA_REAL)
CUDA_HOOKS(CUDA_HOOK)
