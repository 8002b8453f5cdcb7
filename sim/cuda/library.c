/* Libraries (cuLibrary*, cuKernel*): code loaded once, a module in each context that uses it. */
#include "cuda/library.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cuda/context.h"
#include "cuda/handle.h"
#include "cuda/memory.h"

struct CUkern_st {
	CUlibrary library;
	char *name;
};

struct CUlib_st {
	char *text;
	size_t kernel_count;
	struct CUkern_st *kernels;
	struct ptx_module *ptx; /* for names alone: never bound, never run */
	CUmodule modules;       /* in each context that uses it; under driver.lock */
};

static void library_gain(CUlibrary library, CUmodule module)
{
	pthread_mutex_lock(&driver.lock);
	module->library = library;
	module->library_next = library->modules;
	library->modules = module;
	pthread_mutex_unlock(&driver.lock);
}

void library_lose(CUlibrary library, CUmodule module)
{
	pthread_mutex_lock(&driver.lock);
	for (CUmodule *link = &library->modules; *link; link = &(*link)->library_next) {
		if (*link == module) {
			*link = module->library_next;
			break;
		}
	}
	pthread_mutex_unlock(&driver.lock);
}

/* The library's module in the context, loaded there on first use. */
static CUresult library_module(CUcontext ctx, CUlibrary library, CUmodule *ret)
{
	const struct ptx_source source = {.text = library->text, .length = strlen(library->text)};
	struct jit_log log = {0};
	CUmodule module;

	pthread_mutex_lock(&driver.lock);
	for (module = ctx->modules; module; module = module->next)
		if (module->library == library)
			break;
	pthread_mutex_unlock(&driver.lock);
	CUresult result = CUDA_SUCCESS;
	if (!module) {
		result = module_build(ctx, &source, 1, &log, &module);
		if (result == CUDA_SUCCESS)
			library_gain(library, module);
	}
	*ret = module;
	return result;
}

CUfunction kernel_function(CUcontext ctx, CUkernel kernel)
{
	CUmodule module;

	return library_module(ctx, kernel->library, &module) == CUDA_SUCCESS
		       ? module_function(module, kernel->name)
		       : NULL;
}

static void library_free(CUlibrary library)
{
	handle_remove(library);
	for (size_t i = 0; i < library->kernel_count; i++) {
		handle_remove(&library->kernels[i]);
		free(library->kernels[i].name);
	}
	ptx_module_free(library->ptx);
	free(library->kernels);
	free(library->text);
	free(library);
}

static CUresult library_open(CUcontext ctx, CUlibrary library)
{
	const struct ptx_source source = {.text = library->text, .length = strlen(library->text)};
	const struct ptx_options options = {.sm = ctx->device->model->cc_major * 10 +
						  ctx->device->model->cc_minor};

	if (ptx_module_compile(&source, 1, &options, NULL, 0, &library->ptx) < 0)
		return CUDA_ERROR_INVALID_PTX;
	size_t count = ptx_module_kernel_count(library->ptx);
	library->kernels = calloc(count + 1, sizeof(library->kernels[0]));
	if (!library->kernels)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; i < count; i++) {
		struct CUkern_st *kernel = &library->kernels[i];

		kernel->library = library;
		kernel->name = strdup(ptx_module_kernel(library->ptx, i)->name);
		library->kernel_count++;
		if (!kernel->name || !handle_add(kernel, HANDLE_KERNEL))
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return handle_add(library, HANDLE_LIBRARY) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options,
			   void **jit_values, unsigned int jit_count, CUlibraryOption *options,
			   void **values, unsigned int count)
{
	API_BEGIN_CONTEXT(ctx);
	if (!library || !code)
		return CUDA_ERROR_INVALID_VALUE;
	CUlibrary made = calloc(1, sizeof(*made));
	CUmodule module;
	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = image_text(code, &made->text);
	if (result == CUDA_SUCCESS)
		result = library_open(ctx, made);
	if (result == CUDA_SUCCESS && module_loading_mode() == CU_MODULE_EAGER_LOADING)
		result = library_module(ctx, made, &module);
	if (result != CUDA_SUCCESS) {
		library_free(made);
		return result;
	}
	*library = made;
	return CUDA_SUCCESS;
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit_options,
			       void **jit_values, unsigned int jit_count, CUlibraryOption *options,
			       void **values, unsigned int count)
{
	cleanup_free void *data = NULL;
	size_t size;

	API_BEGIN_CONTEXT(ctx);
	if (!library || !path)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = image_read(path, &data, &size);
	return result == CUDA_SUCCESS ? cuLibraryLoadData(library, data, jit_options, jit_values,
							  jit_count, options, values, count)
				      : result;
}

