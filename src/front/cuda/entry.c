#include "front/cuda/hooks.h"
#include "front/driver.h"

CUDA_HOOKS(CUDA_HOOK_DECLARE)

/* Programs get most entry points here. The driver chooses by name, version and flags; what it chose
 * is replaced where it is a function that the front hooks, whatever it was asked for. */
CUresult hook_cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
	CUresult result = real_cuGetProcAddress(symbol, pfn, version, flags);

	if (result == CUDA_SUCCESS && pfn && *pfn)
		*pfn = driver_hook_for(*pfn);
	return result;
}

CUresult hook_cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
				  CUdriverProcAddressQueryResult *status)
{
	CUresult result = real_cuGetProcAddress_v2(symbol, pfn, version, flags, status);

	if (result == CUDA_SUCCESS && pfn && *pfn)
		*pfn = driver_hook_for(*pfn);
	return result;
}
