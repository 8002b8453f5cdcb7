/* Modules, libraries, green contexts. */
#include "front/books.h"
#include "front/cuda/charge/grow.h"
#include "front/cuda/charge/implicit.h"
#include "front/cuda/charge/library_use.h"
#include "front/cuda/charge/local.h"
#include "front/cuda/hooks.h"

/* A module or a library, whose image says what it takes. */
#define LOAD(image, handle, refusal, call, undo, number) \
	TAKING(OBJECT_IMAGE, image, REFUSED(refusal, handle, call), call, undo, (uintptr_t)(number))

/* The outputs that a program finds where its image is refused before the driver's compiler saw it:
 * logs without text. The compiler writes how long they are in place of the room that there was. */
static CUresult refusal_without_logs(unsigned int count, const CUjit_option *options, void **values)
{
	for (unsigned int i = 0; options && values && i < count; i++)
		if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES ||
		    options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
			values[i] = NULL;
	return charge_refusal();
}

CUresult hook_cuModuleLoad(CUmodule *module, const char *path)
{
	LOAD(image_of_file(path), module, charge_refusal(), real_cuModuleLoad(module, path),
	     real_cuModuleUnload(*module), *module);
}

CUresult hook_cuModuleLoadData(CUmodule *module, const void *image)
{
	LOAD(image_in_memory(image), module, charge_refusal(), real_cuModuleLoadData(module, image),
	     real_cuModuleUnload(*module), *module);
}

CUresult hook_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count,
				 CUjit_option *options, void **values)
{
	LOAD(image_in_memory(image), module, refusal_without_logs(count, options, values),
	     real_cuModuleLoadDataEx(module, image, count, options, values),
	     real_cuModuleUnload(*module), *module);
}

CUresult hook_cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
	LOAD(image_in_memory(image), module, charge_refusal(),
	     real_cuModuleLoadFatBinary(module, image), real_cuModuleUnload(*module), *module);
}

/* A driver that loads lazily takes a library's memory where that is first used. Where there is no
 * room for it now, it is loaded as on a GPU of that size, and its first use is refused. */
static bool is_loaded_later(struct image_memory expected)
{
	struct process *p = process_peek();
	int gpu = p && expected.surely ? charge_current_gpu(p) : -1;
	CUmoduleLoadingMode mode;

	return gpu >= 0 && books_free(p, (uint32_t)gpu) < books_blocks(expected.surely) &&
	       real_cuModuleGetLoadingMode(&mode) == CUDA_SUCCESS && mode == CU_MODULE_LAZY_LOADING;
}

/* From a file, by its name, or an image. */
static CUresult driver_load(CUlibrary *library, bool file, const void *source,
			    CUjit_option *jit_options, void **jit_values, unsigned int jit_count,
			    CUlibraryOption *options, void **values, unsigned int count)
{
	return file ? real_cuLibraryLoadFromFile(library, source, jit_options, jit_values,
						 jit_count, options, values, count)
		    : real_cuLibraryLoadData(library, source, jit_options, jit_values, jit_count,
					     options, values, count);
}

/* The library; where the driver had less free afterwards by what it surely takes, it is taken. */
static uintptr_t loaded(CUlibrary library, const struct implicit *i, struct image_memory expected,
			enum library_part *part)
{
	if (i->free_before > i->free_after &&
	    i->free_before - i->free_after >= books_blocks(expected.surely))
		*part = LIBRARY_TAKEN;
	return (uintptr_t)library;
}

static CUresult library_take(CUlibrary *library, struct image_memory expected,
			     enum library_part *part, bool file, const void *source,
			     CUjit_option *jit_options, void **jit_values, unsigned int jit_count,
			     CUlibraryOption *options, void **values, unsigned int count)
{
	LOAD(*part == LIBRARY_NOWHERE ? (struct image_memory){0} : expected, library,
	     refusal_without_logs(jit_count, jit_options, jit_values),
	     driver_load(library, file, source, jit_options, jit_values, jit_count, options, values,
			 count),
	     real_cuLibraryUnload(*library), loaded(*library, &i, expected, part));
}

static CUresult library_load(CUlibrary *library, struct image_memory expected, bool file,
			     const void *source, CUjit_option *jit_options, void **jit_values,
			     unsigned int jit_count, CUlibraryOption *options, void **values,
			     unsigned int count)
{
	enum library_part part = is_loaded_later(expected) ? LIBRARY_NOWHERE : LIBRARY_RESERVED;
	CUresult result = library_take(library, expected, &part, file, source, jit_options,
				       jit_values, jit_count, options, values, count);

	if (result == CUDA_SUCCESS)
		library_loaded((uintptr_t)*library, expected, part);
	return result;
}

CUresult hook_cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *jit_options,
				void **jit_values, unsigned int jit_count, CUlibraryOption *options,
				void **values, unsigned int count)
{
	return library_load(library, image_in_memory(image), false, image, jit_options, jit_values,
			    jit_count, options, values, count);
}

CUresult hook_cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit_options,
				    void **jit_values, unsigned int jit_count,
				    CUlibraryOption *options, void **values, unsigned int count)
{
	return library_load(library, image_of_file(path), true, path, jit_options, jit_values,
			    jit_count, options, values, count);
}

/* A part of a device's primary context, which was charged when that was made. */
CUresult hook_cuGreenCtxCreate(CUgreenCtx *context, CUdevResourceDesc resources, CUdevice device,
			       unsigned int flags)
{
	LOAD((struct image_memory){0}, context, charge_refusal(),
	     real_cuGreenCtxCreate(context, resources, device, flags),
	     real_cuGreenCtxDestroy(*context), *context);
}

/* Memory of an unloaded module is the slice's again at once, not only when the daemon looks next.
 * The driver may keep some of it: that is the daemon's to say. */
#define UNLOAD(handle, call, begin, end)                            \
	struct implicit i;                                          \
	struct giving g;                                            \
	implicit_begin(&i, OBJECT_IMAGE, (struct image_memory){0}); \
	begin;                                                      \
	giving_begin(&g, OBJECT_IMAGE, (uintptr_t)(handle));        \
	g.in_call = i.process != NULL;                              \
	CUresult result = call;                                     \
	g.object.exported = result == CUDA_SUCCESS;                 \
	if (result == CUDA_SUCCESS)                                 \
		local_forget((uintptr_t)(handle));                  \
	giving_end(&g, result);                                     \
	end;                                                        \
	bool settled = g.process && g.object.bytes;                 \
	if (result == CUDA_SUCCESS && i.process && !settled &&      \
	    (g.process || implicit_driver_free() > i.free_before))  \
		grow_settle_in_call(i.process, i.gpu, NULL);        \
	return implicit_done(&i, result, 0)

CUresult hook_cuModuleUnload(CUmodule module)
{
	UNLOAD(module, real_cuModuleUnload(module), (void)0, (void)0);
}

CUresult hook_cuLibraryUnload(CUlibrary library)
{
	struct library_unloading others;

	UNLOAD(library, real_cuLibraryUnload(library),
	       library_unload_begin(&others, (uintptr_t)library, i.process != NULL),
	       library_unload_end(&others, result));
}

CUresult hook_cuGreenCtxDestroy(CUgreenCtx context)
{
	UNLOAD(context, real_cuGreenCtxDestroy(context), (void)0, (void)0);
}
