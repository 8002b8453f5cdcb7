/* Memory that the driver takes as a side effect: modules, libraries, limits of a context. What is
 * known of it beforehand is reserved as for any allocation, and stays charged until it is given
 * back. What the driver takes beyond that (or less), the daemon posts from the driver's figure for
 * this process, where the device's free memory fell over the call; what then passes the limit is
 * undone and refused. Where it fell by more than the slice has left, the call is undone first, and
 * how much that gives back says whether it was this call's: so that nothing is posted that others
 * in the slice would be refused for. Another process's allocation in the same moment costs one
 * question to the daemon, or a second call, no more. */
#include "base/macros.h"
#include "front/books.h"
#include "front/cuda/charge.h"
#include "front/cuda/grow.h"
#include "front/cuda/hooks.h"
#include "front/cuda/image.h"

/* A call whose memory cannot be told from others' is made so often. */
#define TRIES_MOST 3

struct implicit {
	struct process *process; /* NULL: there is nothing to compare */
	int gpu;
	size_t free_before, free_after;
	struct taking taking; /* what was known beforehand; without a process: nothing was */
	uint64_t surely;      /* of it; a driver that takes it at the first use finds it reserved */
};

static size_t driver_free(void)
{
	size_t free_bytes = 0, total;

	return real_cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS ? free_bytes : 0;
}

static CUresult expected_reserve(struct implicit *i, enum object_kind kind, struct image_memory e)
{
	uint64_t surely = books_blocks(e.surely), most = books_blocks(e.surely + e.perhaps);

	i->surely = surely;
	if (e.perhaps && taking_try_on(&i->taking, i->process, i->gpu, kind, most) == CUDA_SUCCESS)
		return CUDA_SUCCESS;
	i->taking.process = NULL;
	return surely ? taking_begin_on(&i->taking, i->process, i->gpu, kind, surely)
		      : CUDA_SUCCESS;
}

/* On the current context's GPU. CUDA_ERROR_OUT_OF_MEMORY: what it surely takes does not fit. */
static CUresult implicit_begin(struct implicit *i, enum object_kind kind, struct image_memory e)
{
	*i = (struct implicit){.process = process_peek()};
	i->gpu = i->process ? charge_current_gpu(i->process) : -1;
	if (i->gpu < 0) {
		i->process = NULL;
		return CUDA_SUCCESS;
	}
	CUresult result = expected_reserve(i, kind, e);
	if (result != CUDA_SUCCESS)
		return result;
	CUcontext context = NULL;
	real_cuCtxGetCurrent(&context);
	i->taking.object.context = (uintptr_t)context;
	i->free_before = driver_free();
	if (!i->taking.process)
		books_call_begin(i->process);
	return CUDA_SUCCESS;
}

static uint64_t reserved(const struct implicit *i)
{
	return i->taking.process ? i->taking.object.bytes : 0;
}

/* True: it fitted. last: what the daemon says is taken for it. */
static bool implicit_end(struct implicit *i, bool last)
{
	i->free_after = i->process ? driver_free() : 0;
	if (!i->process)
		return true;
	size_t fell = i->free_before > i->free_after ? i->free_before - i->free_after : 0;
	if (!fell && !reserved(i))
		return true;
	if (!last && fell > reserved(i) + books_free(i->process, (uint32_t)i->gpu))
		return false;
	uint64_t over = grow_settle_exactly(i->process, i->gpu);
	if (reserved(i) > i->surely)
		taking_resize(&i->taking, reserved(i) - MIN(over, reserved(i) - i->surely));
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
	uint64_t more = took - MIN(took, reserved(i));

	if (last)
		grow_settle_exactly(i->process, i->gpu);
	if (!last && (more <= books_free(i->process, (uint32_t)i->gpu) ||
		      (charge_sweep(i->process, i->gpu, more) &&
		       more <= books_free(i->process, (uint32_t)i->gpu))))
		return false;
	books_count_refused(i->process, (uint32_t)i->gpu);
	return true;
}

/* While it is under way, the daemon posts nothing of its own accord. What was reserved is booked by
 * that number, or given back. */
static CUresult implicit_done(struct implicit *i, CUresult result, uint64_t number)
{
	if (i->taking.process)
		return taking_end(&i->taking, result, number);
	if (i->process)
		books_call_end(i->process);
	return result;
}

