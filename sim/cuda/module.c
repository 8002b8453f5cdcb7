/* Modules: from PTX text to kernels and variables that have addresses. */
#include "cuda/module.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/macros.h"
#include "cuda/context.h"
#include "cuda/handle.h"
#include "cuda/library.h"
#include "cuda/memory.h"
#include "cuda/parts.h"

#define LOG_SIZE 8192

CUresult jit_options_parse(unsigned int count, const CUjit_option *options, void **values,
			   struct jit_log *ret)
{
	*ret = (struct jit_log){0};
	if (count && (!options || !values))
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count; i++) {
		switch (options[i]) {
		case CU_JIT_INFO_LOG_BUFFER:
			ret->info = values[i];
			break;
		case CU_JIT_ERROR_LOG_BUFFER:
			ret->error = values[i];
			break;
		case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
			ret->info_size = (uint32_t)(uintptr_t)values[i];
			ret->info_size_at = &values[i];
			break;
		case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
			ret->error_size = (uint32_t)(uintptr_t)values[i];
			ret->error_size_at = &values[i];
			break;
		case CU_JIT_WALL_TIME: {
			float ms = 0;

			memcpy(&values[i], &ms, sizeof(ms));
			break;
		}
		case CU_JIT_TARGET:
		case CU_JIT_OPTIMIZATION_LEVEL:
		case CU_JIT_MAX_REGISTERS:
		default: /* they change the code's quality, not what it does */
			break;
		}
	}
	return CUDA_SUCCESS;
}

/* Writes text to a log of the program's, and how much. */
static void log_write(char *log, size_t size, void **size_at, const char *text)
{
	size_t n = 0;

	if (log && size) {
		snprintf(log, size, "%s", text);
		n = strlen(log);
	}
	if (size_at)
		*size_at = (void *)(uintptr_t)n;
}

static CUresult result_of_compile(int status)
{
	switch (status) {
	case 0:
		return CUDA_SUCCESS;
	case -ENOTSUP:
		return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
	case -ENOMEM:
		return CUDA_ERROR_OUT_OF_MEMORY;
	default:
		return CUDA_ERROR_INVALID_PTX;
	}
}

static CUresult compile(CUcontext ctx, const struct ptx_source *sources, size_t count,
			const struct jit_log *log, struct ptx_module **ret)
{
	const struct sim_model *model = ctx->device->model;
	const struct ptx_options options = {.sm = model->cc_major * 10 + model->cc_minor};
	cleanup_free char *text = calloc(1, LOG_SIZE);

	if (!text)
		return CUDA_ERROR_OUT_OF_MEMORY;
	int status = ptx_module_compile(sources, count, &options, text, LOG_SIZE, ret);
	log_write(log->error, log->error_size, log->error_size_at, status ? text : "");
	log_write(log->info, log->info_size, log->info_size_at, "");
	return result_of_compile(status);
}

CUresult sources_check(CUcontext ctx, const struct ptx_source *sources, size_t count,
		       const struct jit_log *log)
{
	struct ptx_module *ptx;
	CUresult result = compile(ctx, sources, count, log, &ptx);

	if (result == CUDA_SUCCESS)
		ptx_module_free(ptx);
	return result;
}

/* Machine code is about as long as its PTX; it is never read. */
static CUresult code_place(CUmodule module, const struct ptx_source *sources, size_t count)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < count; i++)
		bytes += sources[i].length;
	return linear_alloc(module->ctx, MAX(bytes, 1), WIRE_MEMORY_MODULE, RANGE_MODULE,
			    &module->code);
}

/* Places the module's variables and writes their first values. */
static CUresult variables_place(CUmodule module)
{
	size_t count = ptx_module_variable_count(module->ptx);
	CUresult result = CUDA_SUCCESS;

	module->addresses = calloc(count + 1, sizeof(module->addresses[0]));
	if (!module->addresses)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
		result = linear_alloc(module->ctx, ptx_module_variable(module->ptx, i)->size,
				      WIRE_MEMORY_MODULE, RANGE_MODULE, &module->addresses[i]);
		if (result == CUDA_SUCCESS)
			module->variable_count++;
	}
	if (result == CUDA_SUCCESS && ptx_module_bind(module->ptx, module->addresses, count) < 0)
		result = CUDA_ERROR_INVALID_IMAGE;
	for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
		struct range range;

		if (!range_find(module->addresses[i], &range))
			continue;
		memory_zero(range.host, ptx_module_variable(module->ptx, i)->size);
		ptx_module_variable_init(module->ptx, i, range.host);
	}
	return result;
}

