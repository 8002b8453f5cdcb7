/* Functions that no table of carve's has, done by older ones of the driver behind. */
#include <dlfcn.h>
#include <string.h>

#include "base/cuda_abi.h"

#define EXPORTED __attribute__((visibility("default")))

EXPORTED CUresult cuMemTakeNewest(CUdeviceptr *at, size_t bytes);

/* By its handle: by name alone it would be the front's. */
static void *behind(const char *name)
{
	static void *library;

	if (!library)
		library = dlopen("libcudanewest.so.1", RTLD_NOW | RTLD_NOLOAD);
	return dlsym(library, name);
}

CUresult cuMemTakeNewest(CUdeviceptr *at, size_t bytes)
{
	__typeof__(cuMemAlloc_v2) *alloc = (__typeof__(cuMemAlloc_v2) *)behind("cuMemAlloc_v2");

	return alloc(at, bytes);
}

EXPORTED CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version,
				      cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	__typeof__(cuGetProcAddress_v2) *get =
		(__typeof__(cuGetProcAddress_v2) *)behind("cuGetProcAddress_v2");

	if (strcmp(symbol, "cuMemTakeNewest") != 0)
		return get(symbol, function, version, flags, status);
	*function = (void *)cuMemTakeNewest;
	if (status)
		*status = CU_GET_PROC_ADDRESS_SUCCESS;
	return CUDA_SUCCESS;
}
