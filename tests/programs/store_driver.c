/* As WSL's /usr/lib/wsl/lib/libcuda.so.1: opens the library of the driver store, whose name begins
 * as its own, and passes calls on. STORE_DRIVER is that library's path. */
#include <dlfcn.h>
#include <stdlib.h>

__attribute__((visibility("default"))) int cuInit(unsigned int flags);

int cuInit(unsigned int flags)
{
	// NOLINTNEXTLINE(concurrency-mt-unsafe): never changed
	void *store = dlopen(getenv("STORE_DRIVER"), RTLD_NOW | RTLD_LOCAL);
	int (*next)(unsigned int) = store ? dlsym(store, "cuInit") : NULL;

	return next ? next(flags) : 500; /* not found */
}