static CUresult functions_make(CUmodule module)
{
	size_t count = ptx_module_kernel_count(module->ptx);

	module->functions = calloc(count + 1, sizeof(module->functions[0]));
	if (!module->functions)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; i < count; i++) {
		struct CUfunc_st *f = &module->functions[i];

		f->module = module;
		f->index = i;
		f->info = ptx_module_kernel(module->ptx, i);
		f->carveout = CU_SHAREDMEM_CARVEOUT_DEFAULT;
		f->block[0] = f->block[1] = f->block[2] = 1;
		if (!handle_add(f, HANDLE_FUNCTION))
			return CUDA_ERROR_OUT_OF_MEMORY;
		module->function_count++;
	}
	return CUDA_SUCCESS;
}

static bool text_reads_clock(const char *text)
{
	return strstr(text, "%globaltimer") || strstr(text, "%clock");
}

static void module_free(CUmodule module)
{
	struct range range;

	if (module->library)
		library_lose(module->library, module);
	handle_remove(module);
	for (size_t i = 0; i < module->function_count; i++)
		handle_remove(&module->functions[i]);
	if (module->code && range_remove(module->code, RANGE_MODULE, &range))
		memory_release(&range);
	for (size_t i = 0; i < module->variable_count; i++)
		if (range_remove(module->addresses[i], RANGE_MODULE, &range))
			memory_release(&range);
	ptx_module_free(module->ptx);
	free(module->functions);
	free(module->addresses);
	free(module);
}

CUresult module_build(CUcontext ctx, const struct ptx_source *sources, size_t count,
		      const struct jit_log *log, CUmodule *ret)
{
	CUmodule module = calloc(1, sizeof(*module));

	if (!module)
		return CUDA_ERROR_OUT_OF_MEMORY;
	module->ctx = ctx;
	for (size_t i = 0; i < count; i++)
		module->reads_clock = module->reads_clock || text_reads_clock(sources[i].text);
	CUresult result = compile(ctx, sources, count, log, &module->ptx);
	if (result == CUDA_SUCCESS)
		result = code_place(module, sources, count);
	if (result == CUDA_SUCCESS)
		result = variables_place(module);
	if (result == CUDA_SUCCESS)
		result = functions_make(module);
	if (result == CUDA_SUCCESS && !handle_add(module, HANDLE_MODULE))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result != CUDA_SUCCESS) {
		module_free(module);
		return result;
	}
	pthread_mutex_lock(&driver.lock);
	module->next = ctx->modules;
	ctx->modules = module;
	pthread_mutex_unlock(&driver.lock);
	*ret = module;
	return CUDA_SUCCESS;
}

void module_destroy(CUmodule module)
{
	pthread_mutex_lock(&driver.lock);
	for (CUmodule *link = &module->ctx->modules; *link; link = &(*link)->next) {
		if (*link == module) {
			*link = module->next;
			break;
		}
	}
	pthread_mutex_unlock(&driver.lock);
	module_free(module);
}

void modules_destroy_all(CUcontext ctx)
{
	CUmodule list, next;

	pthread_mutex_lock(&driver.lock);
	list = ctx->modules;
	ctx->modules = NULL;
	pthread_mutex_unlock(&driver.lock);
	for (; list; list = next) {
		next = list->next;
		module_free(list);
	}
}

CUfunction module_function(CUmodule module, const char *name)
{
	int index = ptx_module_kernel_find(module->ptx, name);

	return index < 0 ? NULL : &module->functions[index];
}

