/* Preloaded after the front into a program of an older system: opens the driver by name (linked: is
 * linked to it) and calls it, as soon as it is loaded. Says on stderr how that went. Built for any
 * glibc since 2.2.5. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cuda_abi.h"

static __typeof__(cuInit) *init;
static __typeof__(cuCtxCreate_v2) *create;
static __typeof__(cuMemAlloc_v2) *alloc;

#ifdef PROBE_LINKED

static const char *find(void)
{
	init = cuInit;
	create = cuCtxCreate_v2;
	alloc = cuMemAlloc_v2;
	return NULL;
}

#else

__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");

static const char *find(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	if (!library)
		return "the driver was not found";
	init = (__typeof__(cuInit) *)dlsym(library, "cuInit");
	create = (__typeof__(cuCtxCreate_v2) *)dlsym(library, "cuCtxCreate_v2");
	alloc = (__typeof__(cuMemAlloc_v2) *)dlsym(library, "cuMemAlloc_v2");
	return init && create && alloc ? NULL : "the driver's functions were not found";
}

#endif

static const char *probe(void)
{
	const char *wrong = find();
	CUcontext context;
	CUdeviceptr ptr;

	if (wrong)
		return wrong;
	if (init(0) != CUDA_SUCCESS || create(&context, 0, 0) != CUDA_SUCCESS)
		return "the driver could not be initialised";
	if (alloc(&ptr, 512ul << 20) != CUDA_SUCCESS || alloc(&ptr, 512ul << 20) != CUDA_SUCCESS)
		return "the slice refused what fits";
	if (alloc(&ptr, 1) != CUDA_ERROR_OUT_OF_MEMORY)
		return "the slice does not hold";
	return "the slice holds";
}

__attribute__((constructor)) static void probe_and_say(void)
{
	const char *said = probe();

	if (write(STDERR_FILENO, said, strlen(said)) < 0 || write(STDERR_FILENO, "\n", 1) < 0)
		return;
}
