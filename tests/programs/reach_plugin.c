/* A program's plugin: linked with the driver, or (REACH_OPENS) one that opens it itself. */
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "base/cuda_abi.h"
#include "base/macros.h"

__attribute__((visibility("default"))) void *reach_plugin_find(const char *name,
							       const char *library);

#ifdef REACH_OPENS

void *reach_plugin_find(const char *name, const char *library)
{
	return dlsym(dlopen(library, RTLD_NOW), name);
}

#else

static const struct {
	const char *name;
	void *function;
} linked[] = {
	{"cuInit", (void *)cuInit},
	{"cuDeviceTotalMem_v2", (void *)cuDeviceTotalMem_v2},
	{"cuDevicePrimaryCtxRetain", (void *)cuDevicePrimaryCtxRetain},
	{"cuCtxSetCurrent", (void *)cuCtxSetCurrent},
	{"cuMemAlloc_v2", (void *)cuMemAlloc_v2},
};

void *reach_plugin_find(const char *name, const char *library)
{
	for (size_t i = 0; i < ARRAY_SIZE(linked); i++)
		if (strcmp(linked[i].name, name) == 0)
			return linked[i].function;
	return NULL;
}

#endif
