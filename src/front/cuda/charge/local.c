#include "front/cuda/charge/local.h"

#include "base/macros.h"
#include "front/books.h"
#include "front/cuda/charge/grow.h"
#include "front/cuda/hooks.h"

/* The local memory that any context has for a thread at first: the stack that the CUDA
 * documentation calls the default (cudaLimitStackSize). */
#define FIRST_BYTES 1024u
/* No driver gives a thread a larger stack. */
#define STACK_MOST (512u << 10)
/* The need of a function that could not be asked yet. */
#define NEED_UNKNOWN UINT64_MAX
/* The contexts of one process that are looked at. With more, launches are looked at for good. */
#define CONTEXTS_MOST 64

/* ---- the cost of a limit ---- */

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

/* The memory that a limit takes beyond what it took at first. */
static uint64_t limit_bytes(CUlimit limit, uint64_t first, uint64_t value)
{
	uint64_t unit = limit_unit(limit);

	if (value <= first || !unit)
		return 0;
	return value - first > BOOKS_MOST / unit ? BOOKS_MOST + 1
						 : ALIGN_UP((value - first) * unit, BLOCK_BYTES);
}

/* The number by which it is booked. No two contexts are so near to each other. */
static uint64_t limit_number(uint64_t context, CUlimit limit)
{
	return context + (unsigned int)limit;
}

/* The facts known of a limit: its first value, and the highest that it took memory for, which for
 * the stack a kernel may have raised. */
struct limit_known {
	uint64_t first, most;
	struct object booked;
};

/* In the current context, of which alone a driver says what a limit is. */
static struct limit_known limit_look(struct process *p, uint64_t context, CUlimit limit)
{
	struct limit_known known = {0};
	size_t value = 0;

	if (books_look(p, OBJECT_LIMIT, limit_number(context, limit), &known.booked)) {
		known.first = known.booked.memory;
		known.most = known.first + known.booked.count;
	} else if (real_cuCtxGetLimit(&value, limit) == CUDA_SUCCESS) {
		known.first = known.most = value;
	}
	return known;
}

/* It takes no more blocks for it than it has. */
static void limit_reaches(struct process *p, uint64_t number, uint64_t first, uint64_t most)
{
	struct object object;

	if (!books_look(p, OBJECT_LIMIT, number, &object) || object.count >= most - first ||
	    !books_remove(p, OBJECT_LIMIT, number, &object))
		return;
	object.count = (uint32_t)MIN(most - first, UINT32_MAX);
	books_note(p, &object);
}

/* The bookings for a limit become one object. */
static uint64_t limit_booked(struct implicit *i, uint64_t context, CUlimit limit, uint64_t first,
			     uint64_t most)
{
	uint64_t number = limit_number(context, limit);
	struct object before;

	if (!i->taking.process) {
		if (i->process && most > first)
			limit_reaches(i->process, number, first, most);
		return number;
	}
	uint64_t count = most > first ? MIN(most - first, UINT32_MAX) : 0;
	if (books_remove(i->process, OBJECT_LIMIT, number, &before)) {
		i->taking.object.bytes += before.bytes;
		count = MAX(count, before.count);
	}
	i->taking.object.memory = first;
	i->taking.object.count = (uint32_t)count;
	return number;
}

/* ---- functions ---- */

/* Whether the calling thread has a device to ask about. */
static bool kernel_ask(CUkernel kernel, int *ret)
{
	CUdevice device;

	return library_is_there((uintptr_t)kernel) &&
	       real_cuCtxGetDevice(&device) == CUDA_SUCCESS &&
	       real_cuKernelGetAttribute(ret, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, kernel, device) ==
		       CUDA_SUCCESS;
}

static uint64_t need_ask(enum object_kind kind, uint64_t handle)
{
	int bytes = 0;
	bool known =
		kind == OBJECT_KERNEL
			? kernel_ask((CUkernel)(uintptr_t)handle, &bytes)
			: real_cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
						  (CUfunction)(uintptr_t)handle) == CUDA_SUCCESS;

	return known ? (uint64_t)MAX(bytes, 0) : NEED_UNKNOWN;
}

bool local_is_needed(const struct process *p)
{
	return atomic_load_explicit(&p->local_most, memory_order_relaxed) ||
	       atomic_load_explicit(&p->local_unknown, memory_order_relaxed);
}

