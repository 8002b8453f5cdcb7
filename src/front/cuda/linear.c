/* Linear memory: cuMemAlloc and its family, and what the driver says about sizes. A name without a
 * suffix is the ABI of CUDA 3.1, with 32-bit addresses and sizes. */
#include "base/macros.h"
#include "front/books.h"
#include "front/cuda/charge/charge.h"
#include "front/cuda/charge/grow.h"
#include "front/cuda/device.h"
#include "front/cuda/hooks.h"

/* No pitch is a multiple of more than this. */
#define PITCH_STEP 512ull

__attribute__((flatten)) CUresult hook_cuMemAlloc_v2(CUdeviceptr *ptr, size_t size)
{
	struct taking t;
	CUresult result = taking_begin(&t, OBJECT_LINEAR, size);

	if (result != CUDA_SUCCESS)
		return REFUSED(result, ptr, real_cuMemAlloc_v2(ptr, size));
	result = TAKE(&t, real_cuMemAlloc_v2(ptr, size));
	return taking_end(&t, result, result == CUDA_SUCCESS ? *ptr : 0);
}

CUresult hook_cuMemAlloc(CUdeviceptr_v1 *ptr, unsigned int size)
{
	struct taking t;
	CUresult result = taking_begin(&t, OBJECT_LINEAR, size);

	if (result != CUDA_SUCCESS)
		return REFUSED(result, ptr, real_cuMemAlloc(ptr, size));
	result = TAKE(&t, real_cuMemAlloc(ptr, size));
	return taking_end(&t, result, result == CUDA_SUCCESS ? *ptr : 0);
}

/* Managed memory may be in the device's whole, so its size counts, in blocks of its own. */
CUresult hook_cuMemAllocManaged(CUdeviceptr *ptr, size_t size, unsigned int flags)
{
	struct taking t;
	CUresult result = taking_begin(&t, OBJECT_LINEAR, MAX(size, BLOCK_BYTES));

	if (result != CUDA_SUCCESS)
		return REFUSED(result, ptr, real_cuMemAllocManaged(ptr, size, flags));
	if (t.process)
		books_managed(t.process, &t.object);
	result = TAKE(&t, real_cuMemAllocManaged(ptr, size, flags));
	return taking_end(&t, result, result == CUDA_SUCCESS ? *ptr : 0);
}

/* Rows times their length, or more than any GPU has. */
static uint64_t area(uint64_t pitch, uint64_t height)
{
	uint64_t bytes;

	return __builtin_mul_overflow(pitch, height, &bytes) ? UINT64_MAX : bytes;
}

/* The memory that the longest pitch would take. */
static uint64_t pitched_at_most(size_t width, size_t height)
{
	return width > BOOKS_MOST ? UINT64_MAX : area(ALIGN_UP(width, PITCH_STEP), height);
}

/* The driver chose the pitch: what was reserved for the longest becomes what it is. */
static CUresult pitched_end(struct taking *t, CUresult result, CUdeviceptr ptr, uint64_t bytes)
{
	if (result != CUDA_SUCCESS || taking_resize(t, bytes))
		return taking_end(t, result, ptr);
	real_cuMemFree_v2(ptr);
	return taking_end(t, CUDA_ERROR_OUT_OF_MEMORY, 0);
}

CUresult hook_cuMemAllocPitch_v2(CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height,
				 unsigned int element_size)
{
	struct taking t;
	CUresult result = taking_begin(&t, OBJECT_LINEAR, pitched_at_most(width, height));

	if (result != CUDA_SUCCESS)
		return REFUSED(result, ptr && pitch,
			       real_cuMemAllocPitch_v2(ptr, pitch, width, height, element_size));
	result = TAKE(&t, real_cuMemAllocPitch_v2(ptr, pitch, width, height, element_size));
	return result == CUDA_SUCCESS ? pitched_end(&t, result, *ptr, area(*pitch, height))
				      : taking_end(&t, result, 0);
}

CUresult hook_cuMemAllocPitch(CUdeviceptr_v1 *ptr, unsigned int *pitch, unsigned int width,
			      unsigned int height, unsigned int element_size)
{
	struct taking t;
	CUresult result = taking_begin(&t, OBJECT_LINEAR, pitched_at_most(width, height));

	if (result != CUDA_SUCCESS)
		return REFUSED(result, ptr && pitch,
			       real_cuMemAllocPitch(ptr, pitch, width, height, element_size));
	result = TAKE(&t, real_cuMemAllocPitch(ptr, pitch, width, height, element_size));
	return result == CUDA_SUCCESS ? pitched_end(&t, result, *ptr, area(*pitch, height))
				      : taking_end(&t, result, 0);
}

CUresult hook_cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr ptr)
{
	struct process *p = process_peek();
	CUdeviceptr start;
	size_t size;

	/* Before the call: somebody may have it at once. */
	if (p && real_cuMemGetAddressRange_v2(&start, &size, ptr) == CUDA_SUCCESS)
		books_export(p, OBJECT_LINEAR, start);
	return real_cuIpcGetMemHandle(handle, ptr);
}

CUresult hook_cuIpcOpenMemHandle(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned int flags)
{
	books_import(process_peek());
	return real_cuIpcOpenMemHandle(ptr, handle, flags);
}

