#include "front/cuda/charge/library_use.h"

#include "base/macros.h"
#include "front/books.h"
#include "front/cuda/charge/local.h"
#include "front/cuda/hooks.h"

/* In these what a library takes is remembered. */
#define UNIT 1024u
/* The most of a library's code that is taken for certain with its first use. A driver may load only
 * the part of the code that is used. */
#define CODE_MOST BLOCK_BYTES

/* The number of a library in a context: pointers are no two so near to each other that others have
 * the same. */
static uint64_t number_of(uint64_t library, uint64_t context)
{
	return library * 0x9e3779b97f4a7c15ull ^ context;
}

static uint32_t units(uint64_t bytes)
{
	return (uint32_t)MIN((bytes + UNIT - 1) / UNIT, UINT32_MAX);
}

static uint64_t blocks(uint32_t units)
{
	return books_blocks((uint64_t)units * UNIT);
}

/* more: what its first use takes there. */
static void in_context_note(struct process *p, uint64_t library, uint64_t context, uint32_t more)
{
	const struct object object = {.kind = OBJECT_LIBRARY_IN,
				      .handle = number_of(library, context),
				      .context = context,
				      .memory = library,
				      .count = more};

	if (context)
		books_note(p, &object);
}

void library_loaded(uint64_t library, struct image_memory image, enum library_part part)
{
	struct process *p = process_peek();
	uint64_t code = MIN(image.perhaps, CODE_MOST);
	struct object object = {.kind = OBJECT_LIBRARY, .handle = library, .context = library};

	if (!p || !image.surely)
		return;
	if (part != LIBRARY_NOWHERE)
		in_context_note(p, library, implicit_context(),
				part == LIBRARY_TAKEN ? 0 : units(code));
	object.count = units(image.surely);
	books_note(p, &object);
	object.kind = OBJECT_LIBRARY_CODE;
	object.count = units(code);
	books_note(p, &object);
	atomic_fetch_add(&p->libraries, 1);
	local_look_again();
}

void library_got(uint64_t library, uint64_t kernel)
{
	struct process *p = process_peek();
	const struct object object = {.kind = OBJECT_LIBRARY_KERNEL,
				      .handle = kernel,
				      .context = library,
				      .memory = library};
	struct object known;

	if (p && atomic_load_explicit(&p->libraries, memory_order_relaxed) &&
	    books_look(p, OBJECT_LIBRARY, library, &known))
		books_note(p, &object);
}

/* The most memory that a use of it in a context takes. */
static uint64_t missing_in(struct process *p, uint64_t library, uint64_t context)
{
	struct object in, all = {0}, code = {0};

	if (books_look(p, OBJECT_LIBRARY_IN, number_of(library, context), &in))
		return blocks(in.count);
	books_look(p, OBJECT_LIBRARY, library, &all);
	books_look(p, OBJECT_LIBRARY_CODE, library, &code);
	return blocks(all.count) + blocks(code.count);
}

static CUresult begin(struct library_call *c, struct process *p, uint64_t library)
{
	uint64_t context = implicit_context();
	uint64_t bytes = context ? missing_in(p, library, context) : 0;

	c->number = number_of(library, context);
	c->again = books_look(p, OBJECT_LIBRARY_IN, c->number, &c->before);
	if (!bytes)
		return CUDA_SUCCESS;
	CUresult result =
		implicit_begin(&c->implicit, OBJECT_IMAGE, (struct image_memory){.surely = bytes});
	c->takes = result == CUDA_SUCCESS && c->implicit.process;
	if (c->takes)
		in_context_note(p, library, context, 0);
	return result;
}

CUresult library_begin(struct library_call *c, uint64_t library)
{
	struct process *p = process_peek();
	struct object known;

	*c = (struct library_call){0};
	return p && books_look(p, OBJECT_LIBRARY, library, &known) ? begin(c, p, library)
								   : CUDA_SUCCESS;
}

CUresult library_launch_begin(struct library_call *c, uint64_t function)
{
	struct process *p = process_peek();
	struct object kernel;

	*c = (struct library_call){0};
	if (!p || !atomic_load_explicit(&p->libraries, memory_order_relaxed) ||
	    !books_look(p, OBJECT_LIBRARY_KERNEL, function, &kernel))
		return CUDA_SUCCESS;
	return library_begin(c, kernel.memory);
}

/* By a call that failed afterwards. */
static bool took_all(const struct implicit *i)
{
	size_t free_now = implicit_driver_free();

	return free_now < i->free_before && i->free_before - free_now >= i->taking.object.bytes;
}

CUresult library_end(struct library_call *c, CUresult result)
{
	struct implicit *i = &c->implicit;

	if (!c->takes)
		return result;
	if (result != CUDA_SUCCESS && !took_all(i)) {
		struct object note;

		books_remove(i->process, OBJECT_LIBRARY_IN, c->number, &note);
		if (c->again)
			books_note(i->process, &c->before);
		return implicit_done(i, result, 0);
	}
	/* It cannot be undone in one context alone. */
	implicit_end(i, true);
	implicit_done(i, CUDA_SUCCESS, c->number);
	local_look_again();
	return result;
}

bool library_is_there(uint64_t kernel)
{
	struct process *p = process_peek();
	struct object known;

	return !p || !atomic_load_explicit(&p->libraries, memory_order_relaxed) ||
	       !books_look(p, OBJECT_LIBRARY_KERNEL, kernel, &known) ||
	       !missing_in(p, known.memory, implicit_context());
}

