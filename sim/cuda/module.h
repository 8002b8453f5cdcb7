/* Modules and their functions. */
#pragma once

#include "base/cuda_abi.h"
#include "ptx/ptx.h"

struct CUfunc_st {
	CUmodule module;
	size_t index; /* in the ptx_module */
	const struct ptx_kernel_info *info;
	int dynamic_shared_max; /* bytes, as set by the program */
	int carveout;
	CUfunc_cache cache_config;
	/* The old way of launching: cuFuncSetBlockShape, cuParamSet*, cuLaunch*. */
	int block[3];
	unsigned int shared_size, param_size;
	unsigned char params[4096];
};

struct CUmod_st {
	CUmodule next; /* the next one of its context; under driver.lock */
	CUcontext ctx;
	struct ptx_module *ptx;
	bool reads_clock;    /* its kernels can tell when they run */
	uint64_t code;       /* address of what stands for its code */
	uint64_t *addresses; /* its variables' addresses */
	size_t variable_count;
	size_t function_count;
	struct CUfunc_st *functions;
	CUlibrary library;     /* NULL: loaded by cuModuleLoad* */
	CUmodule library_next; /* the next one of its library, in other contexts; under driver.lock
				*/
};

/* The wishes of JIT options, and their results. */
struct jit_log {
	char *info, *error;
	size_t info_size, error_size;
	void **info_size_at, **error_size_at; /* where to write how much was used */
};

CUresult jit_options_parse(unsigned int count, const CUjit_option *options, void **values,
			   struct jit_log *ret);
/* Finds PTX text in an image: text itself, or the newest PTX in a fat binary. CUDA_ERROR_* where
 * there is none. *ret_text is malloc'ed and NUL-terminated. */
CUresult image_text(const void *image, char **ret_text);
/* Makes a module of PTX texts in a context. */
CUresult module_build(CUcontext ctx, const struct ptx_source *sources, size_t count,
		      const struct jit_log *log, CUmodule *ret);
/* Compiles the sources and throws the result away: for the errors. */
CUresult sources_check(CUcontext ctx, const struct ptx_source *sources, size_t count,
		       const struct jit_log *log);
/* NULL: no such function. */
CUfunction module_function(CUmodule module, const char *name);
/* Lazy, unless CUDA_MODULE_LOADING says EAGER: whether a library is loaded into the current context
 * at once. Modules always are. */
CUmoduleLoadingMode module_loading_mode(void);
CUresult module_global(CUmodule module, const char *name, CUdeviceptr *address, size_t *size);
void module_destroy(CUmodule module);
/* The function that a CUfunction or a CUkernel handle means in the context, or NULL. */
CUfunction function_resolve(CUcontext ctx, CUfunction handle);