CUresult hook_cuIpcOpenMemHandle_v2(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned int flags)
{
	books_import(process_peek());
	return real_cuIpcOpenMemHandle_v2(ptr, handle, flags);
}

CUresult hook_cuImportExternalMemory(CUexternalMemory *memory,
				     const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *from)
{
	books_import(process_peek());
	return real_cuImportExternalMemory(memory, from);
}

CUresult hook_cuIpcCloseMemHandle(CUdeviceptr ptr)
{
	struct process *p = process_peek();
	CUresult result = real_cuIpcCloseMemHandle(ptr);

	if (p && result == CUDA_SUCCESS)
		grow_import_closed(p);
	return result;
}

/* The driver has waited for all work, and given back what was freed in the order of streams. If a
 * pool was destroyed, only the daemon can say how much of its memory that was. */
static __attribute__((noinline)) void freed_at_once(struct process *p, const struct giving *g)
{
	struct object pool;

	grow_settle(p);
	if (g->process && g->object.memory && atomic_load(&p->has_remains) &&
	    !books_look(p, OBJECT_POOL, g->object.memory, &pool))
		grow_settle_exactly(p, g->object.gpu);
}

__attribute__((flatten)) CUresult hook_cuMemFree_v2(CUdeviceptr ptr)
{
	struct process *p = process_peek();
	struct process *waiting = p && p->growing_count ? grow_waits_begin() : NULL;
	struct giving g;

	giving_begin(&g, OBJECT_LINEAR, ptr);
	/* A piece of a pool; what is not in the books may be a graph's. */
	if (p && p->growing_count && (!g.process || g.object.memory))
		grow_expect_less(p);
	CUresult result = giving_end(&g, real_cuMemFree_v2(ptr));
	if (__builtin_expect(p && (grow_is_not_revalidated(p) ||
				   atomic_load_explicit(&p->has_remains, memory_order_relaxed)),
			     0))
		freed_at_once(p, &g);
	if (__builtin_expect(waiting != NULL, 0))
		grow_waits_end(waiting);
	return result;
}

CUresult hook_cuMemFree(CUdeviceptr_v1 ptr)
{
	struct giving g;

	giving_begin(&g, OBJECT_LINEAR, ptr);
	WAITED(giving_end(&g, real_cuMemFree(ptr)));
}

/* Waits for what uses it, as the driver does, and so pools may shrink. */
CUresult hook_cuMemFreeHost(void *memory)
{
	WAITED(real_cuMemFreeHost(memory));
}

CUresult hook_cuMemHostUnregister(void *memory)
{
	WAITED(real_cuMemHostUnregister(memory));
}

/* The slice as it shows: never more than the driver itself has. Free are whole blocks: the rest of
 * a block at its end no function can have. */
static void slice_info(uint64_t *free_bytes, uint64_t *total)
{
	struct process *p = process_get();

	if (p)
		grow_settle(p);
	int gpu = p ? charge_current_gpu(p) : -1;
	if (p) {
		grow_exact_arrays(p, gpu, false);
		/* Also the memory that those gave back. */
		grow_settle_leaving(p);
	}
	uint64_t limit = gpu < 0 ? 0 : books_limit(p, (uint32_t)gpu);
	uint64_t room = gpu < 0 ? 0 : books_free(p, (uint32_t)gpu);

	*total = MIN(*total, limit);
	*free_bytes = MIN(*free_bytes, room) / BLOCK_BYTES * BLOCK_BYTES;
}

/* Programs that want one of the two give no place for the other. */
CUresult hook_cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	CUresult result = real_cuMemGetInfo_v2(free_bytes, total);
	uint64_t free_now = free_bytes ? *free_bytes : 0, total_now = total ? *total : 0;

	if (result != CUDA_SUCCESS)
		return result;
	slice_info(&free_now, &total_now);
	if (free_bytes)
		*free_bytes = free_now;
	if (total)
		*total = total_now;
	return result;
}

CUresult hook_cuMemGetInfo(unsigned int *free_bytes, unsigned int *total)
{
	CUresult result = real_cuMemGetInfo(free_bytes, total);
	uint64_t wide_free = free_bytes ? *free_bytes : 0, wide_total = total ? *total : 0;

	if (result != CUDA_SUCCESS)
		return result;
	slice_info(&wide_free, &wide_total);
	if (free_bytes)
		*free_bytes = (unsigned int)wide_free;
	if (total)
		*total = (unsigned int)wide_total;
	return result;
}

static uint64_t slice_total(CUdevice device, uint64_t bytes)
{
	struct process *p = process_get();
	int gpu = p ? device_gpu(p, device) : -1;

	return gpu < 0 ? 0 : MIN(bytes, books_limit(p, (uint32_t)gpu));
}

CUresult hook_cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	CUresult result = real_cuDeviceTotalMem_v2(bytes, device);

	if (result == CUDA_SUCCESS)
		*bytes = slice_total(device, *bytes);
	return result;
}

CUresult hook_cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
	CUresult result = real_cuDeviceTotalMem(bytes, device);

	if (result == CUDA_SUCCESS)
		*bytes = (unsigned int)slice_total(device, *bytes);
	return result;
}