bool library_is_missing(struct process *p, const uint64_t *contexts, size_t count)
{
	uint64_t libraries[LIBRARY_CONTEXTS_MOST];

	if (!atomic_load(&p->libraries))
		return false;
	size_t all = books_list(p, OBJECT_LIBRARY, 0, libraries, LIBRARY_CONTEXTS_MOST);
	for (size_t i = 0; i < MIN(all, (size_t)LIBRARY_CONTEXTS_MOST); i++)
		for (size_t j = 0; j < count; j++)
			if (missing_in(p, libraries[i], contexts[j]))
				return true;
	return all > LIBRARY_CONTEXTS_MOST;
}

static bool is_unused(struct process *p, uint64_t library)
{
	uint64_t numbers[LIBRARY_CONTEXTS_MOST];
	size_t count = books_list(p, OBJECT_LIBRARY_IN, library, numbers, LIBRARY_CONTEXTS_MOST);
	struct object in;

	for (size_t i = 0; i < MIN(count, (size_t)LIBRARY_CONTEXTS_MOST); i++)
		if (books_look(p, OBJECT_LIBRARY_IN, numbers[i], &in) && in.count)
			return true;
	return count > LIBRARY_CONTEXTS_MOST;
}

bool library_is_unused(struct process *p)
{
	uint64_t libraries[LIBRARY_CONTEXTS_MOST];

	if (!atomic_load(&p->libraries))
		return false;
	size_t all = books_list(p, OBJECT_LIBRARY, 0, libraries, LIBRARY_CONTEXTS_MOST);
	for (size_t i = 0; i < MIN(all, (size_t)LIBRARY_CONTEXTS_MOST); i++)
		if (is_unused(p, libraries[i]))
			return true;
	return all > LIBRARY_CONTEXTS_MOST;
}

void library_unload_begin(struct library_unloading *u, uint64_t library, bool in_call)
{
	uint64_t numbers[LIBRARY_CONTEXTS_MOST];
	struct process *p = process_peek();
	struct object known;

	u->count = 0;
	if (!p || !books_look(p, OBJECT_LIBRARY, library, &known))
		return;
	size_t count = books_list(p, OBJECT_LIBRARY_IN, library, numbers, LIBRARY_CONTEXTS_MOST);
	for (size_t i = 0; i < MIN(count, (size_t)LIBRARY_CONTEXTS_MOST); i++) {
		struct giving *g = &u->giving[u->count];

		/* Another library may have its handle as soon as it is gone. */
		books_remove(p, OBJECT_LIBRARY_IN, numbers[i], &known);
		giving_begin(g, OBJECT_IMAGE, numbers[i]);
		g->in_call = in_call;
		u->count += g->process != NULL;
	}
	if (books_remove(p, OBJECT_LIBRARY, library, &known))
		atomic_fetch_sub(&p->libraries, 1);
	books_drop_context(p, library);
}

void library_unload_end(struct library_unloading *u, CUresult result)
{
	for (size_t i = 0; i < u->count; i++) {
		u->giving[i].object.exported = result == CUDA_SUCCESS;
		giving_end(&u->giving[i], result);
	}
	local_look_again();
}

#define USE(library, call)                                         \
	struct library_call c;                                     \
	CUresult result = library_begin(&c, (uintptr_t)(library)); \
	return result != CUDA_SUCCESS ? result : library_end(&c, TAKE(&c.implicit.taking, call))

CUresult hook_cuLibraryGetGlobal(CUdeviceptr *address, size_t *size, CUlibrary library,
				 const char *name)
{
	USE(library, real_cuLibraryGetGlobal(address, size, library, name));
}

CUresult hook_cuLibraryGetManaged(CUdeviceptr *address, size_t *size, CUlibrary library,
				  const char *name)
{
	USE(library, real_cuLibraryGetManaged(address, size, library, name));
}

CUresult hook_cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
	USE(library, real_cuLibraryGetModule(module, library));
}

CUresult hook_cuLibraryGetUnifiedFunction(void **function, CUlibrary library, const char *symbol)
{
	USE(library, real_cuLibraryGetUnifiedFunction(function, library, symbol));
}

/* The kernel, if `device` is the current context's; 0: it is asked elsewhere. */
static uint64_t kernel_on(CUkernel kernel, CUdevice device)
{
	CUdevice current;

	return real_cuCtxGetDevice(&current) == CUDA_SUCCESS && current == device
		       ? (uintptr_t)kernel
		       : 0;
}

#define USE_KERNEL(kernel, call)                                         \
	struct library_call c;                                           \
	CUresult result = library_launch_begin(&c, (uintptr_t)(kernel)); \
	return result != CUDA_SUCCESS ? result : library_end(&c, TAKE(&c.implicit.taking, call))

CUresult hook_cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel,
				   CUdevice device)
{
	USE_KERNEL(kernel_on(kernel, device),
		   real_cuKernelGetAttribute(value, attribute, kernel, device));
}

CUresult hook_cuKernelGetParamCount(CUkernel kernel, size_t *count)
{
	USE_KERNEL(kernel, real_cuKernelGetParamCount(kernel, count));
}

CUresult hook_cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size)
{
	USE_KERNEL(kernel, real_cuKernelGetParamInfo(kernel, index, offset, size));
}

CUresult hook_cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
				   CUdevice device)
{
	USE_KERNEL(kernel_on(kernel, device),
		   real_cuKernelSetAttribute(attribute, value, kernel, device));
}

CUresult hook_cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device)
{
	USE_KERNEL(kernel_on(kernel, device), real_cuKernelSetCacheConfig(kernel, config, device));
}
