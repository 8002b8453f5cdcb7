/* The hook table: every exported function that does not go straight to the driver, one line each.
 * hook_X stands for it, real_X calls the driver's. generate.py reads this list too. */
#pragma once

#include <stdbool.h>

#include "base/cuda_abi.h"

/* Hooked, but not in base/cuda_abi.h: what they are given is only passed on. */
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;
CUresult cuGLCtxCreate(CUcontext *context, unsigned int flags, CUdevice device);
CUresult cuGLCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);
CUresult cuGreenCtxCreate(CUgreenCtx *context, CUdevResourceDesc resources, CUdevice device,
			  unsigned int flags);
CUresult cuGreenCtxDestroy(CUgreenCtx context);
CUresult cuVDPAUCtxCreate(CUcontext *context, unsigned int flags, CUdevice device,
			  uint32_t vdp_device, void *get_proc_address);
CUresult cuVDPAUCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device,
			     uint32_t vdp_device, void *get_proc_address);

#define CUDA_HOOKS(X)                         \
	X(cuArray3DCreate)                    \
	X(cuArray3DCreate_v2)                 \
	X(cuArrayCreate)                      \
	X(cuArrayCreate_v2)                   \
	X(cuArrayDestroy)                     \
	X(cuCtxAttach)                        \
	X(cuCtxCreate)                        \
	X(cuCtxCreate_v2)                     \
	X(cuCtxCreate_v3)                     \
	X(cuCtxCreate_v4)                     \
	X(cuCtxDestroy)                       \
	X(cuCtxDestroy_v2)                    \
	X(cuCtxDetach)                        \
	X(cuCtxPopCurrent)                    \
	X(cuCtxPopCurrent_v2)                 \
	X(cuCtxPushCurrent)                   \
	X(cuCtxPushCurrent_v2)                \
	X(cuCtxSetCurrent)                    \
	X(cuCtxSetLimit)                      \
	X(cuCtxSynchronize)                   \
	X(cuCtxSynchronize_v2)                \
	X(cuDeviceGraphMemTrim)               \
	X(cuDevicePrimaryCtxRelease)          \
	X(cuDevicePrimaryCtxRelease_v2)       \
	X(cuDevicePrimaryCtxReset)            \
	X(cuDevicePrimaryCtxReset_v2)         \
	X(cuDevicePrimaryCtxRetain)           \
	X(cuDeviceTotalMem)                   \
	X(cuDeviceTotalMem_v2)                \
	X(cuEventSynchronize)                 \
	X(cuGLCtxCreate)                      \
	X(cuGLCtxCreate_v2)                   \
	X(cuGetProcAddress)                   \
	X(cuGetProcAddress_v2)                \
	X(cuGraphAddMemAllocNode)             \
	X(cuGraphAddNode)                     \
	X(cuGraphAddNode_v2)                  \
	X(cuGraphAddNode_v3)                  \
	X(cuGraphDestroy)                     \
	X(cuGraphExecChildGraphNodeSetParams) \
	X(cuGraphExecDestroy)                 \
	X(cuGraphExecKernelNodeSetParams)     \
	X(cuGraphExecKernelNodeSetParams_v2)  \
	X(cuGraphExecNodeSetParams)           \
	X(cuGraphExecUpdate)                  \
	X(cuGraphExecUpdate_v2)               \
	X(cuGraphInstantiate)                 \
	X(cuGraphInstantiateWithFlags)        \
	X(cuGraphInstantiateWithParams)       \
	X(cuGraphInstantiateWithParams_ptsz)  \
	X(cuGraphInstantiate_v2)              \
	X(cuGraphUpload)                      \
	X(cuGraphUpload_ptsz)                 \
	X(cuGreenCtxCreate)                   \
	X(cuGreenCtxDestroy)                  \
	X(cuImportExternalMemory)             \
	X(cuInit)                             \
	X(cuIpcCloseMemHandle)                \
	X(cuIpcGetMemHandle)                  \
	X(cuIpcOpenMemHandle)                 \
	X(cuIpcOpenMemHandle_v2)              \
	X(cuKernelGetAttribute)               \
	X(cuKernelGetFunction)                \
	X(cuKernelGetParamCount)              \
	X(cuKernelGetParamInfo)               \
	X(cuKernelSetAttribute)               \
	X(cuKernelSetCacheConfig)             \
	X(cuLaunchHostFunc)                   \
	X(cuLaunchHostFunc_ptsz)              \
	X(cuLaunchHostFunc_v2)                \
	X(cuLaunchHostFunc_v2_ptsz)           \
	X(cuLibraryEnumerateKernels)          \
	X(cuLibraryGetGlobal)                 \
	X(cuLibraryGetKernel)                 \
	X(cuLibraryGetManaged)                \
	X(cuLibraryGetModule)                 \
	X(cuLibraryGetUnifiedFunction)        \
	X(cuLibraryLoadData)                  \
	X(cuLibraryLoadFromFile)              \
	X(cuLibraryUnload)                    \
	X(cuLogicalEndpointBindAddr)          \
	X(cuLogicalEndpointBindMem)           \
	X(cuMemAlloc)                         \
	X(cuMemAllocAsync)                    \
	X(cuMemAllocAsync_ptsz)               \
	X(cuMemAllocFromPoolAsync)            \
	X(cuMemAllocFromPoolAsync_ptsz)       \
	X(cuMemAllocManaged)                  \
	X(cuMemAllocPitch)                    \
	X(cuMemAllocPitch_v2)                 \
	X(cuMemAlloc_v2)                      \
	X(cuMemCreate)                        \
	X(cuMemExportToShareableHandle)       \
	X(cuMemFree)                          \
	X(cuMemFreeAsync)                     \
	X(cuMemFreeAsync_ptsz)                \
	X(cuMemFree_v2)                       \
	X(cuMemFreeHost)                      \
	X(cuMemGetDefaultMemPool)             \
	X(cuMemGetHandleForAddressRange)      \
	X(cuMemGetInfo)                       \
	X(cuMemGetInfo_v2)                    \
	X(cuMemGetMemPool)                    \
	X(cuMemHostUnregister)                \
	X(cuMemImportFromShareableHandle)     \
	X(cuMemMap)                           \
	X(cuMemMapArrayAsync)                 \
	X(cuMemMapArrayAsync_ptsz)            \
	X(cuMemPoolCreate)                    \
	X(cuMemPoolDestroy)                   \
	X(cuMemPoolExportToShareableHandle)   \
	X(cuMemPoolImportFromShareableHandle) \
	X(cuMemPoolTrimTo)                    \
	X(cuMemRelease)                       \
	X(cuMemRetainAllocationHandle)        \
	X(cuMemUnmap)                         \
	X(cuMipmappedArrayCreate)             \
	X(cuMipmappedArrayDestroy)            \
	X(cuModuleEnumerateFunctions)         \
	X(cuModuleGetFunction)                \
	X(cuModuleLoad)                       \
	X(cuModuleLoadData)                   \
	X(cuModuleLoadDataEx)                 \
	X(cuModuleLoadFatBinary)              \
	X(cuModuleUnload)                     \
	X(cuMulticastBindAddr)                \
	X(cuMulticastBindAddr_v2)             \
	X(cuMulticastBindMem)                 \
	X(cuMulticastBindMem_v2)              \
	X(cuStreamAddCallback)                \
	X(cuStreamAddCallback_ptsz)           \
	X(cuStreamBeginCapture)               \
	X(cuStreamBeginCaptureToCig)          \
	X(cuStreamBeginCaptureToCig_ptsz)     \
	X(cuStreamBeginCaptureToGraph)        \
	X(cuStreamBeginCaptureToGraph_ptsz)   \
	X(cuStreamBeginCapture_ptsz)          \
	X(cuStreamBeginCapture_v2)            \
	X(cuStreamBeginCapture_v2_ptsz)       \
	X(cuStreamBeginRecaptureToGraph)      \
	X(cuStreamBeginRecaptureToGraph_ptsz) \
	X(cuStreamCreate)                     \
	X(cuStreamCreateWithPriority)         \
	X(cuStreamDestroy)                    \
	X(cuStreamDestroy_v2)                 \
	X(cuStreamEndCapture)                 \
	X(cuStreamEndCaptureToCig)            \
	X(cuStreamEndCaptureToCig_ptsz)       \
	X(cuStreamEndCapture_ptsz)            \
	X(cuStreamSynchronize)                \
	X(cuStreamSynchronize_ptsz)           \
	X(cuVDPAUCtxCreate)                   \
	X(cuVDPAUCtxCreate_v2)

