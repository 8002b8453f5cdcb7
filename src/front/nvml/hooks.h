/* The hook table of the NVML front; see cuda/hooks.h. */
#pragma once

#include "base/nvml_abi.h"
#include "base/nvml_functions.h"

/* Newer than base/nvml_abi.h; the structure is only passed on. */
struct nvmlUUID_st;
nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const struct nvmlUUID_st *uuid, nvmlDevice_t *device);

#define NVML_HOOKS(X)                                   \
	X(nvmlDeviceGetAccountingPids)                  \
	X(nvmlDeviceGetAccountingStats)                 \
	X(nvmlDeviceGetComputeRunningProcesses)         \
	X(nvmlDeviceGetComputeRunningProcesses_v2)      \
	X(nvmlDeviceGetComputeRunningProcesses_v3)      \
	X(nvmlDeviceGetConfComputeProtectedMemoryUsage) \
	X(nvmlDeviceGetCount)                           \
	X(nvmlDeviceGetCount_v2)                        \
	X(nvmlDeviceGetEncoderSessions)                 \
	X(nvmlDeviceGetEncoderStats)                    \
	X(nvmlDeviceGetFBCSessions)                     \
	X(nvmlDeviceGetFBCStats)                        \
	X(nvmlDeviceGetGpuInstanceById)                 \
	X(nvmlDeviceGetGpuInstanceRemainingCapacity)    \
	X(nvmlDeviceGetGpuInstances)                    \
	X(nvmlDeviceGetGraphicsRunningProcesses)        \
	X(nvmlDeviceGetGraphicsRunningProcesses_v2)     \
	X(nvmlDeviceGetGraphicsRunningProcesses_v3)     \
	X(nvmlDeviceGetHandleByIndex)                   \
	X(nvmlDeviceGetHandleByIndex_v2)                \
	X(nvmlDeviceGetHandleByPciBusId)                \
	X(nvmlDeviceGetHandleByPciBusId_v2)             \
	X(nvmlDeviceGetHandleBySerial)                  \
	X(nvmlDeviceGetHandleByUUID)                    \
	X(nvmlDeviceGetHandleByUUIDV)                   \
	X(nvmlDeviceGetIndex)                           \
	X(nvmlDeviceGetMPSComputeRunningProcesses)      \
	X(nvmlDeviceGetMPSComputeRunningProcesses_v2)   \
	X(nvmlDeviceGetMPSComputeRunningProcesses_v3)   \
	X(nvmlDeviceGetMemoryInfo)                      \
	X(nvmlDeviceGetMemoryInfo_v2)                   \
	X(nvmlDeviceGetMigDeviceHandleByIndex)          \
	X(nvmlDeviceGetProcessUtilization)              \
	X(nvmlDeviceGetProcessesUtilizationInfo)        \
	X(nvmlDeviceGetRunningProcessDetailList)        \
	X(nvmlDeviceGetSamples)                         \
	X(nvmlDeviceGetTopologyNearestGpus)             \
	X(nvmlDeviceGetUtilizationRates)                \
	X(nvmlErrorString)                              \
	X(nvmlEventSetWait)                             \
	X(nvmlEventSetWait_v2)                          \
	X(nvmlGetBlacklistDeviceCount)                  \
	X(nvmlGetBlacklistDeviceInfoByIndex)            \
	X(nvmlGetExcludedDeviceCount)                   \
	X(nvmlGetExcludedDeviceInfoByIndex)             \
	X(nvmlGpmMigSampleGet)                          \
	X(nvmlGpmSampleGet)                             \
	X(nvmlInternalGetExportTable)                   \
	X(nvmlSystemGetTopologyGpuSet)                  \
	X(nvmlUnitGetDevices)

/* Functions of the driver that hooks call, beside their own. */
#define NVML_HELPERS(H)                                 \
	H(nvmlDeviceGetDeviceHandleFromMigDeviceHandle) \
	H(nvmlDeviceGetGpuInstanceId)                   \
	H(nvmlDeviceGetUUID)                            \
	H(nvmlDeviceIsMigDeviceHandle)                  \
	H(nvmlGpuInstanceGetInfo)

#define NVML_REAL(name) extern __attribute__((visibility("hidden"))) __typeof__(name) *real_##name;
#define NVML_HOOK(name) __attribute__((visibility("hidden"))) __typeof__(name) hook_##name;
NVML_HOOKS(NVML_REAL)
NVML_HELPERS(NVML_REAL)
NVML_HOOKS(NVML_HOOK)
