/* Prototypes of the CUDA driver's entry points, by their exported names; see cuda_abi.h. A hook's
 * or a table's pointer type is __typeof__(cuMemAlloc_v2) *. They are exported where they are
 * defined.
 *
 * CUDA_API_PTSZ(name) and CUDA_API_PTDS(name) declare name and its variant of the same type whose
 * NULL stream is the thread's own (name_ptsz, name_ptds). */
#pragma once

#define CUDA_API(name, args) __attribute__((visibility("default"))) CUresult name args
#define CUDA_API_PTSZ(name, args) \
	CUDA_API(name, args);     \
	CUDA_API(name##_ptsz, args)
#define CUDA_API_PTDS(name, args) \
	CUDA_API(name, args);     \
	CUDA_API(name##_ptds, args)

/* Initialisation, errors, entry points. */
CUDA_API(cuDriverGetVersion, (int *));
CUDA_API(cuGetErrorName, (CUresult, const char **));
CUDA_API(cuGetErrorString, (CUresult, const char **));
CUDA_API(cuGetExportTable, (const void **, const CUuuid *));
CUDA_API(cuGetProcAddress, (const char *, void **, int, cuuint64_t));
CUDA_API(cuGetProcAddress_v2,
	 (const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *));
CUDA_API(cuInit, (unsigned int));
CUDA_API(cuProfilerStart, (void));
CUDA_API(cuProfilerStop, (void));

/* Devices. */
CUDA_API(cuDeviceCanAccessPeer, (int *, CUdevice, CUdevice));
CUDA_API(cuDeviceComputeCapability, (int *, int *, CUdevice));
CUDA_API(cuDeviceGet, (CUdevice *, int));
CUDA_API(cuDeviceGetAttribute, (int *, CUdevice_attribute, CUdevice));
CUDA_API(cuDeviceGetByPCIBusId, (CUdevice *, const char *));
CUDA_API(cuDeviceGetCount, (int *));
CUDA_API(cuDeviceGetExecAffinitySupport, (int *, CUexecAffinityType, CUdevice));
CUDA_API(cuDeviceGetLuid, (char *, unsigned int *, CUdevice));
CUDA_API(cuDeviceGetName, (char *, int, CUdevice));
CUDA_API(cuDeviceGetP2PAttribute, (int *, CUdevice_P2PAttribute, CUdevice, CUdevice));
CUDA_API(cuDeviceGetPCIBusId, (char *, int, CUdevice));
CUDA_API(cuDeviceGetProperties, (CUdevprop *, CUdevice));
CUDA_API(cuDeviceGetTexture1DLinearMaxWidth, (size_t *, CUarray_format, unsigned int, CUdevice));
CUDA_API(cuDeviceGetUuid, (CUuuid *, CUdevice));
CUDA_API(cuDeviceGetUuid_v2, (CUuuid *, CUdevice));
CUDA_API(cuDeviceTotalMem, (unsigned int *, CUdevice));
CUDA_API(cuDeviceTotalMem_v2, (size_t *, CUdevice));

/* Contexts. */
CUDA_API(cuCtxAttach, (CUcontext *, unsigned int));
CUDA_API(cuCtxCreate, (CUcontext *, unsigned int, CUdevice));
CUDA_API(cuCtxCreate_v2, (CUcontext *, unsigned int, CUdevice));
CUDA_API(cuCtxCreate_v3, (CUcontext *, CUexecAffinityParam *, int, unsigned int, CUdevice));
CUDA_API(cuCtxCreate_v4, (CUcontext *, CUctxCreateParams *, unsigned int, CUdevice));
CUDA_API(cuCtxDestroy, (CUcontext));
CUDA_API(cuCtxDestroy_v2, (CUcontext));
CUDA_API(cuCtxDetach, (CUcontext));
CUDA_API(cuCtxDisablePeerAccess, (CUcontext));
CUDA_API(cuCtxEnablePeerAccess, (CUcontext, unsigned int));
CUDA_API(cuCtxGetApiVersion, (CUcontext, unsigned int *));
CUDA_API(cuCtxGetCacheConfig, (CUfunc_cache *));
CUDA_API(cuCtxGetCurrent, (CUcontext *));
CUDA_API(cuCtxGetDevice, (CUdevice *));
CUDA_API(cuCtxGetDevice_v2, (CUdevice *, CUcontext));
CUDA_API(cuCtxGetExecAffinity, (CUexecAffinityParam *, CUexecAffinityType));
CUDA_API(cuCtxGetFlags, (unsigned int *));
CUDA_API(cuCtxGetId, (CUcontext, unsigned long long *));
CUDA_API(cuCtxGetLimit, (size_t *, CUlimit));
CUDA_API(cuCtxGetSharedMemConfig, (CUsharedconfig *));
CUDA_API(cuCtxGetStreamPriorityRange, (int *, int *));
CUDA_API(cuCtxPopCurrent, (CUcontext *));
CUDA_API(cuCtxPopCurrent_v2, (CUcontext *));
CUDA_API(cuCtxPushCurrent, (CUcontext));
CUDA_API(cuCtxPushCurrent_v2, (CUcontext));
CUDA_API(cuCtxRecordEvent, (CUcontext, CUevent));
CUDA_API(cuCtxResetPersistingL2Cache, (void));
CUDA_API(cuCtxSetCacheConfig, (CUfunc_cache));
CUDA_API(cuCtxSetCurrent, (CUcontext));
CUDA_API(cuCtxSetFlags, (unsigned int));
CUDA_API(cuCtxSetLimit, (CUlimit, size_t));
CUDA_API(cuCtxSetSharedMemConfig, (CUsharedconfig));
CUDA_API(cuCtxSynchronize, (void));
CUDA_API(cuCtxSynchronize_v2, (CUcontext));
CUDA_API(cuCtxWaitEvent, (CUcontext, CUevent));
CUDA_API(cuDevicePrimaryCtxGetState, (CUdevice, unsigned int *, int *));
CUDA_API(cuDevicePrimaryCtxRelease, (CUdevice));
CUDA_API(cuDevicePrimaryCtxRelease_v2, (CUdevice));
CUDA_API(cuDevicePrimaryCtxReset, (CUdevice));
CUDA_API(cuDevicePrimaryCtxReset_v2, (CUdevice));
CUDA_API(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice));
CUDA_API(cuDevicePrimaryCtxSetFlags, (CUdevice, unsigned int));
CUDA_API(cuDevicePrimaryCtxSetFlags_v2, (CUdevice, unsigned int));
CUDA_API(cuFlushGPUDirectRDMAWrites,
	 (CUflushGPUDirectRDMAWritesTarget, CUflushGPUDirectRDMAWritesScope));

/* Modules, libraries, the JIT linker, functions. */
CUDA_API(cuFuncGetAttribute, (int *, CUfunction_attribute, CUfunction));
CUDA_API(cuFuncGetModule, (CUmodule *, CUfunction));
CUDA_API(cuFuncGetName, (const char **, CUfunction));
CUDA_API(cuFuncGetParamCount, (CUfunction, size_t *));
CUDA_API(cuFuncGetParamInfo, (CUfunction, size_t, size_t *, size_t *));
CUDA_API(cuFuncIsLoaded, (CUfunctionLoadingState *, CUfunction));
CUDA_API(cuFuncLoad, (CUfunction));
CUDA_API(cuFuncSetAttribute, (CUfunction, CUfunction_attribute, int));
CUDA_API(cuFuncSetBlockShape, (CUfunction, int, int, int));
CUDA_API(cuFuncSetCacheConfig, (CUfunction, CUfunc_cache));
CUDA_API(cuFuncSetSharedMemConfig, (CUfunction, CUsharedconfig));
CUDA_API(cuFuncSetSharedSize, (CUfunction, unsigned int));
CUDA_API(cuKernelGetAttribute, (int *, CUfunction_attribute, CUkernel, CUdevice));
CUDA_API(cuKernelGetFunction, (CUfunction *, CUkernel));
CUDA_API(cuKernelGetLibrary, (CUlibrary *, CUkernel));
CUDA_API(cuKernelGetName, (const char **, CUkernel));
CUDA_API(cuKernelGetParamCount, (CUkernel, size_t *));
CUDA_API(cuKernelGetParamInfo, (CUkernel, size_t, size_t *, size_t *));
CUDA_API(cuKernelSetAttribute, (CUfunction_attribute, int, CUkernel, CUdevice));
CUDA_API(cuKernelSetCacheConfig, (CUkernel, CUfunc_cache, CUdevice));
CUDA_API(cuLibraryEnumerateKernels, (CUkernel *, unsigned int, CUlibrary));
CUDA_API(cuLibraryGetGlobal, (CUdeviceptr *, size_t *, CUlibrary, const char *));
CUDA_API(cuLibraryGetKernel, (CUkernel *, CUlibrary, const char *));
CUDA_API(cuLibraryGetKernelCount, (unsigned int *, CUlibrary));
CUDA_API(cuLibraryGetManaged, (CUdeviceptr *, size_t *, CUlibrary, const char *));
CUDA_API(cuLibraryGetModule, (CUmodule *, CUlibrary));
CUDA_API(cuLibraryGetUnifiedFunction, (void **, CUlibrary, const char *));
CUDA_API(cuLibraryLoadData, (CUlibrary *, const void *, CUjit_option *, void **, unsigned int,
			     CUlibraryOption *, void **, unsigned int));
CUDA_API(cuLibraryLoadFromFile, (CUlibrary *, const char *, CUjit_option *, void **, unsigned int,
				 CUlibraryOption *, void **, unsigned int));
CUDA_API(cuLibraryUnload, (CUlibrary));
CUDA_API(cuLinkAddData, (CUlinkState, CUjitInputType, void *, size_t, const char *, unsigned int,
			 CUjit_option *, void **));
CUDA_API(cuLinkAddData_v2, (CUlinkState, CUjitInputType, void *, size_t, const char *, unsigned int,
			    CUjit_option *, void **));
CUDA_API(cuLinkAddFile,
	 (CUlinkState, CUjitInputType, const char *, unsigned int, CUjit_option *, void **));
CUDA_API(cuLinkAddFile_v2,
	 (CUlinkState, CUjitInputType, const char *, unsigned int, CUjit_option *, void **));
CUDA_API(cuLinkComplete, (CUlinkState, void **, size_t *));
CUDA_API(cuLinkCreate, (unsigned int, CUjit_option *, void **, CUlinkState *));
CUDA_API(cuLinkCreate_v2, (unsigned int, CUjit_option *, void **, CUlinkState *));
CUDA_API(cuLinkDestroy, (CUlinkState));
CUDA_API(cuModuleEnumerateFunctions, (CUfunction *, unsigned int, CUmodule));
CUDA_API(cuModuleGetFunction, (CUfunction *, CUmodule, const char *));
CUDA_API(cuModuleGetFunctionCount, (unsigned int *, CUmodule));
CUDA_API(cuModuleGetGlobal, (CUdeviceptr_v1 *, unsigned int *, CUmodule, const char *));
CUDA_API(cuModuleGetGlobal_v2, (CUdeviceptr *, size_t *, CUmodule, const char *));
CUDA_API(cuModuleGetLoadingMode, (CUmoduleLoadingMode *));
CUDA_API(cuModuleLoad, (CUmodule *, const char *));
CUDA_API(cuModuleLoadData, (CUmodule *, const void *));
CUDA_API(cuModuleLoadDataEx, (CUmodule *, const void *, unsigned int, CUjit_option *, void **));
CUDA_API(cuModuleLoadFatBinary, (CUmodule *, const void *));
CUDA_API(cuModuleUnload, (CUmodule));
CUDA_API(cuOccupancyAvailableDynamicSMemPerBlock, (size_t *, CUfunction, int, int));
CUDA_API(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *, CUfunction, int, size_t));
CUDA_API(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
	 (int *, CUfunction, int, size_t, unsigned int));