CUresult module_global(CUmodule module, const char *name, CUdeviceptr *address, size_t *size)
{
	/* Compilers leave .visible away in whole programs, and the vendor's driver finds those too.
	 */
	int index = ptx_module_variable_find(module->ptx, name);

	if (index < 0)
		return CUDA_ERROR_NOT_FOUND;
	if (address)
		*address = module->addresses[index];
	if (size)
		*size = ptx_module_variable(module->ptx, (size_t)index)->size;
	return CUDA_SUCCESS;
}

static bool is_linked(const void *image)
{
	uint32_t magic;

	memcpy(&magic, image, sizeof(magic));
	return magic == LINKED_IMAGE_MAGIC;
}

static CUresult linked_load(CUcontext ctx, const struct linked_image *image,
			    const struct jit_log *log, CUmodule *ret)
{
	struct ptx_source *sources = calloc(image->count, sizeof(*sources));
	const char *at = (const char *)(image + 1);

	if (!sources)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < image->count; i++) {
		sources[i] = (struct ptx_source){.text = at, .length = strlen(at)};
		at += sources[i].length + 1;
	}
	CUresult result = module_build(ctx, sources, image->count, log, ret);
	free(sources);
	return result;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count,
			    CUjit_option *options, void **values)
{
	struct jit_log log;
	cleanup_free char *text = NULL;

	API_BEGIN_CONTEXT(ctx);
	if (!module || !image)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = jit_options_parse(count, options, values, &log);
	if (result == CUDA_SUCCESS && is_linked(image))
		return linked_load(ctx, image, &log, module);
	if (result == CUDA_SUCCESS)
		result = image_text(image, &text);
	if (result != CUDA_SUCCESS)
		return result;
	struct ptx_source source = {.text = text, .length = strlen(text)};
	return module_build(ctx, &source, 1, &log, module);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
	return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

CUresult cuModuleLoad(CUmodule *module, const char *path)
{
	cleanup_free void *data = NULL;
	size_t size;

	API_BEGIN_CONTEXT(ctx);
	if (!module || !path)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = image_read(path, &data, &size);
	return result == CUDA_SUCCESS ? cuModuleLoadData(module, data) : result;
}

CUresult cuModuleUnload(CUmodule module)
{
	API_BEGIN_CONTEXT(ctx);
	if (!handle_is(module, HANDLE_MODULE) || module->library)
		return CUDA_ERROR_INVALID_HANDLE;
	context_synchronize(module->ctx);
	module_destroy(module);
	return CUDA_SUCCESS;
}

CUmoduleLoadingMode module_loading_mode(void)
{
	const char *given =
		getenv("CUDA_MODULE_LOADING"); // NOLINT(concurrency-mt-unsafe): as cuInit is

	return given && strcmp(given, "EAGER") == 0 ? CU_MODULE_EAGER_LOADING
						    : CU_MODULE_LAZY_LOADING;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	API_BEGIN();
	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	*mode = module_loading_mode();
	return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	API_BEGIN_CONTEXT(ctx);
	if (!function || !name)
		return CUDA_ERROR_INVALID_VALUE;
	if (!handle_is(module, HANDLE_MODULE))
		return CUDA_ERROR_INVALID_HANDLE;
	CUfunction found = module_function(module, name);
	if (!found)
		return CUDA_ERROR_NOT_FOUND;
	*function = found;
	return CUDA_SUCCESS;
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule module)
{
	API_BEGIN_CONTEXT(ctx);
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	if (!handle_is(module, HANDLE_MODULE))
		return CUDA_ERROR_INVALID_HANDLE;
	*count = (unsigned int)module->function_count;
	return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int count, CUmodule module)
{
	API_BEGIN_CONTEXT(ctx);
	if (!functions || !count)
		return CUDA_ERROR_INVALID_VALUE;
	if (!handle_is(module, HANDLE_MODULE))
		return CUDA_ERROR_INVALID_HANDLE;
	for (size_t i = 0; i < count && i < module->function_count; i++)
		functions[i] = &module->functions[i];
	return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, CUmodule module, const char *name)
{
	API_BEGIN_CONTEXT(ctx);
	if (!name || (!address && !size))
		return CUDA_ERROR_INVALID_VALUE;
	if (!handle_is(module, HANDLE_MODULE))
		return CUDA_ERROR_INVALID_HANDLE;
	return module_global(module, name, address, size);
}
