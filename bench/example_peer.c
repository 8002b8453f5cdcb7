/* The smallest interposer: what --peer of scripts/bench takes. Preloaded, it makes one system call
 * before every allocation; all else goes past it. The tests of the bench know what it costs. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cuda_abi.h"

typedef CUresult (*alloc_function)(CUdeviceptr *ptr, size_t size);

__attribute__((visibility("default"))) CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t size)
{
	static _Atomic(alloc_function) real;
	alloc_function function = atomic_load(&real);

	if (!function) {
		function = (alloc_function)dlsym(RTLD_NEXT, "cuMemAlloc_v2");
		atomic_store(&real, function);
	}
	syscall(SYS_getppid);
	return function(ptr, size);
}