CUDA_API(cuOccupancyMaxActiveClusters, (int *, CUfunction, const CUlaunchConfig *));
CUDA_API(cuOccupancyMaxPotentialBlockSize,
	 (int *, int *, CUfunction, CUoccupancyB2DSize, size_t, int));
CUDA_API(cuOccupancyMaxPotentialBlockSizeWithFlags,
	 (int *, int *, CUfunction, CUoccupancyB2DSize, size_t, int, unsigned int));
CUDA_API(cuOccupancyMaxPotentialClusterSize, (int *, CUfunction, const CUlaunchConfig *));
CUDA_API(cuParamSetSize, (CUfunction, unsigned int));
CUDA_API(cuParamSetf, (CUfunction, int, float));
CUDA_API(cuParamSeti, (CUfunction, int, unsigned int));
CUDA_API(cuParamSetv, (CUfunction, int, void *, unsigned int));

/* Launches. */
CUDA_API(cuLaunch, (CUfunction));
CUDA_API_PTSZ(cuLaunchCooperativeKernel,
	      (CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
	       unsigned int, unsigned int, CUstream, void **));
CUDA_API(cuLaunchCooperativeKernelMultiDevice, (CUDA_LAUNCH_PARAMS *, unsigned int, unsigned int));
CUDA_API(cuLaunchGrid, (CUfunction, int, int));
CUDA_API(cuLaunchGridAsync, (CUfunction, int, int, CUstream));
CUDA_API_PTSZ(cuLaunchHostFunc, (CUstream, CUhostFn, void *));
CUDA_API_PTSZ(cuLaunchHostFunc_v2, (CUstream, CUhostFn, void *, unsigned int));
CUDA_API_PTSZ(cuLaunchKernel,
	      (CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
	       unsigned int, unsigned int, CUstream, void **, void **));