static bool some_context_has_less(struct process *p)
{
	uint64_t contexts[CONTEXTS_MOST], most = atomic_load(&p->local_most);
	size_t count = books_list(p, OBJECT_CONTEXT, 0, contexts, CONTEXTS_MOST);

	if (count > CONTEXTS_MOST || library_is_missing(p, contexts, count))
		return true;
	for (size_t i = 0; i < count && most; i++) {
		struct gate_switch there;

		gate_switch_to(&there, (CUcontext)(uintptr_t)contexts[i]);
		uint64_t has = limit_look(p, contexts[i], CU_LIMIT_STACK_SIZE).most;
		gate_switch_back(&there);
		if (has < most)
			return true;
	}
	return false;
}

static bool launches_may_take(const struct process *p)
{
	return local_is_needed(p) || atomic_load_explicit(&p->libraries, memory_order_relaxed);
}

/* Holding the lock. */
static void watch_as_needed(struct process *p)
{
	bool watch = atomic_load(&p->local_unknown) ||
		     (launches_may_take(p) && some_context_has_less(p));

	if (watch != gate_is_watched())
		gate_watch(watch);
}

/* Holding the lock. The handle may have been another function's before. owner: the module
 * or library; 0: not known. */
static void need_note(struct process *p, enum object_kind kind, uint64_t handle, uint64_t owner,
		      uint64_t bytes)
{
	struct object object = {.kind = kind, .handle = handle, .context = owner, .memory = bytes};
	struct object before;

	if (books_remove(p, kind, handle, &before) && before.memory == NEED_UNKNOWN)
		atomic_fetch_sub(&p->local_unknown, 1);
	if (bytes <= FIRST_BYTES)
		return;
	books_note(p, &object);
	if (bytes == NEED_UNKNOWN)
		atomic_fetch_add(&p->local_unknown, 1);
	else if (bytes > atomic_load(&p->local_most))
		atomic_store(&p->local_most, bytes);
}

static void need_learn(struct process *p, enum object_kind kind, uint64_t handle, uint64_t owner,
		       uint64_t bytes)
{
	lock_acquire(&p->local_lock);
	need_note(p, kind, handle, owner, bytes);
	watch_as_needed(p);
	lock_release(&p->local_lock);
}

static void got(enum object_kind kind, uint64_t handle, uint64_t owner)
{
	struct process *p = process_peek();
	uint64_t bytes = p ? need_ask(kind, handle) : 0;

	if (!p || (bytes <= FIRST_BYTES && !local_is_needed(p)))
		return;
	need_learn(p, kind, handle, owner, bytes);
}

void local_forget(uint64_t owner)
{
	struct process *p = process_peek();

	if (!p || !local_is_needed(p))
		return;
	lock_acquire(&p->local_lock);
	books_drop_context(p, owner);
	atomic_store(&p->local_unknown,
		     books_list(p, OBJECT_FUNCTION, NEED_UNKNOWN, NULL, 0) +
			     books_list(p, OBJECT_KERNEL, NEED_UNKNOWN, NULL, 0));
	watch_as_needed(p);
	lock_release(&p->local_lock);
}

/* There may be many functions, of which few are ever launched. So each is asked when it is
 * launched, also one whose handle is known, as the handle may have been another function's. */
static void got_many(enum object_kind kind, const void *handles, unsigned int count, uint64_t owner)
{
	struct process *p = process_peek();
	const uint64_t *handle = handles;

	if (!p || !handles || !count)
		return;
	lock_acquire(&p->local_lock);
	for (unsigned int i = 0; i < count; i++)
		if (handle[i])
			need_note(p, kind, handle[i], owner, NEED_UNKNOWN);
	watch_as_needed(p);
	lock_release(&p->local_lock);
}

CUresult hook_cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	CUresult result = real_cuModuleGetFunction(function, module, name);

	if (result == CUDA_SUCCESS)
		got(OBJECT_FUNCTION, (uintptr_t)*function, (uintptr_t)module);
	return result;
}

CUresult hook_cuModuleEnumerateFunctions(CUfunction *functions, unsigned int count, CUmodule module)
{
	unsigned int all = 0;
	CUresult result = real_cuModuleEnumerateFunctions(functions, count, module);

	if (result == CUDA_SUCCESS && real_cuModuleGetFunctionCount(&all, module) == CUDA_SUCCESS)
		got_many(OBJECT_FUNCTION, functions, MIN(count, all), (uintptr_t)module);
	return result;
}

