/* A driver that does nothing, as fast as it can: what the front costs is measured over it, and its
 * loading and forwarding are tested with it. Addresses are handed out one after the other and never
 * again; nothing is remembered. It plays an imaginary version: it has one function that the front
 * has not heard of (cuNullOnly), and lacks many that the front knows. Its one device is the first
 * that CUDA_VISIBLE_DEVICES names by UUID, so that it can stand for any GPU of any slice. */
#include <ctype.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/cuda_abi.h"
#include "base/macros.h"

#define NULL_DEVICE_BYTES GIB(80)

extern __attribute__((visibility("default"))) CUresult cuNullOnly(void);
extern __attribute__((visibility("default"))) CUresult cuNullCalls(unsigned long long *ret);
extern __attribute__((visibility("default"))) CUresult cuNullFail(CUresult result);

static _Atomic unsigned long long calls;
static _Atomic CUdeviceptr next_address = GIB(1);
static _Thread_local CUcontext current __attribute__((tls_model("initial-exec")));
static _Atomic int primary_users;
static CUuuid device_uuid = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};
static CUresult failure; /* of the next calls that take or give memory */

static void count(void)
{
	atomic_store_explicit(&calls, atomic_load_explicit(&calls, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

/* Calls that took or gave memory, so far. */
CUresult cuNullCalls(unsigned long long *ret)
{
	*ret = atomic_load(&calls);
	return CUDA_SUCCESS;
}

CUresult cuNullFail(CUresult result)
{
	failure = result;
	return CUDA_SUCCESS;
}

CUresult cuNullOnly(void)
{
	return CUDA_SUCCESS;
}

/* "GPU-" and 16 bytes as hexadecimal digits, with dashes anywhere; false: anything else. */
static bool uuid_read(CUuuid *uuid, const char *text)
{
	if (strncmp(text, "GPU-", 4) != 0)
		return false;
	text += 4;
	for (int i = 0; i < 16; i++) {
		char digits[3] = {0};

		text += *text == '-';
		if (!isxdigit((unsigned char)text[0]) || !isxdigit((unsigned char)text[1]))
			return false;
		memcpy(digits, text, 2);
		uuid->bytes[i] = (char)strtoul(digits, NULL, 16);
		text += 2;
	}
	return true;
}

CUresult cuInit(unsigned int flags)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	CUuuid uuid;

	if (visible && uuid_read(&uuid, visible))
		device_uuid = uuid;
	return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
	*version = CUDA_ABI_VERSION;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *ret_count)
{
	*ret_count = 1;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	*device = ordinal;
	return ordinal ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	*uuid = device_uuid;
	return CUDA_SUCCESS;
}

/* Other interposers ask for these two. */
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
	return cuDeviceGetUuid_v2(uuid, device);
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	*value = 1;
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	*bytes = NULL_DEVICE_BYTES;
	return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice device)
{
	current = *ctx = (CUcontext)&current;
	return CUDA_SUCCESS;
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	current = NULL;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *ctx)
{
	*ctx = current;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
	*device = 0;
	return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device)
{
	if (failure)
		return failure;
	atomic_fetch_add(&primary_users, 1);
	*ctx = (CUcontext)&primary_users;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	atomic_fetch_sub(&primary_users, 1);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	atomic_store(&primary_users, 0);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
	*flags = 0;
	*active = atomic_load(&primary_users) > 0;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
	current = ctx;
	return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t size)
{
	count();
	*ptr = atomic_fetch_add_explicit(&next_address, ALIGN_UP(size, 512), memory_order_relaxed);
	return failure;
}

CUresult cuMemAlloc(CUdeviceptr_v1 *ptr, unsigned int size)
{
	CUdeviceptr wide;
	CUresult result = cuMemAlloc_v2(&wide, size);

	*ptr = (CUdeviceptr_v1)wide;
	return result;
}

/* Rows as long as asked, in steps of 512 bytes. */
CUresult cuMemAllocPitch_v2(CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height,
			    unsigned int element_size)
{
	*pitch = ALIGN_UP(width, 512);
	return cuMemAlloc_v2(ptr, *pitch * height);
}

CUresult cuMemAllocManaged(CUdeviceptr *ptr, size_t size, unsigned int flags)
{
	return cuMemAlloc_v2(ptr, size);
}

CUresult cuMemFree_v2(CUdeviceptr ptr)
{
	count();
	return failure;
}

CUresult cuMemFree(CUdeviceptr_v1 ptr)
{
	return cuMemFree_v2(ptr);
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	if (free_bytes)
		*free_bytes = NULL_DEVICE_BYTES;
	if (total)
		*total = NULL_DEVICE_BYTES;
	return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size)
{
	return CUDA_SUCCESS;
}

/* The next two say what reached them, as an odd result code: no register or stack argument may be
 * lost on the way. */
CUresult cuParamSetf(CUfunction function, int offset, float value)
{
	return (CUresult)((float)offset + value);
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
			unsigned int grid_z, unsigned int block_x, unsigned int block_y,
			unsigned int block_z, unsigned int shared_bytes, CUstream stream,
			void **params, void **extra)
{
	unsigned int sum = grid_x + 2 * grid_y + 3 * grid_z + 4 * block_x + 5 * block_y +
			   6 * block_z + 7 * shared_bytes;

	return (CUresult)(sum + (uintptr_t)function + (uintptr_t)stream + (uintptr_t)params +
			  (uintptr_t)extra);
}

/* Work is done when it is handed in: what a stream writes is there at once. */
CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
				 unsigned int flags)
{
	atomic_store_explicit((_Atomic uint32_t *)(uintptr_t)address, value, memory_order_release);
	return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void *pointer, size_t size, unsigned int flags)
{
	return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *pointer)
{
	return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *pointer, unsigned int flags)
{
	*address = (uintptr_t)pointer;
	return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream)
{
	return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *ctx)
{
	return cuCtxGetCurrent(ctx);
}

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
	*event = (CUevent)&calls;
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event)
{
	return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
	return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event)
{
	return CUDA_SUCCESS;
}

/* A kernel of one microsecond. */
CUresult cuEventElapsedTime(float *ms, CUevent begin, CUevent end)
{
	*ms = 0.001f;
	return CUDA_SUCCESS;
}

CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t bytes, CUstream stream)
{
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	return cuCtxSetCurrent(ctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext *ctx)
{
	*ctx = current;
	current = NULL;
	return CUDA_SUCCESS;
}

struct known {
	const char *name;
	int version; /* since which the name stands for this function */
	void *function;
};

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *status)
{
	static const struct known table[] = {
		{"cuMemAlloc", 3020, cuMemAlloc_v2},
		{"cuMemFree", 3020, cuMemFree_v2},
		{"cuInit", 2000, cuInit},
		{"cuNullOnly", 13000, cuNullOnly},
		{"cuLaunchKernel", 4000, cuLaunchKernel},
		{"cuGetProcAddress", 12000, cuGetProcAddress_v2},
		{"cuGetProcAddress", 11030, cuGetProcAddress},
		{"cuDriverGetVersion", 2020, cuDriverGetVersion},
	};

	*pfn = NULL;
	for (size_t i = 0; i < ARRAY_SIZE(table) && !*pfn; i++)
		if (strcmp(table[i].name, symbol) == 0 && version >= table[i].version)
			*pfn = table[i].function;
	if (status)
		*status = *pfn ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
	CUresult result = cuGetProcAddress_v2(symbol, pfn, version, flags, NULL);

	return result || *pfn ? result : CUDA_ERROR_NOT_FOUND;
}