CUDA_API_PTSZ(cuLaunchKernelEx, (const CUlaunchConfig *, CUfunction, void **, void **));

/* Linear, pitched, managed and host memory; pointers. */
CUDA_API(cuIpcCloseMemHandle, (CUdeviceptr));
CUDA_API(cuIpcGetEventHandle, (CUipcEventHandle *, CUevent));
CUDA_API(cuIpcGetMemHandle, (CUipcMemHandle *, CUdeviceptr));
CUDA_API(cuIpcOpenEventHandle, (CUevent *, CUipcEventHandle));
CUDA_API(cuIpcOpenMemHandle, (CUdeviceptr *, CUipcMemHandle, unsigned int));
CUDA_API(cuIpcOpenMemHandle_v2, (CUdeviceptr *, CUipcMemHandle, unsigned int));
CUDA_API(cuMemAdvise, (CUdeviceptr, size_t, CUmem_advise, CUdevice));
CUDA_API(cuMemAdvise_v2, (CUdeviceptr, size_t, CUmem_advise, CUmemLocation));
CUDA_API(cuMemAlloc, (CUdeviceptr_v1 *, unsigned int));
CUDA_API(cuMemAllocHost, (void **, unsigned int));
CUDA_API(cuMemAllocHost_v2, (void **, size_t));
CUDA_API(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned int));
CUDA_API(cuMemAllocPitch,
	 (CUdeviceptr_v1 *, unsigned int *, unsigned int, unsigned int, unsigned int));
CUDA_API(cuMemAllocPitch_v2, (CUdeviceptr *, size_t *, size_t, size_t, unsigned int));
CUDA_API(cuMemAlloc_v2, (CUdeviceptr *, size_t));
CUDA_API_PTSZ(cuMemDiscardAndPrefetchBatchAsync, (CUdeviceptr *, size_t *, size_t, CUmemLocation *,
						  size_t *, size_t, unsigned long long, CUstream));
CUDA_API_PTSZ(cuMemDiscardBatchAsync,
	      (CUdeviceptr *, size_t *, size_t, unsigned long long, CUstream));
CUDA_API(cuMemFree, (CUdeviceptr_v1));
CUDA_API(cuMemFreeHost, (void *));
CUDA_API(cuMemFree_v2, (CUdeviceptr));
CUDA_API(cuMemGetAddressRange, (CUdeviceptr_v1 *, unsigned int *, CUdeviceptr_v1));
CUDA_API(cuMemGetAddressRange_v2, (CUdeviceptr *, size_t *, CUdeviceptr));
CUDA_API(cuMemGetInfo, (unsigned int *, unsigned int *));
CUDA_API(cuMemGetInfo_v2, (size_t *, size_t *));
CUDA_API(cuMemHostAlloc, (void **, size_t, unsigned int));
CUDA_API(cuMemHostGetDevicePointer, (CUdeviceptr_v1 *, void *, unsigned int));
CUDA_API(cuMemHostGetDevicePointer_v2, (CUdeviceptr *, void *, unsigned int));
CUDA_API(cuMemHostGetFlags, (unsigned int *, void *));
CUDA_API(cuMemHostRegister, (void *, size_t, unsigned int));
CUDA_API(cuMemHostRegister_v2, (void *, size_t, unsigned int));
CUDA_API(cuMemHostUnregister, (void *));
CUDA_API_PTSZ(cuMemPrefetchAsync, (CUdeviceptr, size_t, CUdevice, CUstream));
CUDA_API_PTSZ(cuMemPrefetchAsync_v2, (CUdeviceptr, size_t, CUmemLocation, unsigned int, CUstream));
CUDA_API_PTSZ(cuMemPrefetchBatchAsync, (CUdeviceptr *, size_t *, size_t, CUmemLocation *, size_t *,
					size_t, unsigned long long, CUstream));
CUDA_API(cuMemRangeGetAttribute, (void *, size_t, CUmem_range_attribute, CUdeviceptr, size_t));
CUDA_API(cuMemRangeGetAttributes,
	 (void **, size_t *, CUmem_range_attribute *, size_t, CUdeviceptr, size_t));
CUDA_API(cuPointerGetAttribute, (void *, CUpointer_attribute, CUdeviceptr));
CUDA_API(cuPointerGetAttributes, (unsigned int, CUpointer_attribute *, void **, CUdeviceptr));
CUDA_API(cuPointerSetAttribute, (const void *, CUpointer_attribute, CUdeviceptr));

/* Pools and stream-ordered allocation. */
CUDA_API(cuDeviceGetDefaultMemPool, (CUmemoryPool *, CUdevice));
CUDA_API(cuDeviceGetMemPool, (CUmemoryPool *, CUdevice));
CUDA_API(cuDeviceSetMemPool, (CUdevice, CUmemoryPool));
CUDA_API_PTSZ(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream));
CUDA_API_PTSZ(cuMemAllocFromPoolAsync, (CUdeviceptr *, size_t, CUmemoryPool, CUstream));
CUDA_API_PTSZ(cuMemFreeAsync, (CUdeviceptr, CUstream));
CUDA_API(cuMemGetDefaultMemPool, (CUmemoryPool *, CUmemLocation *, CUmemAllocationType));
CUDA_API(cuMemGetMemPool, (CUmemoryPool *, CUmemLocation *, CUmemAllocationType));
CUDA_API(cuMemPoolCreate, (CUmemoryPool *, const CUmemPoolProps *));
CUDA_API(cuMemPoolDestroy, (CUmemoryPool));
CUDA_API(cuMemPoolExportPointer, (CUmemPoolPtrExportData *, CUdeviceptr));
CUDA_API(cuMemPoolExportToShareableHandle,
	 (void *, CUmemoryPool, CUmemAllocationHandleType, unsigned long long));
