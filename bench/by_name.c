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
	X(cuDeviceGetUuid_v2)          \
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

typedef void *lookup_fn(void *handle, const char *name);

/* The C library's own, whoever stands before it. */
static lookup_fn *lookup_plain(void)
{
	void *libc = dlopen("libc.so.6", RTLD_LAZY);
	lookup_fn *found;

	*(void **)&found = libc ? dlvsym(libc, "dlsym", "GLIBC_2.34") : NULL;
	if (libc && !found)
		*(void **)&found = dlvsym(libc, "dlsym", "GLIBC_2.2.5");
	return found;
}

/* The function that a program is given which looks for that name, but for the entry above: a peer
 * that answers with the process's function of that name means its own, and gets what comes first,
 * which is this one. */
static void *function_find(void *driver, lookup_fn *plain, const char *name)
{
	void *own = plain ? plain(RTLD_DEFAULT, name) : NULL, *found = dlsym(driver, name);

	return found && found == own ? plain(RTLD_NEXT, name) : found;
}

/* Before main: nothing in these programs uses the driver earlier. */
__attribute__((constructor)) static void slots_fill(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
	lookup_fn *plain = lookup_plain();

	if (!driver)
		return;
#define FILL(name) slot_##name = function_find(driver, plain, #name);
	NAMES(FILL)
}