CUresult cuLibraryUnload(CUlibrary library)
{
	CUmodule found;

	API_BEGIN_CONTEXT(ctx);
	if (!handle_is(library, HANDLE_LIBRARY))
		return CUDA_ERROR_INVALID_HANDLE;
	do {
		pthread_mutex_lock(&driver.lock);
		found = library->modules;
		pthread_mutex_unlock(&driver.lock);
		if (found) {
			context_synchronize(found->ctx);
			module_destroy(found);
		}
	} while (found);
	library_free(library);
	return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
	API_BEGIN_CONTEXT(ctx);
	if (!kernel || !name)
		return CUDA_ERROR_INVALID_VALUE;
	if (!handle_is(library, HANDLE_LIBRARY))
		return CUDA_ERROR_INVALID_HANDLE;
	for (size_t i = 0; i < library->kernel_count; i++) {
		if (strcmp(library->kernels[i].name, name) != 0)
			continue;
		*kernel = &library->kernels[i];
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_NOT_FOUND;
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary library)
{
	API_BEGIN_CONTEXT(ctx);
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	if (!handle_is(library, HANDLE_LIBRARY))
		return CUDA_ERROR_INVALID_HANDLE;
	*count = (unsigned int)library->kernel_count;
	return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int count, CUlibrary library)
{
	API_BEGIN_CONTEXT(ctx);
	if (!kernels || !count)
		return CUDA_ERROR_INVALID_VALUE;
	if (!handle_is(library, HANDLE_LIBRARY))
		return CUDA_ERROR_INVALID_HANDLE;
	for (size_t i = 0; i < count && i < library->kernel_count; i++)
		kernels[i] = &library->kernels[i];
	return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
	API_BEGIN_CONTEXT(ctx);
	if (!module)
		return CUDA_ERROR_INVALID_VALUE;
	if (!handle_is(library, HANDLE_LIBRARY))
		return CUDA_ERROR_INVALID_HANDLE;
	return library_module(ctx, library, module);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *size, CUlibrary library, const char *name)
{
	CUmodule module;

	if (!name || (!address && !size))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = cuLibraryGetModule(&module, library);
	return result == CUDA_SUCCESS ? module_global(module, name, address, size) : result;
}

CUresult cuLibraryGetManaged(CUdeviceptr *address, size_t *size, CUlibrary library,
			     const char *name)
{
	API_BEGIN_CONTEXT(ctx);
	if (!handle_is(library, HANDLE_LIBRARY))
		return CUDA_ERROR_INVALID_HANDLE;
	return CUDA_ERROR_NOT_FOUND; /* PTX has no managed variables that are simulated */
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
	API_BEGIN_CONTEXT(ctx);
	if (!function)
		return CUDA_ERROR_INVALID_VALUE;
	if (!handle_is(kernel, HANDLE_KERNEL))
		return CUDA_ERROR_INVALID_HANDLE;
	CUmodule module;
	CUresult result = library_module(ctx, kernel->library, &module);
	if (result != CUDA_SUCCESS)
		return result;
	CUfunction found = module_function(module, kernel->name);
	if (!found)
		return CUDA_ERROR_NOT_FOUND;
	*function = found;
	return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel)
{
	API_BEGIN_CONTEXT(ctx);
	if (!library)
		return CUDA_ERROR_INVALID_VALUE;
	if (!handle_is(kernel, HANDLE_KERNEL))
		return CUDA_ERROR_INVALID_HANDLE;
	*library = kernel->library;
	return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
	API_BEGIN_CONTEXT(ctx);
	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	if (!handle_is(kernel, HANDLE_KERNEL))
		return CUDA_ERROR_INVALID_HANDLE;
	*name = kernel->name;
	return CUDA_SUCCESS;
}