CUDA_API(cuMemPoolGetAccess, (CUmemAccess_flags *, CUmemoryPool, CUmemLocation *));
CUDA_API(cuMemPoolGetAttribute, (CUmemoryPool, CUmemPool_attribute, void *));
CUDA_API(cuMemPoolImportFromShareableHandle,
	 (CUmemoryPool *, void *, CUmemAllocationHandleType, unsigned long long));
CUDA_API(cuMemPoolImportPointer, (CUdeviceptr *, CUmemoryPool, CUmemPoolPtrExportData *));
CUDA_API(cuMemPoolSetAccess, (CUmemoryPool, const CUmemAccessDesc *, size_t));
CUDA_API(cuMemPoolSetAttribute, (CUmemoryPool, CUmemPool_attribute, void *));
CUDA_API(cuMemPoolTrimTo, (CUmemoryPool, size_t));
CUDA_API(cuMemSetMemPool, (CUmemLocation *, CUmemAllocationType, CUmemoryPool));

/* Virtual memory, multicast. */
CUDA_API(cuMemAddressFree, (CUdeviceptr, size_t));
CUDA_API(cuMemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long));
CUDA_API(cuMemCreate,
	 (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long));
CUDA_API(cuMemExportToShareableHandle,
	 (void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long));
CUDA_API(cuLogicalEndpointBindAddr,
	 (CUlogicalEndpointId, CUdevice, cuuint64_t, void *, cuuint64_t, unsigned long long));
CUDA_API(cuLogicalEndpointBindMem,
	 (CUlogicalEndpointId, CUdevice, cuuint64_t, CUmemGenericAllocationHandle, cuuint64_t,
	  cuuint64_t, unsigned long long));
CUDA_API(cuMemGetAccess, (unsigned long long *, const CUmemLocation *, CUdeviceptr));
CUDA_API(cuMemGetAllocationGranularity,
	 (size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags));
CUDA_API(cuMemGetAllocationPropertiesFromHandle,
	 (CUmemAllocationProp *, CUmemGenericAllocationHandle));
CUDA_API(cuMemGetHandleForAddressRange,
	 (void *, CUdeviceptr, size_t, CUmemRangeHandleType, unsigned long long));
CUDA_API(cuMemImportFromShareableHandle,
	 (CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType));
CUDA_API(cuMemMap, (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long));
CUDA_API_PTSZ(cuMemMapArrayAsync, (CUarrayMapInfo *, unsigned int, CUstream));
CUDA_API(cuMemRelease, (CUmemGenericAllocationHandle));
CUDA_API(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle *, void *));
CUDA_API(cuMemSetAccess, (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t));
CUDA_API(cuMemUnmap, (CUdeviceptr, size_t));
CUDA_API(cuMulticastAddDevice, (CUmemGenericAllocationHandle, CUdevice));
CUDA_API(cuMulticastBindAddr,
	 (CUmemGenericAllocationHandle, size_t, CUdeviceptr, size_t, unsigned long long));
CUDA_API(cuMulticastBindMem, (CUmemGenericAllocationHandle, size_t, CUmemGenericAllocationHandle,
			      size_t, size_t, unsigned long long));
CUDA_API(cuMulticastBindAddr_v2,
	 (CUmemGenericAllocationHandle, CUdevice, size_t, CUdeviceptr, size_t, unsigned long long));
CUDA_API(cuMulticastBindMem_v2, (CUmemGenericAllocationHandle, CUdevice, size_t,
				 CUmemGenericAllocationHandle, size_t, size_t, unsigned long long));
CUDA_API(cuMulticastCreate, (CUmemGenericAllocationHandle *, const CUmulticastObjectProp *));
CUDA_API(cuMulticastGetGranularity,
	 (size_t *, const CUmulticastObjectProp *, CUmulticastGranularity_flags));
CUDA_API(cuMulticastUnbind, (CUmemGenericAllocationHandle, CUdevice, size_t, size_t));

/* Arrays. */
CUDA_API(cuArray3DCreate, (CUarray *, const CUDA_ARRAY3D_DESCRIPTOR_v1 *));
CUDA_API(cuArray3DCreate_v2, (CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *));
CUDA_API(cuArray3DGetDescriptor, (CUDA_ARRAY3D_DESCRIPTOR_v1 *, CUarray));
CUDA_API(cuArray3DGetDescriptor_v2, (CUDA_ARRAY3D_DESCRIPTOR *, CUarray));
CUDA_API(cuArrayCreate, (CUarray *, const CUDA_ARRAY_DESCRIPTOR_v1 *));
CUDA_API(cuArrayCreate_v2, (CUarray *, const CUDA_ARRAY_DESCRIPTOR *));
CUDA_API(cuArrayDestroy, (CUarray));
CUDA_API(cuArrayGetDescriptor, (CUDA_ARRAY_DESCRIPTOR_v1 *, CUarray));
CUDA_API(cuArrayGetDescriptor_v2, (CUDA_ARRAY_DESCRIPTOR *, CUarray));
CUDA_API(cuArrayGetMemoryRequirements, (CUDA_ARRAY_MEMORY_REQUIREMENTS *, CUarray, CUdevice));
CUDA_API(cuArrayGetPlane, (CUarray *, CUarray, unsigned int));
CUDA_API(cuArrayGetSparseProperties, (CUDA_ARRAY_SPARSE_PROPERTIES *, CUarray));
CUDA_API(cuMipmappedArrayCreate,
	 (CUmipmappedArray *, const CUDA_ARRAY3D_DESCRIPTOR *, unsigned int));
CUDA_API(cuMipmappedArrayDestroy, (CUmipmappedArray));
CUDA_API(cuMipmappedArrayGetLevel, (CUarray *, CUmipmappedArray, unsigned int));
CUDA_API(cuMipmappedArrayGetMemoryRequirements,
	 (CUDA_ARRAY_MEMORY_REQUIREMENTS *, CUmipmappedArray, CUdevice));
CUDA_API(cuMipmappedArrayGetSparseProperties, (CUDA_ARRAY_SPARSE_PROPERTIES *, CUmipmappedArray));