/* Hooked while the session's gate is not off (gate.h): gated_X stands for it then. */
#define CUDA_GATED(G)                           \
	G(cuLaunch)                             \
	G(cuLaunchCooperativeKernelMultiDevice) \
	G(cuLaunchGrid)                         \
	G(cuLaunchGridAsync)                    \
	G(cuMemcpy)                             \
	G(cuMemcpy2D)                           \
	G(cuMemcpy2DAsync)                      \
	G(cuMemcpy2DAsync_v2)                   \
	G(cuMemcpy2DAsync_v2_ptsz)              \
	G(cuMemcpy2DUnaligned)                  \
	G(cuMemcpy2DUnaligned_v2)               \
	G(cuMemcpy2DUnaligned_v2_ptds)          \
	G(cuMemcpy2D_v2)                        \
	G(cuMemcpy2D_v2_ptds)                   \
	G(cuMemcpy3D)                           \
	G(cuMemcpy3DAsync)                      \
	G(cuMemcpy3DAsync_v2)                   \
	G(cuMemcpy3DAsync_v2_ptsz)              \
	G(cuMemcpy3DBatchAsync)                 \
	G(cuMemcpy3DBatchAsync_ptsz)            \
	G(cuMemcpy3DBatchAsync_v2)              \
	G(cuMemcpy3DBatchAsync_v2_ptsz)         \
	G(cuMemcpy3DPeer)                       \
	G(cuMemcpy3DPeerAsync)                  \
	G(cuMemcpy3DPeerAsync_ptsz)             \
	G(cuMemcpy3DPeer_ptds)                  \
	G(cuMemcpy3DWithAttributesAsync)        \
	G(cuMemcpy3DWithAttributesAsync_ptsz)   \
	G(cuMemcpy3D_v2)                        \
	G(cuMemcpy3D_v2_ptds)                   \
	G(cuMemcpyAsync)                        \
	G(cuMemcpyAsync_ptsz)                   \
	G(cuMemcpyAtoA)                         \
	G(cuMemcpyAtoA_v2)                      \
	G(cuMemcpyAtoA_v2_ptds)                 \
	G(cuMemcpyAtoD)                         \
	G(cuMemcpyAtoD_v2)                      \
	G(cuMemcpyAtoD_v2_ptds)                 \
	G(cuMemcpyAtoH)                         \
	G(cuMemcpyAtoHAsync)                    \
	G(cuMemcpyAtoHAsync_v2)                 \
	G(cuMemcpyAtoHAsync_v2_ptsz)            \
	G(cuMemcpyAtoH_v2)                      \
	G(cuMemcpyAtoH_v2_ptds)                 \
	G(cuMemcpyBatchAsync)                   \
	G(cuMemcpyBatchAsync_ptsz)              \
	G(cuMemcpyBatchAsync_v2)                \
	G(cuMemcpyBatchAsync_v2_ptsz)           \
	G(cuMemcpyDtoA)                         \
	G(cuMemcpyDtoA_v2)                      \
	G(cuMemcpyDtoA_v2_ptds)                 \
	G(cuMemcpyDtoD)                         \
	G(cuMemcpyDtoDAsync)                    \
	G(cuMemcpyDtoDAsync_v2)                 \
	G(cuMemcpyDtoDAsync_v2_ptsz)            \
	G(cuMemcpyDtoD_v2)                      \
	G(cuMemcpyDtoD_v2_ptds)                 \
	G(cuMemcpyDtoH)                         \
	G(cuMemcpyDtoHAsync)                    \
	G(cuMemcpyDtoHAsync_v2)                 \
	G(cuMemcpyDtoHAsync_v2_ptsz)            \
	G(cuMemcpyDtoH_v2)                      \
	G(cuMemcpyDtoH_v2_ptds)                 \
	G(cuMemcpyHtoA)                         \
	G(cuMemcpyHtoAAsync)                    \
	G(cuMemcpyHtoAAsync_v2)                 \
	G(cuMemcpyHtoAAsync_v2_ptsz)            \
	G(cuMemcpyHtoA_v2)                      \
	G(cuMemcpyHtoA_v2_ptds)                 \
	G(cuMemcpyHtoD)                         \
	G(cuMemcpyHtoDAsync)                    \
	G(cuMemcpyHtoDAsync_v2)                 \
	G(cuMemcpyHtoDAsync_v2_ptsz)            \
	G(cuMemcpyHtoD_v2)                      \
	G(cuMemcpyHtoD_v2_ptds)                 \
	G(cuMemcpyPeer)                         \
	G(cuMemcpyPeerAsync)                    \
	G(cuMemcpyPeerAsync_ptsz)               \
	G(cuMemcpyPeer_ptds)                    \
	G(cuMemcpyWithAttributesAsync)          \
	G(cuMemcpyWithAttributesAsync_ptsz)     \
	G(cuMemcpy_ptds)                        \
	G(cuMemsetD16)                          \
	G(cuMemsetD16Async)                     \
	G(cuMemsetD16Async_ptsz)                \
	G(cuMemsetD16_v2)                       \
	G(cuMemsetD16_v2_ptds)                  \
	G(cuMemsetD2D16)                        \
	G(cuMemsetD2D16Async)                   \
	G(cuMemsetD2D16Async_ptsz)              \
	G(cuMemsetD2D16_v2)                     \
	G(cuMemsetD2D16_v2_ptds)                \
	G(cuMemsetD2D32)                        \
	G(cuMemsetD2D32Async)                   \
	G(cuMemsetD2D32Async_ptsz)              \
	G(cuMemsetD2D32_v2)                     \
	G(cuMemsetD2D32_v2_ptds)                \
	G(cuMemsetD2D8)                         \
	G(cuMemsetD2D8Async)                    \
	G(cuMemsetD2D8Async_ptsz)               \
	G(cuMemsetD2D8_v2)                      \
	G(cuMemsetD2D8_v2_ptds)                 \
	G(cuMemsetD32)                          \
	G(cuMemsetD32Async)                     \
	G(cuMemsetD32Async_ptsz)                \
	G(cuMemsetD32_v2)                       \
	G(cuMemsetD32_v2_ptds)                  \
	G(cuMemsetD8)                           \
	G(cuMemsetD8Async)                      \
	G(cuMemsetD8Async_ptsz)                 \
	G(cuMemsetD8_v2)                        \
	G(cuMemsetD8_v2_ptds)