/* What every call that takes such memory does around the driver's: how it is undone, and the number
 * by which it is booked. */
#define TAKING(kind, expected, call, undo, number)                    \
	for (int attempt_ = 1;; attempt_++) {                         \
		const bool last_ = attempt_ == TRIES_MOST;            \
		struct implicit i;                                    \
		CUresult result = implicit_begin(&i, kind, expected); \
		if (result != CUDA_SUCCESS)                           \
			return result;                                \
		result = TAKE(&i.taking, call);                       \
		if (result != CUDA_SUCCESS)                           \
			return implicit_done(&i, result, 0);          \
		if (implicit_end(&i, last_))                          \
			return implicit_done(&i, result, number);     \
		undo;                                                 \
		bool refused_ = implicit_refused(&i, last_);          \
		implicit_done(&i, CUDA_ERROR_OUT_OF_MEMORY, 0);       \
		if (refused_)                                         \
			return CUDA_ERROR_OUT_OF_MEMORY;              \
	}

/* A module or a library, whose image says what it takes. */
#define LOAD(image, call, undo, handle) TAKING(OBJECT_IMAGE, image, call, undo, (uintptr_t)(handle))

CUresult hook_cuModuleLoad(CUmodule *module, const char *path)
{
	LOAD(image_of_file(path), real_cuModuleLoad(module, path), real_cuModuleUnload(*module),
	     *module);
}

CUresult hook_cuModuleLoadData(CUmodule *module, const void *image)
{
	LOAD(image_in_memory(image), real_cuModuleLoadData(module, image),
	     real_cuModuleUnload(*module), *module);
}

CUresult hook_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count,
				 CUjit_option *options, void **values)
{
	LOAD(image_in_memory(image), real_cuModuleLoadDataEx(module, image, count, options, values),
	     real_cuModuleUnload(*module), *module);
}

CUresult hook_cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
	LOAD(image_in_memory(image), real_cuModuleLoadFatBinary(module, image),
	     real_cuModuleUnload(*module), *module);
}

CUresult hook_cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *jit_options,
				void **jit_values, unsigned int jit_count, CUlibraryOption *options,
				void **values, unsigned int count)
{
	LOAD(image_in_memory(image),
	     real_cuLibraryLoadData(library, image, jit_options, jit_values, jit_count, options,
				    values, count),
	     real_cuLibraryUnload(*library), *library);
}

CUresult hook_cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit_options,
				    void **jit_values, unsigned int jit_count,
				    CUlibraryOption *options, void **values, unsigned int count)
{
	LOAD(image_of_file(path),
	     real_cuLibraryLoadFromFile(library, path, jit_options, jit_values, jit_count, options,
					values, count),
	     real_cuLibraryUnload(*library), *library);
}

/* A part of a device's primary context, which was charged when that was made. */
CUresult hook_cuGreenCtxCreate(CUgreenCtx *context, CUdevResourceDesc resources, CUdevice device,
			       unsigned int flags)
{
	LOAD((struct image_memory){0}, real_cuGreenCtxCreate(context, resources, device, flags),
	     real_cuGreenCtxDestroy(*context), *context);
}

/* What is unloaded is the slice's again at once, not only when the daemon looks next. The driver
 * may keep some of it: that is the daemon's to say. */
#define UNLOAD(handle, call)                                        \
	struct implicit i;                                          \
	struct giving g;                                            \
	implicit_begin(&i, OBJECT_IMAGE, (struct image_memory){0}); \
	giving_begin(&g, OBJECT_IMAGE, (uintptr_t)(handle));        \
	CUresult result = call;                                     \
	g.object.exported = result == CUDA_SUCCESS;                 \
	giving_end(&g, result);                                     \
	bool settled = g.process && g.object.bytes;                 \
	if (result == CUDA_SUCCESS && i.process && !settled &&      \
	    (g.process || driver_free() > i.free_before))           \
		grow_settle_exactly(i.process, i.gpu);              \
	return implicit_done(&i, result, 0)

CUresult hook_cuModuleUnload(CUmodule module)
{
	UNLOAD(module, real_cuModuleUnload(module));
}