/* Memory and semaphores of other APIs. */
CUDA_API(cuDestroyExternalMemory, (CUexternalMemory));
CUDA_API(cuDestroyExternalSemaphore, (CUexternalSemaphore));
CUDA_API(cuExternalMemoryGetMappedBuffer,
	 (CUdeviceptr *, CUexternalMemory, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *));
CUDA_API(cuExternalMemoryGetMappedMipmappedArray,
	 (CUmipmappedArray *, CUexternalMemory, const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *));
CUDA_API(cuImportExternalMemory, (CUexternalMemory *, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *));
CUDA_API(cuImportExternalSemaphore,
	 (CUexternalSemaphore *, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *));
CUDA_API_PTSZ(cuSignalExternalSemaphoresAsync,
	      (const CUexternalSemaphore *, const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *,
	       unsigned int, CUstream));
CUDA_API_PTSZ(cuWaitExternalSemaphoresAsync,
	      (const CUexternalSemaphore *, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *,
	       unsigned int, CUstream));

/* Copies and sets. */
CUDA_API_PTDS(cuMemcpy, (CUdeviceptr, CUdeviceptr, size_t));
CUDA_API(cuMemcpy2D, (const CUDA_MEMCPY2D_v1 *));
CUDA_API(cuMemcpy2DAsync, (const CUDA_MEMCPY2D_v1 *, CUstream));
CUDA_API_PTSZ(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *, CUstream));
CUDA_API(cuMemcpy2DUnaligned, (const CUDA_MEMCPY2D_v1 *));
CUDA_API_PTDS(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *));
CUDA_API_PTDS(cuMemcpy2D_v2, (const CUDA_MEMCPY2D *));
CUDA_API(cuMemcpy3D, (const CUDA_MEMCPY3D_v1 *));
CUDA_API(cuMemcpy3DAsync, (const CUDA_MEMCPY3D_v1 *, CUstream));
CUDA_API_PTSZ(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *, CUstream));
CUDA_API_PTSZ(cuMemcpy3DBatchAsync,
	      (size_t, CUDA_MEMCPY3D_BATCH_OP *, size_t *, unsigned long long, CUstream));
CUDA_API_PTSZ(cuMemcpy3DBatchAsync_v2,
	      (size_t, CUDA_MEMCPY3D_BATCH_OP *, unsigned long long, CUstream));
CUDA_API_PTSZ(cuMemcpy3DWithAttributesAsync,
	      (CUDA_MEMCPY3D_BATCH_OP *, unsigned long long, CUstream));
CUDA_API_PTDS(cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER *));
CUDA_API_PTSZ(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *, CUstream));
CUDA_API_PTDS(cuMemcpy3D_v2, (const CUDA_MEMCPY3D *));
CUDA_API_PTSZ(cuMemcpyAsync, (CUdeviceptr, CUdeviceptr, size_t, CUstream));
CUDA_API(cuMemcpyAtoA, (CUarray, unsigned int, CUarray, unsigned int, unsigned int));
CUDA_API_PTDS(cuMemcpyAtoA_v2, (CUarray, size_t, CUarray, size_t, size_t));
CUDA_API(cuMemcpyAtoD, (CUdeviceptr_v1, CUarray, unsigned int, unsigned int));
CUDA_API_PTDS(cuMemcpyAtoD_v2, (CUdeviceptr, CUarray, size_t, size_t));
CUDA_API(cuMemcpyAtoH, (void *, CUarray, unsigned int, unsigned int));
CUDA_API(cuMemcpyAtoHAsync, (void *, CUarray, unsigned int, unsigned int, CUstream));
CUDA_API_PTSZ(cuMemcpyAtoHAsync_v2, (void *, CUarray, size_t, size_t, CUstream));
CUDA_API_PTDS(cuMemcpyAtoH_v2, (void *, CUarray, size_t, size_t));
CUDA_API_PTSZ(cuMemcpyBatchAsync, (CUdeviceptr *, CUdeviceptr *, size_t *, size_t,
				   CUmemcpyAttributes *, size_t *, size_t, size_t *, CUstream));
CUDA_API_PTSZ(cuMemcpyBatchAsync_v2, (CUdeviceptr *, CUdeviceptr *, size_t *, size_t,
				      CUmemcpyAttributes *, size_t *, size_t, CUstream));
CUDA_API_PTSZ(cuMemcpyWithAttributesAsync,
	      (CUdeviceptr, CUdeviceptr, size_t, CUmemcpyAttributes *, CUstream));
CUDA_API(cuMemcpyDtoA, (CUarray, unsigned int, CUdeviceptr_v1, unsigned int));
CUDA_API_PTDS(cuMemcpyDtoA_v2, (CUarray, size_t, CUdeviceptr, size_t));
CUDA_API(cuMemcpyDtoD, (CUdeviceptr_v1, CUdeviceptr_v1, unsigned int));
CUDA_API(cuMemcpyDtoDAsync, (CUdeviceptr_v1, CUdeviceptr_v1, unsigned int, CUstream));
CUDA_API_PTSZ(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream));
CUDA_API_PTDS(cuMemcpyDtoD_v2, (CUdeviceptr, CUdeviceptr, size_t));
CUDA_API(cuMemcpyDtoH, (void *, CUdeviceptr_v1, unsigned int));
CUDA_API(cuMemcpyDtoHAsync, (void *, CUdeviceptr_v1, unsigned int, CUstream));
CUDA_API_PTSZ(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream));
CUDA_API_PTDS(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t));
CUDA_API(cuMemcpyHtoA, (CUarray, unsigned int, const void *, unsigned int));
CUDA_API(cuMemcpyHtoAAsync, (CUarray, unsigned int, const void *, unsigned int, CUstream));
CUDA_API_PTSZ(cuMemcpyHtoAAsync_v2, (CUarray, size_t, const void *, size_t, CUstream));
CUDA_API_PTDS(cuMemcpyHtoA_v2, (CUarray, size_t, const void *, size_t));
CUDA_API(cuMemcpyHtoD, (CUdeviceptr_v1, const void *, unsigned int));
CUDA_API(cuMemcpyHtoDAsync, (CUdeviceptr_v1, const void *, unsigned int, CUstream));
CUDA_API_PTSZ(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream));
CUDA_API_PTDS(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t));
CUDA_API_PTDS(cuMemcpyPeer, (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t));
CUDA_API_PTSZ(cuMemcpyPeerAsync,
	      (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream));