/* The same for launches, whose entries pass an open gate by themselves. */
#define CUDA_LAUNCHED(L)                  \
	L(cuGraphLaunch)                  \
	L(cuGraphLaunch_ptsz)             \
	L(cuLaunchCooperativeKernel)      \
	L(cuLaunchCooperativeKernel_ptsz) \
	L(cuLaunchKernel)                 \
	L(cuLaunchKernelEx)               \
	L(cuLaunchKernelEx_ptsz)          \
	L(cuLaunchKernel_ptsz)

/* Functions of the driver that hooks call, beside their own. */
#define CUDA_HELPERS(H)                  \
	H(cuCtxGetCurrent)               \
	H(cuCtxGetDevice)                \
	H(cuCtxGetLimit)                 \
	H(cuDeviceGetAttribute)          \
	H(cuDeviceGetCount)              \
	H(cuDeviceGetDefaultMemPool)     \
	H(cuDeviceGetGraphMemAttribute)  \
	H(cuDeviceGetMemPool)            \
	H(cuDeviceGetUuid)               \
	H(cuDeviceGetUuid_v2)            \
	H(cuDevicePrimaryCtxGetState)    \
	H(cuEventCreate)                 \
	H(cuEventDestroy_v2)             \
	H(cuEventElapsedTime)            \
	H(cuEventQuery)                  \
	H(cuEventRecord)                 \
	H(cuFuncGetAttribute)            \
	H(cuGraphChildGraphNodeGetGraph) \
	H(cuGraphGetNodes)               \
	H(cuGraphKernelNodeGetParams)    \
	H(cuGraphKernelNodeGetParams_v2) \
	H(cuGraphMemAllocNodeGetParams)  \
	H(cuGraphNodeGetType)            \
	H(cuKernelGetLibrary)            \
	H(cuLibraryGetKernelCount)       \
	H(cuMemGetAddressRange_v2)       \
	H(cuMemGetAllocationGranularity) \
	H(cuMemHostGetDevicePointer_v2)  \
	H(cuMemHostRegister_v2)          \
	H(cuMemPoolGetAttribute)         \
	H(cuModuleGetFunctionCount)      \
	H(cuModuleGetLoadingMode)        \
	H(cuPointerGetAttribute)         \
	H(cuStreamGetCtx)                \
	H(cuStreamIsCapturing)           \
	H(cuStreamIsCapturing_ptsz)      \
	H(cuStreamQuery)                 \
	H(cuStreamWriteValue32)          \
	H(cuStreamWriteValue32_v2)       \
	H(cuThreadExchangeStreamCaptureMode)

#define CUDA_REAL(name) extern __attribute__((visibility("hidden"))) __typeof__(name) *real_##name;
#define CUDA_HOOK(name) __typeof__(name) hook_##name;
#define CUDA_GATE(name) __typeof__(name) gated_##name;
CUDA_HOOKS(CUDA_REAL)
CUDA_HELPERS(CUDA_REAL)
CUDA_HOOKS(CUDA_HOOK)
CUDA_GATED(CUDA_REAL)
CUDA_GATED(CUDA_GATE)
CUDA_LAUNCHED(CUDA_REAL)
CUDA_LAUNCHED(CUDA_GATE)