CUresult hook_cuLibraryUnload(CUlibrary library)
{
	UNLOAD(library, real_cuLibraryUnload(library));
}

CUresult hook_cuGreenCtxDestroy(CUgreenCtx context)
{
	UNLOAD(context, real_cuGreenCtxDestroy(context));
}

/* ---- Limits of a context ---- */

/* No driver gives a thread a larger stack. */
#define STACK_MOST (512u << 10)

/* Bytes on the device for each that the limit is higher. A stack is there for every thread that can
 * run at a time. 0: it takes none. */
static uint64_t limit_unit(CUlimit limit)
{
	int processors = 0, threads = 0;
	CUdevice device;

	if (limit == CU_LIMIT_MALLOC_HEAP_SIZE || limit == CU_LIMIT_PRINTF_FIFO_SIZE)
		return 1;
	if (limit != CU_LIMIT_STACK_SIZE || real_cuCtxGetDevice(&device) != CUDA_SUCCESS ||
	    real_cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
				      device) != CUDA_SUCCESS ||
	    real_cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
				      device) != CUDA_SUCCESS ||
	    processors < 0 || threads < 0)
		return 0;
	return (uint64_t)processors * (uint64_t)threads;
}

/* What a limit takes beyond what it took at first. */
static uint64_t limit_bytes(CUlimit limit, uint64_t first, uint64_t value)
{
	uint64_t unit = limit_unit(limit);

	if (value <= first || !unit || (limit == CU_LIMIT_STACK_SIZE && value > STACK_MOST))
		return 0;
	return value - first > BOOKS_MOST / unit ? BOOKS_MOST + 1
						 : ALIGN_UP((value - first) * unit, BLOCK_BYTES);
}

/* The number by which it is booked: contexts are no two so near to each other. */
static uint64_t limit_number(CUlimit limit)
{
	CUcontext context = NULL;

	real_cuCtxGetCurrent(&context);
	return (uintptr_t)context + (unsigned int)limit;
}

/* What is booked for a limit becomes one object. */
static uint64_t limit_booked(struct implicit *i, CUlimit limit, uint64_t first)
{
	uint64_t number = limit_number(limit);
	struct object before;

	if (!i->taking.process)
		return number;
	if (books_remove(i->process, OBJECT_LIMIT, number, &before))
		i->taking.object.bytes += before.bytes;
	i->taking.object.memory = first;
	return number;
}

static CUresult limit_raise(CUlimit limit, size_t value, size_t before, uint64_t first,
			    uint64_t growth)
{
	TAKING(OBJECT_LIMIT, ((struct image_memory){.surely = growth}),
	       real_cuCtxSetLimit(limit, value), (void)real_cuCtxSetLimit(limit, before),
	       limit_booked(&i, limit, first));
}

/* Some are taken back by a driver, others stay as high as they were. */
static CUresult limit_lower(struct process *p, CUlimit limit, size_t value, uint64_t bytes)
{
	size_t free_before = driver_free();
	struct object booked;

	books_call_begin(p);
	CUresult result = real_cuCtxSetLimit(limit, value);
	if (result == CUDA_SUCCESS && driver_free() > free_before) {
		if (books_remove(p, OBJECT_LIMIT, limit_number(limit), &booked)) {
			bytes = MIN(bytes, booked.bytes);
			books_leave(p, booked.gpu, booked.bytes - bytes);
			booked.bytes = bytes;
			books_note(p, &booked);
		}
		grow_settle_exactly(p, charge_current_gpu(p));
	}
	books_call_end(p);
	return result;
}

CUresult hook_cuCtxSetLimit(CUlimit limit, size_t value)
{
	struct process *p = process_peek();
	struct object booked = {0};
	size_t before = 0;

	if (!p || real_cuCtxGetLimit(&before, limit) != CUDA_SUCCESS)
		return real_cuCtxSetLimit(limit, value);
	bool known = books_look(p, OBJECT_LIMIT, limit_number(limit), &booked);
	uint64_t first = known ? booked.memory : before;
	uint64_t bytes = limit_bytes(limit, first, value);
	if (value < before)
		return limit_lower(p, limit, value, bytes);
	return limit_raise(limit, value, before, first,
			   bytes > booked.bytes ? bytes - booked.bytes : 0);
}