CUDA_API(cuMemsetD16, (CUdeviceptr_v1, unsigned short, unsigned int));
CUDA_API_PTSZ(cuMemsetD16Async, (CUdeviceptr, unsigned short, size_t, CUstream));
CUDA_API_PTDS(cuMemsetD16_v2, (CUdeviceptr, unsigned short, size_t));
CUDA_API(cuMemsetD2D16, (CUdeviceptr_v1, unsigned int, unsigned short, unsigned int, unsigned int));
CUDA_API_PTSZ(cuMemsetD2D16Async, (CUdeviceptr, size_t, unsigned short, size_t, size_t, CUstream));
CUDA_API_PTDS(cuMemsetD2D16_v2, (CUdeviceptr, size_t, unsigned short, size_t, size_t));
CUDA_API(cuMemsetD2D32, (CUdeviceptr_v1, unsigned int, unsigned int, unsigned int, unsigned int));
CUDA_API_PTSZ(cuMemsetD2D32Async, (CUdeviceptr, size_t, unsigned int, size_t, size_t, CUstream));
CUDA_API_PTDS(cuMemsetD2D32_v2, (CUdeviceptr, size_t, unsigned int, size_t, size_t));
CUDA_API(cuMemsetD2D8, (CUdeviceptr_v1, unsigned int, unsigned char, unsigned int, unsigned int));
CUDA_API_PTSZ(cuMemsetD2D8Async, (CUdeviceptr, size_t, unsigned char, size_t, size_t, CUstream));
CUDA_API_PTDS(cuMemsetD2D8_v2, (CUdeviceptr, size_t, unsigned char, size_t, size_t));
CUDA_API(cuMemsetD32, (CUdeviceptr_v1, unsigned int, unsigned int));
CUDA_API_PTSZ(cuMemsetD32Async, (CUdeviceptr, unsigned int, size_t, CUstream));
CUDA_API_PTDS(cuMemsetD32_v2, (CUdeviceptr, unsigned int, size_t));
CUDA_API(cuMemsetD8, (CUdeviceptr_v1, unsigned char, unsigned int));
CUDA_API_PTSZ(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream));
CUDA_API_PTDS(cuMemsetD8_v2, (CUdeviceptr, unsigned char, size_t));

/* Streams, capture, events. */
CUDA_API(cuEventCreate, (CUevent *, unsigned int));
CUDA_API(cuEventDestroy, (CUevent));
CUDA_API(cuEventDestroy_v2, (CUevent));
CUDA_API(cuEventElapsedTime, (float *, CUevent, CUevent));
CUDA_API(cuEventElapsedTime_v2, (float *, CUevent, CUevent));
CUDA_API(cuEventQuery, (CUevent));
CUDA_API_PTSZ(cuEventRecord, (CUevent, CUstream));
CUDA_API_PTSZ(cuEventRecordWithFlags, (CUevent, CUstream, unsigned int));
CUDA_API(cuEventSynchronize, (CUevent));
CUDA_API_PTSZ(cuStreamAddCallback, (CUstream, CUstreamCallback, void *, unsigned int));
CUDA_API_PTSZ(cuStreamAttachMemAsync, (CUstream, CUdeviceptr, size_t, unsigned int));
CUDA_API_PTSZ(cuStreamBatchMemOp,
	      (CUstream, unsigned int, CUstreamBatchMemOpParams *, unsigned int));
CUDA_API_PTSZ(cuStreamBatchMemOp_v2,
	      (CUstream, unsigned int, CUstreamBatchMemOpParams *, unsigned int));
CUDA_API_PTSZ(cuStreamBeginCapture, (CUstream));
CUDA_API_PTSZ(cuStreamBeginCaptureToGraph, (CUstream, CUgraph, const CUgraphNode *,
					    const CUgraphEdgeData *, size_t, CUstreamCaptureMode));
CUDA_API_PTSZ(cuStreamBeginCaptureToCig, (CUstream, CUstreamCigCaptureParams *));
CUDA_API_PTSZ(cuStreamBeginRecaptureToGraph,
	      (CUstream, CUstreamCaptureMode, CUgraph, CUgraphRecaptureCallback, void *));
CUDA_API_PTSZ(cuStreamBeginCapture_v2, (CUstream, CUstreamCaptureMode));
CUDA_API_PTSZ(cuStreamCopyAttributes, (CUstream, CUstream));
CUDA_API(cuStreamCreate, (CUstream *, unsigned int));
CUDA_API(cuStreamCreateWithPriority, (CUstream *, unsigned int, int));
CUDA_API(cuStreamDestroy, (CUstream));
CUDA_API(cuStreamDestroy_v2, (CUstream));
CUDA_API_PTSZ(cuStreamEndCapture, (CUstream, CUgraph *));
CUDA_API_PTSZ(cuStreamEndCaptureToCig, (CUstream));
CUDA_API_PTSZ(cuStreamGetAttribute, (CUstream, CUstreamAttrID, CUstreamAttrValue *));
CUDA_API_PTSZ(cuStreamGetCaptureInfo, (CUstream, CUstreamCaptureStatus *, cuuint64_t *));
CUDA_API_PTSZ(cuStreamGetCaptureInfo_v2, (CUstream, CUstreamCaptureStatus *, cuuint64_t *,
					  CUgraph *, const CUgraphNode **, size_t *));
CUDA_API_PTSZ(cuStreamGetCaptureInfo_v3,
	      (CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *, const CUgraphNode **,
	       const CUgraphEdgeData **, size_t *));
CUDA_API_PTSZ(cuStreamGetCtx, (CUstream, CUcontext *));
CUDA_API_PTSZ(cuStreamGetCtx_v2, (CUstream, CUcontext *, CUgreenCtx *));
CUDA_API_PTSZ(cuStreamGetDevice, (CUstream, CUdevice *));
CUDA_API_PTSZ(cuStreamGetFlags, (CUstream, unsigned int *));
CUDA_API(cuStreamGetGreenCtx, (CUstream, CUgreenCtx *));
CUDA_API_PTSZ(cuStreamGetId, (CUstream, unsigned long long *));
CUDA_API_PTSZ(cuStreamGetPriority, (CUstream, int *));
CUDA_API_PTSZ(cuStreamIsCapturing, (CUstream, CUstreamCaptureStatus *));
CUDA_API_PTSZ(cuStreamQuery, (CUstream));
CUDA_API_PTSZ(cuStreamSetAttribute, (CUstream, CUstreamAttrID, const CUstreamAttrValue *));
CUDA_API_PTSZ(cuStreamSynchronize, (CUstream));
CUDA_API_PTSZ(cuStreamUpdateCaptureDependencies, (CUstream, CUgraphNode *, size_t, unsigned int));
CUDA_API_PTSZ(cuStreamUpdateCaptureDependencies_v2,
	      (CUstream, CUgraphNode *, const CUgraphEdgeData *, size_t, unsigned int));
