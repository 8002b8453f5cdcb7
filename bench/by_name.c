/* For peers that stand before dlsym alone: preloaded, it takes the driver calls of the bench's
 * programs, which are linked to the driver, and looks each up by its name, as the CUDA runtime does
 * for programs that use that. A call costs one jump more. */
#include <dlfcn.h>
#include <stddef.h>

#define NAMES(X)                       \
	X(cuArrayCreate_v2)            \
	X(cuArrayDestroy)              \
	X(cuCtxCreate_v2)              \
	X(cuCtxDestroy_v2)             \
	X(cuCtxSetCurrent)             \
	X(cuCtxSynchronize)            \
	X(cuDeviceGraphMemTrim)        \
	X(cuDevicePrimaryCtxRetain)    \
	X(cuDeviceTotalMem_v2)         \
	X(cuDriverGetVersion)          \
	X(cuEventCreate)               \
	X(cuEventRecord)               \
	X(cuEventSynchronize)          \
	X(cuGetProcAddress_v2)         \
	X(cuGraphAddMemAllocNode)      \
	X(cuGraphCreate)               \
	X(cuGraphDestroy)              \
	X(cuGraphInstantiateWithFlags) \
	X(cuGraphLaunch)               \
	X(cuInit)                      \
	X(cuLaunchKernel)              \
	X(cuMemAddressFree)            \
	X(cuMemAddressReserve)         \
	X(cuMemAllocAsync)             \
	X(cuMemAllocFromPoolAsync)     \
	X(cuMemAllocManaged)           \
	X(cuMemAllocPitch_v2)          \
	X(cuMemAlloc_v2)               \
	X(cuMemCreate)                 \
	X(cuMemFreeAsync)              \
	X(cuMemFree_v2)                \
	X(cuMemGetInfo_v2)             \
	X(cuMemMap)                    \
	X(cuMemPoolCreate)             \
	X(cuMemRelease)                \
	X(cuMemUnmap)                  \
	X(cuMemcpyDtoH_v2)             \
	X(cuMemcpyHtoD_v2)             \
	X(cuMemsetD8_v2)               \
	X(cuMipmappedArrayCreate)      \
	X(cuMipmappedArrayDestroy)     \
	X(cuModuleGetFunction)         \
	X(cuModuleLoadData)            \
	X(cuModuleUnload)              \
	X(cuStreamBeginCapture_v2)     \
	X(cuStreamCreate)              \
	X(cuStreamEndCapture)

#define SLOT(name) static void *slot_##name __attribute__((used));
NAMES(SLOT)

#define ENTRY(name)                                        \
	__asm__(".pushsection .text\n"                     \
		".globl " #name "\n"                       \
		".type " #name ", @function\n" #name ":\n" \
		"	endbr64\n"                               \
		"	jmp *slot_" #name "(%rip)\n"       \
		".size " #name ", . - " #name "\n"         \
		".popsection\n");
NAMES(ENTRY)

/* Before main: nothing in these programs uses the driver earlier. */
__attribute__((constructor)) static void slots_fill(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_LAZY);

	if (!driver)
		return;
#define FILL(name) slot_##name = dlsym(driver, #name);
	NAMES(FILL)
}