CUresult hook_cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
	CUresult result = real_cuLibraryGetKernel(kernel, library, name);

	if (result == CUDA_SUCCESS) {
		library_got((uintptr_t)library, (uintptr_t)*kernel);
		got(OBJECT_KERNEL, (uintptr_t)*kernel, (uintptr_t)library);
	}
	return result;
}

CUresult hook_cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int count, CUlibrary library)
{
	unsigned int all = 0;
	CUresult result = real_cuLibraryEnumerateKernels(kernels, count, library);

	if (result == CUDA_SUCCESS && real_cuLibraryGetKernelCount(&all, library) == CUDA_SUCCESS)
		got_many(OBJECT_KERNEL, kernels, MIN(count, all), (uintptr_t)library);
	for (unsigned int i = 0; kernels && i < MIN(count, all); i++)
		library_got((uintptr_t)library, (uintptr_t)kernels[i]);
	return result;
}

CUresult hook_cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
	struct library_call c;
	CUlibrary library = NULL;
	CUresult result = library_launch_begin(&c, (uintptr_t)kernel);

	if (result != CUDA_SUCCESS)
		return result;
	result = library_end(&c,
			     TAKE(&c.implicit.taking, real_cuKernelGetFunction(function, kernel)));
	if (result == CUDA_SUCCESS) {
		(void)real_cuKernelGetLibrary(&library, kernel);
		got(OBJECT_FUNCTION, (uintptr_t)*function, (uintptr_t)library);
	}
	return result;
}

void local_look_again(void)
{
	struct process *p = process_peek();

	if (!p || (!launches_may_take(p) && !gate_is_watched()))
		return;
	lock_acquire(&p->local_lock);
	watch_as_needed(p);
	lock_release(&p->local_lock);
}

/* ---- launches ---- */

static uint64_t need_look(struct process *p, uint64_t handle)
{
	enum object_kind kind = OBJECT_FUNCTION;
	struct object known;

	if (!books_look(p, kind, handle, &known)) {
		kind = OBJECT_KERNEL;
		if (!books_look(p, kind, handle, &known))
			return 0;
	}
	if (known.memory != NEED_UNKNOWN)
		return known.memory;
	uint64_t bytes = need_ask(kind, handle);
	if (bytes == NEED_UNKNOWN)
		return 0;
	need_learn(p, kind, handle, known.context, bytes);
	return bytes;
}

/* The needs of a function, in the current context; 0 bytes: no more than any context has. */
static struct local_need local_need_of(CUfunction function)
{
	struct process *p = process_peek();
	struct local_need need = {.gpu = -1};
	CUcontext context = NULL;

	if (!p || !function)
		return need;
	need.bytes = need_look(p, (uintptr_t)function);
	if (need.bytes && real_cuCtxGetCurrent(&context) == CUDA_SUCCESS && context) {
		need.context = (uintptr_t)context;
		need.gpu = charge_current_gpu(p);
	}
	return need;
}

/* If a limit was lowered below its first value, a driver may have taken back what that took, too,
 * which the context is charged with. The bytes are those beyond what is surely taken and what is
 * booked. */
static uint64_t limit_perhaps(CUlimit limit, uint64_t value, uint64_t now,
			      const struct limit_known *known, uint64_t surely)
{
	uint64_t has = surely + known->booked.bytes;
	uint64_t all = now < known->first ? limit_bytes(limit, now, value) : 0;

	return all - MIN(all, has);
}

/* Holding the GPU's lock. */
static CUresult grow_begin_locked(struct local_call *c, struct process *p)
{
	struct limit_known known = limit_look(p, c->need.context, CU_LIMIT_STACK_SIZE);

	if (known.most >= c->need.bytes)
		return CUDA_SUCCESS;
	uint64_t bytes = limit_bytes(CU_LIMIT_STACK_SIZE, known.first, c->need.bytes) -
			 limit_bytes(CU_LIMIT_STACK_SIZE, known.first, known.most);
	size_t now = known.first;
	(void)real_cuCtxGetLimit(&now, CU_LIMIT_STACK_SIZE);
	const struct image_memory memory = {
		.surely = bytes,
		.perhaps = limit_perhaps(CU_LIMIT_STACK_SIZE, c->need.bytes, now, &known, bytes)};
	CUresult result = implicit_begin_in(&c->implicit, p, c->need.gpu, c->need.context,
					    OBJECT_LIMIT, memory);
	c->first = known.first;
	c->grows = result == CUDA_SUCCESS && c->implicit.process;
	/* A driver that needs less for it gives the rest back. */
	c->implicit.surely = 0;
	c->implicit.keeps = true;
	return result;
}

