/* Memory that the driver takes as a side effect and nobody can size: modules, libraries, limits.
 * Where the device's free memory fell over such a call, the daemon posts what the driver says this
 * process holds; what then passes the limit is undone and refused. Where it fell by more than the
 * slice has left, the call is undone first, and how much that gives back says whether it was this
 * call's: so that nothing is posted that others in the slice would be refused for. Another
 * process's allocation in the same moment costs one question to the daemon, or a second call, no
 * more. */
#include "base/macros.h"
#include "front/books.h"
#include "front/cuda/charge.h"
#include "front/cuda/hooks.h"

/* A call whose memory cannot be told from others' is made so often. */
#define TRIES_MOST 3

struct implicit {
	struct process *process; /* NULL: there is nothing to compare */
	int gpu;
	size_t free_before, free_after;
};

static size_t driver_free(void)
{
	size_t free_bytes = 0, total;

	return real_cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS ? free_bytes : 0;
}

/* On the current context's GPU. */
static void implicit_begin(struct implicit *i)
{
	i->free_after = 0;
	i->process = process_peek();
	i->gpu = i->process ? charge_current_gpu(i->process) : -1;
	i->free_before = i->gpu < 0 ? 0 : driver_free();
	if (i->gpu < 0)
		i->process = NULL;
	else
		books_call_begin(i->process);
}

/* True: it fitted. last: what the daemon says is taken for it. */
static bool implicit_end(struct implicit *i, bool last)
{
	i->free_after = i->process ? driver_free() : 0;
	if (!i->process || i->free_after >= i->free_before)
		return true;
	if (!last && i->free_before - i->free_after > books_free(i->process, (uint32_t)i->gpu))
		return false;
	process_settle(i->process);
	if (books_free(i->process, (uint32_t)i->gpu))
		return true;
	const struct ledger *l = &i->process->attachment.ledger;
	return ledger_committed(l, (uint32_t)i->gpu) <= ledger_limit(l, (uint32_t)i->gpu);
}

/* It was undone, and the books follow. False: it may have been others' memory; try it again. */
static bool implicit_refused(const struct implicit *i, bool last)
{
	size_t free_now = driver_free();
	size_t given = free_now > i->free_after ? free_now - i->free_after : 0;
	size_t took = MIN(given, i->free_before - i->free_after);

	if (last)
		process_settle(i->process);
	if (!last && took <= books_free(i->process, (uint32_t)i->gpu))
		return false;
	books_count_refused(i->process, (uint32_t)i->gpu);
	return true;
}

/* While it is under way, the daemon posts nothing of its own accord. */
static CUresult implicit_done(const struct implicit *i, CUresult result)
{
	if (i->process)
		books_call_end(i->process);
	return result;
}

/* What every call that loads does around the driver's, and how it is undone. */
#define LOAD(call, undo)                                                                        \
	for (int tries_ = 1;; tries_++) {                                                       \
		const bool last_ = tries_ == TRIES_MOST;                                        \
		struct implicit i;                                                              \
		implicit_begin(&i);                                                             \
		CUresult result = call;                                                         \
		if (result != CUDA_SUCCESS || implicit_end(&i, last_))                          \
			return implicit_done(&i, result);                                       \
		undo;                                                                           \
		result = implicit_refused(&i, last_) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS; \
		implicit_done(&i, result);                                                      \
		if (result != CUDA_SUCCESS)                                                     \
			return result;                                                          \
	}

CUresult hook_cuModuleLoad(CUmodule *module, const char *path)
{
	LOAD(real_cuModuleLoad(module, path), real_cuModuleUnload(*module));
}

CUresult hook_cuModuleLoadData(CUmodule *module, const void *image)
{
	LOAD(real_cuModuleLoadData(module, image), real_cuModuleUnload(*module));
}

CUresult hook_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count,
				 CUjit_option *options, void **values)
{
	LOAD(real_cuModuleLoadDataEx(module, image, count, options, values),
	     real_cuModuleUnload(*module));
}

CUresult hook_cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
	LOAD(real_cuModuleLoadFatBinary(module, image), real_cuModuleUnload(*module));
}

CUresult hook_cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *jit_options,
				void **jit_values, unsigned int jit_count, CUlibraryOption *options,
				void **values, unsigned int count)
{
	LOAD(real_cuLibraryLoadData(library, image, jit_options, jit_values, jit_count, options,
				    values, count),
	     real_cuLibraryUnload(*library));
}

CUresult hook_cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit_options,
				    void **jit_values, unsigned int jit_count,
				    CUlibraryOption *options, void **values, unsigned int count)
{
	LOAD(real_cuLibraryLoadFromFile(library, path, jit_options, jit_values, jit_count, options,
					values, count),
	     real_cuLibraryUnload(*library));
}

/* Stacks, the device's heap and its print buffer. */
CUresult hook_cuCtxSetLimit(CUlimit limit, size_t value)
{
	size_t before = 0;
	CUresult known = real_cuCtxGetLimit(&before, limit);

	LOAD(real_cuCtxSetLimit(limit, value),
	     (void)(known == CUDA_SUCCESS && real_cuCtxSetLimit(limit, before)));
}

/* A part of a device's primary context, which was charged when that was made. */
CUresult hook_cuGreenCtxCreate(CUgreenCtx *context, CUdevResourceDesc resources, CUdevice device,
			       unsigned int flags)
{
	LOAD(real_cuGreenCtxCreate(context, resources, device, flags),
	     real_cuGreenCtxDestroy(*context));
}

/* What is unloaded is the slice's again at once, not only when the daemon looks next. */
static CUresult unloaded(const struct implicit *i, CUresult result)
{
	if (result == CUDA_SUCCESS && i->process && driver_free() > i->free_before)
		process_settle(i->process);
	return implicit_done(i, result);
}

CUresult hook_cuModuleUnload(CUmodule module)
{
	struct implicit i;

	implicit_begin(&i);
	return unloaded(&i, real_cuModuleUnload(module));
}

CUresult hook_cuLibraryUnload(CUlibrary library)
{
	struct implicit i;

	implicit_begin(&i);
	return unloaded(&i, real_cuLibraryUnload(library));
}

CUresult hook_cuGreenCtxDestroy(CUgreenCtx context)
{
	struct implicit i;

	implicit_begin(&i);
	return unloaded(&i, real_cuGreenCtxDestroy(context));
}
