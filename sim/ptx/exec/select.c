#include <stdlib.h>

#include "ptx/exec/exec.h"

/* SIMGPU_PTX_BASE in the environment: as if this were an old processor. For tests. */
const exec_fn *exec_handlers(void)
{
#ifdef PTX_HAVE_V3
	__builtin_cpu_init();
	/* The tests set it before the program starts. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	if (!getenv("SIMGPU_PTX_BASE") && __builtin_cpu_supports("avx2") &&
	    __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
	    __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt"))
		return exec_table_v3;
#endif
	return exec_table_base;
}