static CUresult begin_there(struct local_call *c, struct process *p)
{
	const struct local_need need = c->need;

	if (limit_look(p, need.context, CU_LIMIT_STACK_SIZE).most >= need.bytes)
		return CUDA_SUCCESS;
	lock_acquire(&p->gpu[need.gpu].local_growing);
	CUresult result = grow_begin_locked(c, p);
	if (!c->grows)
		lock_release(&p->gpu[need.gpu].local_growing);
	return result;
}

CUresult local_begin(struct local_call *c, struct local_need need)
{
	struct process *p = process_peek();
	struct gate_switch there;

	*c = (struct local_call){.need = need};
	if (!p || need.gpu < 0 || need.bytes <= FIRST_BYTES)
		return CUDA_SUCCESS;
	gate_switch_to(&there, (CUcontext)(uintptr_t)need.context);
	CUresult result = begin_there(c, p);
	gate_switch_back(&there);
	return result;
}

/* Also where a call failed after that. The device's free memory says nothing: another process may
 * have given back as much meanwhile. */
static bool it_took(struct local_call *c, bool surely)
{
	implicit_end(&c->implicit, true);
	return surely || (c->implicit.taking.process && c->implicit.taking.object.bytes);
}

CUresult local_end(struct local_call *c, CUresult result, bool surely)
{
	struct implicit *i = &c->implicit;
	struct process *p = i->process;
	struct gate_switch there;

	if (!c->grows)
		return result;
	gate_switch_to(&there, (CUcontext)(uintptr_t)c->need.context);
	if (it_took(c, result == CUDA_SUCCESS && surely))
		implicit_done(i, CUDA_SUCCESS,
			      limit_booked(i, c->need.context, CU_LIMIT_STACK_SIZE, c->first,
					   c->need.bytes));
	else
		implicit_done(i, CUDA_ERROR_OUT_OF_MEMORY, 0);
	gate_switch_back(&there);
	lock_release(&p->gpu[i->gpu].local_growing);
	local_look_again();
	return result;
}

CUresult local_begin_all(struct local_calls *c, const struct local_need *needs)
{
	const struct process *p = process_peek();
	uint32_t gpus = p ? p->attachment.gpu_count : 0;
	CUresult result = CUDA_SUCCESS;

	c->count = 0;
	for (uint32_t gpu = 0; gpu < gpus && result == CUDA_SUCCESS; gpu++) {
		if (!needs[gpu].bytes)
			continue;
		result = local_begin(&c->calls[c->count], needs[gpu]);
		c->count += result == CUDA_SUCCESS;
	}
	return result == CUDA_SUCCESS ? result : local_end_all(c, result, false);
}

CUresult local_end_all(struct local_calls *c, CUresult result, bool surely)
{
	while (c->count)
		local_end(&c->calls[--c->count], result, surely);
	return result;
}

void local_need_add(struct local_need *needs, CUfunction function, CUkernel kernel,
		    CUcontext context)
{
	struct process *p = process_peek();
	struct local_need need = local_need_of(function ? function : (CUfunction)kernel);
	struct object object;

	/* A capture may have put another one in the place of a kernel's handle. */
	if (p && function && !need.bytes) {
		got(OBJECT_FUNCTION, (uintptr_t)function, 0);
		need = local_need_of(function);
	}
	if (!need.bytes)
		return;
	if (context && (uintptr_t)context != need.context &&
	    books_look(p, OBJECT_CONTEXT, (uintptr_t)context, &object)) {
		need.context = (uintptr_t)context;
		need.gpu = object.gpu;
	}
	if (need.gpu >= 0 && need.bytes > needs[need.gpu].bytes)
		needs[need.gpu] = need;
}

CUresult local_launch_begin(struct local_call *c, CUfunction function, CUstream stream)
{
	struct library_call library = {0};
	bool captured = gate_is_capturing(stream);
	CUresult result =
		captured ? CUDA_SUCCESS : library_launch_begin(&library, (uintptr_t)function);

	if (result != CUDA_SUCCESS)
		return result;
	struct local_need need = local_need_of(function);
	if (captured)
		need.bytes = 0;
	result = local_begin(c, need);
	c->library = library;
	return result == CUDA_SUCCESS ? result : library_end(&library, result);
}