CUDA_API_PTSZ(cuStreamWaitEvent, (CUstream, CUevent, unsigned int));
CUDA_API_PTSZ(cuStreamWaitValue32, (CUstream, CUdeviceptr, cuuint32_t, unsigned int));
CUDA_API_PTSZ(cuStreamWaitValue32_v2, (CUstream, CUdeviceptr, cuuint32_t, unsigned int));
CUDA_API_PTSZ(cuStreamWaitValue64, (CUstream, CUdeviceptr, cuuint64_t, unsigned int));
CUDA_API_PTSZ(cuStreamWaitValue64_v2, (CUstream, CUdeviceptr, cuuint64_t, unsigned int));
CUDA_API_PTSZ(cuStreamWriteValue32, (CUstream, CUdeviceptr, cuuint32_t, unsigned int));
CUDA_API_PTSZ(cuStreamWriteValue32_v2, (CUstream, CUdeviceptr, cuuint32_t, unsigned int));
CUDA_API_PTSZ(cuStreamWriteValue64, (CUstream, CUdeviceptr, cuuint64_t, unsigned int));
CUDA_API_PTSZ(cuStreamWriteValue64_v2, (CUstream, CUdeviceptr, cuuint64_t, unsigned int));
CUDA_API(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *));

/* Graphs, user objects. */
CUDA_API(cuDeviceGetGraphMemAttribute, (CUdevice, CUgraphMem_attribute, void *));
CUDA_API(cuDeviceGraphMemTrim, (CUdevice));
CUDA_API(cuDeviceSetGraphMemAttribute, (CUdevice, CUgraphMem_attribute, void *));
CUDA_API(cuGraphAddBatchMemOpNode, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t,
				    const CUDA_BATCH_MEM_OP_NODE_PARAMS *));
CUDA_API(cuGraphAddChildGraphNode, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraph));
CUDA_API(cuGraphAddDependencies, (CUgraph, const CUgraphNode *, const CUgraphNode *, size_t));
CUDA_API(cuGraphAddDependencies_v2,
	 (CUgraph, const CUgraphNode *, const CUgraphNode *, const CUgraphEdgeData *, size_t));
CUDA_API(cuGraphAddEmptyNode, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t));
CUDA_API(cuGraphAddEventRecordNode, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUevent));
CUDA_API(cuGraphAddEventWaitNode, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUevent));
CUDA_API(cuGraphAddHostNode,
	 (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUDA_HOST_NODE_PARAMS *));
CUDA_API(cuGraphAddKernelNode,
	 (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUDA_KERNEL_NODE_PARAMS_v1 *));
CUDA_API(cuGraphAddKernelNode_v2,
	 (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUDA_KERNEL_NODE_PARAMS *));
CUDA_API(cuGraphAddMemAllocNode,
	 (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUDA_MEM_ALLOC_NODE_PARAMS *));
CUDA_API(cuGraphAddMemFreeNode, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUdeviceptr));
CUDA_API(cuGraphAddMemcpyNode,
	 (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUDA_MEMCPY3D *, CUcontext));
CUDA_API(cuGraphAddMemsetNode, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t,
				const CUDA_MEMSET_NODE_PARAMS *, CUcontext));
CUDA_API(cuGraphAddNode,
	 (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraphNodeParams *));
CUDA_API(cuGraphAddNode_v2, (CUgraphNode *, CUgraph, const CUgraphNode *, const CUgraphEdgeData *,
			     size_t, CUgraphNodeParams *));
CUDA_API(cuGraphAddNode_v3, (CUgraphNode *, CUgraph, const CUgraphNode *, const CUgraphEdgeData *,
			     size_t, CUgraphNodeParams *));
CUDA_API(cuGraphBatchMemOpNodeGetParams, (CUgraphNode, CUDA_BATCH_MEM_OP_NODE_PARAMS *));
CUDA_API(cuGraphBatchMemOpNodeSetParams, (CUgraphNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS *));
CUDA_API(cuGraphChildGraphNodeGetGraph, (CUgraphNode, CUgraph *));
CUDA_API(cuGraphClone, (CUgraph *, CUgraph));
CUDA_API(cuGraphConditionalHandleCreate,
	 (CUgraphConditionalHandle *, CUgraph, CUcontext, unsigned int, unsigned int));
CUDA_API(cuGraphCreate, (CUgraph *, unsigned int));
CUDA_API(cuGraphDebugDotPrint, (CUgraph, const char *, unsigned int));
CUDA_API(cuGraphDestroy, (CUgraph));
CUDA_API(cuGraphDestroyNode, (CUgraphNode));
CUDA_API(cuGraphEventRecordNodeGetEvent, (CUgraphNode, CUevent *));
CUDA_API(cuGraphEventRecordNodeSetEvent, (CUgraphNode, CUevent));
CUDA_API(cuGraphEventWaitNodeGetEvent, (CUgraphNode, CUevent *));
CUDA_API(cuGraphEventWaitNodeSetEvent, (CUgraphNode, CUevent));
CUDA_API(cuGraphExecBatchMemOpNodeSetParams,
	 (CUgraphExec, CUgraphNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS *));
CUDA_API(cuGraphExecChildGraphNodeSetParams, (CUgraphExec, CUgraphNode, CUgraph));
CUDA_API(cuGraphExecDestroy, (CUgraphExec));
CUDA_API(cuGraphExecEventRecordNodeSetEvent, (CUgraphExec, CUgraphNode, CUevent));
CUDA_API(cuGraphExecEventWaitNodeSetEvent, (CUgraphExec, CUgraphNode, CUevent));
CUDA_API(cuGraphExecGetFlags, (CUgraphExec, cuuint64_t *));
CUDA_API(cuGraphExecGetId, (CUgraphExec, unsigned int *));
CUDA_API(cuGraphExecHostNodeSetParams, (CUgraphExec, CUgraphNode, const CUDA_HOST_NODE_PARAMS *));
CUDA_API(cuGraphExecKernelNodeSetParams,
	 (CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v1 *));
CUDA_API(cuGraphExecKernelNodeSetParams_v2,
	 (CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS *));
CUDA_API(cuGraphExecMemcpyNodeSetParams,
	 (CUgraphExec, CUgraphNode, const CUDA_MEMCPY3D *, CUcontext));
CUDA_API(cuGraphExecMemsetNodeSetParams,
	 (CUgraphExec, CUgraphNode, const CUDA_MEMSET_NODE_PARAMS *, CUcontext));
CUDA_API(cuGraphExecNodeSetParams, (CUgraphExec, CUgraphNode, CUgraphNodeParams *));
CUDA_API(cuGraphExecUpdate, (CUgraphExec, CUgraph, CUgraphNode *, CUgraphExecUpdateResult *));
CUDA_API(cuGraphExecUpdate_v2, (CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo *));
CUDA_API(cuGraphGetEdges, (CUgraph, CUgraphNode *, CUgraphNode *, size_t *));
CUDA_API(cuGraphGetEdges_v2, (CUgraph, CUgraphNode *, CUgraphNode *, CUgraphEdgeData *, size_t *));
CUDA_API(cuGraphGetId, (CUgraph, unsigned int *));
CUDA_API(cuGraphGetNodes, (CUgraph, CUgraphNode *, size_t *));
CUDA_API(cuGraphGetRootNodes, (CUgraph, CUgraphNode *, size_t *));
CUDA_API(cuGraphHostNodeGetParams, (CUgraphNode, CUDA_HOST_NODE_PARAMS *));
CUDA_API(cuGraphHostNodeSetParams, (CUgraphNode, const CUDA_HOST_NODE_PARAMS *));
CUDA_API(cuGraphInstantiate, (CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t));
CUDA_API(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long));
CUDA_API_PTSZ(cuGraphInstantiateWithParams,
	      (CUgraphExec *, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS *));
CUDA_API(cuGraphInstantiate_v2, (CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t));
CUDA_API(cuGraphKernelNodeCopyAttributes, (CUgraphNode, CUgraphNode));
CUDA_API(cuGraphKernelNodeGetAttribute, (CUgraphNode, CUkernelNodeAttrID, CUkernelNodeAttrValue *));
CUDA_API(cuGraphKernelNodeGetParams, (CUgraphNode, CUDA_KERNEL_NODE_PARAMS_v1 *));
CUDA_API(cuGraphKernelNodeGetParams_v2, (CUgraphNode, CUDA_KERNEL_NODE_PARAMS *));
CUDA_API(cuGraphKernelNodeSetAttribute,
	 (CUgraphNode, CUkernelNodeAttrID, const CUkernelNodeAttrValue *));
CUDA_API(cuGraphKernelNodeSetParams, (CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v1 *));
CUDA_API(cuGraphKernelNodeSetParams_v2, (CUgraphNode, const CUDA_KERNEL_NODE_PARAMS *));
CUDA_API_PTSZ(cuGraphLaunch, (CUgraphExec, CUstream));
CUDA_API(cuGraphMemAllocNodeGetParams, (CUgraphNode, CUDA_MEM_ALLOC_NODE_PARAMS *));
CUDA_API(cuGraphMemFreeNodeGetParams, (CUgraphNode, CUdeviceptr *));
CUDA_API(cuGraphMemcpyNodeGetParams, (CUgraphNode, CUDA_MEMCPY3D *));
CUDA_API(cuGraphMemcpyNodeSetParams, (CUgraphNode, const CUDA_MEMCPY3D *));
CUDA_API(cuGraphMemsetNodeGetParams, (CUgraphNode, CUDA_MEMSET_NODE_PARAMS *));
CUDA_API(cuGraphMemsetNodeSetParams, (CUgraphNode, const CUDA_MEMSET_NODE_PARAMS *));
CUDA_API(cuGraphNodeFindInClone, (CUgraphNode *, CUgraphNode, CUgraph));
CUDA_API(cuGraphNodeGetDependencies, (CUgraphNode, CUgraphNode *, size_t *));
CUDA_API(cuGraphNodeGetDependencies_v2, (CUgraphNode, CUgraphNode *, CUgraphEdgeData *, size_t *));
CUDA_API(cuGraphNodeGetDependentNodes, (CUgraphNode, CUgraphNode *, size_t *));
CUDA_API(cuGraphNodeGetDependentNodes_v2,
	 (CUgraphNode, CUgraphNode *, CUgraphEdgeData *, size_t *));
CUDA_API(cuGraphNodeGetEnabled, (CUgraphExec, CUgraphNode, unsigned int *));
CUDA_API(cuGraphNodeGetContainingGraph, (CUgraphNode, CUgraph *));
CUDA_API(cuGraphNodeGetLocalId, (CUgraphNode, unsigned int *));
CUDA_API(cuGraphNodeGetParams, (CUgraphNode, CUgraphNodeParams *));
CUDA_API(cuGraphNodeGetToolsId, (CUgraphNode, unsigned long long *));
CUDA_API(cuGraphNodeGetType, (CUgraphNode, CUgraphNodeType *));
CUDA_API(cuGraphNodeSetEnabled, (CUgraphExec, CUgraphNode, unsigned int));
CUDA_API(cuGraphNodeSetParams, (CUgraphNode, CUgraphNodeParams *));
CUDA_API(cuGraphNodeSetParams_v2, (CUgraphNode, CUgraphNodeParams *));
CUDA_API(cuGraphReleaseUserObject, (CUgraph, CUuserObject, unsigned int));
CUDA_API(cuGraphRemoveDependencies, (CUgraph, const CUgraphNode *, const CUgraphNode *, size_t));
CUDA_API(cuGraphRemoveDependencies_v2,
	 (CUgraph, const CUgraphNode *, const CUgraphNode *, const CUgraphEdgeData *, size_t));
CUDA_API(cuGraphRetainUserObject, (CUgraph, CUuserObject, unsigned int, unsigned int));
CUDA_API_PTSZ(cuGraphUpload, (CUgraphExec, CUstream));
CUDA_API(cuUserObjectCreate, (CUuserObject *, void *, CUhostFn, unsigned int, unsigned int));
CUDA_API(cuUserObjectRelease, (CUuserObject, unsigned int));
CUDA_API(cuUserObjectRetain, (CUuserObject, unsigned int));