CUresult local_launch_end(struct local_call *c, CUresult result)
{
	return local_end(c, library_end(&c->library, result), true);
}

/* ---- limits of a context ---- */

static CUresult limit_raise(CUlimit limit, size_t value, size_t before, uint64_t first,
			    struct image_memory growth)
{
	TAKING(OBJECT_LIMIT, growth, charge_refusal(), real_cuCtxSetLimit(limit, value),
	       (void)real_cuCtxSetLimit(limit, before),
	       limit_booked(&i, implicit_context(), limit, first, value));
}

static struct image_memory limit_growth(CUlimit limit, size_t value, size_t before,
					const struct limit_known *known)
{
	uint64_t bytes = limit_bytes(limit, known->first, value), has = known->booked.bytes;

	/* The driver refuses that. */
	if (limit == CU_LIMIT_STACK_SIZE && value > STACK_MOST)
		return (struct image_memory){0};
	/* The driver may have taken less of that than was thought. */
	if (limit == CU_LIMIT_STACK_SIZE)
		has = limit_bytes(limit, known->first, known->most);
	uint64_t surely = bytes - MIN(bytes, has);
	return (struct image_memory){.surely = surely,
				     .perhaps = limit_perhaps(limit, value, before, known, surely)};
}

/* Some are taken back by a driver, others stay as high as they were. The device's free memory is
 * others', too: where that does not show it, the process's own figure may. */
static bool limit_took_back(struct process *p, uint64_t bytes, size_t free_before)
{
	if (implicit_driver_free() > free_before)
		return true;
	if (!bytes)
		return false;
	books_over_begin(p);
	uint64_t over = grow_settle_in_call(p, charge_current_gpu(p), NULL);
	books_release_end(p);
	return over >= bytes;
}

/* Afterwards the driver does not say any more what it was at first. */
static void limit_remember(struct process *p, CUlimit limit, const struct limit_known *known)
{
	struct object object = {.kind = OBJECT_LIMIT,
				.context = implicit_context(),
				.gpu = (uint16_t)charge_current_gpu(p),
				.memory = known->first};

	object.handle = limit_number(object.context, limit);
	if (!known->booked.kind && limit_unit(limit))
		books_note(p, &object);
}

static CUresult limit_lower(struct process *p, CUlimit limit, size_t value,
			    const struct limit_known *known)
{
	size_t free_before = implicit_driver_free();
	uint64_t bytes = limit_bytes(limit, known->first, value);
	struct object booked;

	books_call_begin(p);
	CUresult result = real_cuCtxSetLimit(limit, value);
	uint64_t less = known->booked.bytes > bytes ? known->booked.bytes - bytes : 0;
	if (result == CUDA_SUCCESS && limit_took_back(p, less, free_before)) {
		if (books_remove(p, OBJECT_LIMIT, known->booked.handle, &booked)) {
			bytes = MIN(bytes, booked.bytes);
			books_leave(p, booked.gpu, booked.bytes - bytes);
			booked.bytes = bytes;
			booked.count = value > known->first ? (uint32_t)(value - known->first) : 0;
			books_note(p, &booked);
		}
		grow_settle_in_call(p, charge_current_gpu(p), NULL);
	}
	if (result == CUDA_SUCCESS)
		limit_remember(p, limit, known);
	books_call_end(p);
	return result;
}

static CUresult limit_set(struct process *p, CUlimit limit, size_t value, size_t before)
{
	struct limit_known known = limit_look(p, implicit_context(), limit);

	return value < before ? limit_lower(p, limit, value, &known)
			      : limit_raise(limit, value, before, known.first,
					    limit_growth(limit, value, before, &known));
}

CUresult hook_cuCtxSetLimit(CUlimit limit, size_t value)
{
	struct process *p = process_peek();
	int gpu = p ? charge_current_gpu(p) : -1;
	size_t before = 0;

	if (gpu < 0)
		return real_cuCtxSetLimit(limit, value);
	/* A launch may make the driver take more of it just now. */
	lock_acquire(&p->gpu[gpu].local_growing);
	CUresult result = real_cuCtxGetLimit(&before, limit) != CUDA_SUCCESS
				  ? real_cuCtxSetLimit(limit, value)
				  : limit_set(p, limit, value, before);
	lock_release(&p->gpu[gpu].local_growing);
	local_look_again();
	return result;
}
