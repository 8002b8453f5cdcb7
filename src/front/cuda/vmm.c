/* Virtual memory management: physical memory lives as long as any handle to it or mapping of it.
 * Each cuMemCreate gets a number of ours, which handles and mappings refer to: the driver's handles
 * are used again, and retaining may give another one for the same memory. What was imported is not
 * in the books: its exporter pays. */
#include "front/books.h"
#include "front/cuda/charge.h"
#include "front/cuda/grow.h"
#include "front/cuda/hooks.h"

/* One handle or mapping less; with the last one the memory is gone. Where others may have a handle
 * to it, only the driver knows whether it is: the daemon posts what it still says this process
 * holds. Within a call that is counted in the slot, but for mappings that were never there. */
static void memory_unreference(struct process *p, uint64_t memory)
{
	struct object object;

	if (!books_unreference(p, OBJECT_PHYSICAL, memory, &object) || object.count)
		return;
	books_resize(p, object.gpu, object.bytes, 0);
	if (object.exported)
		grow_settle_exactly(p, object.gpu);
}

static uint64_t memory_number(struct process *p)
{
	owned_lock_acquire(&p->lock);
	uint64_t number = ++p->last_memory;
	owned_lock_release(&p->lock);
	return number;
}

CUresult hook_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
			  const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct process *p = process_get();
	struct taking t;

	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	/* Memory on the host is not the slice's. */
	if (!prop || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return real_cuMemCreate(handle, size, prop, flags);
	CUresult result = taking_begin_on(&t, p, charge_gpu_of(p, prop->location.id),
					  OBJECT_PHYSICAL, books_blocks(size));
	if (result != CUDA_SUCCESS)
		return result;
	result = TAKE(&t, real_cuMemCreate(handle, size, prop, flags));
	if (result != CUDA_SUCCESS)
		return taking_end(&t, result, 0);
	struct object reference = {
		.kind = OBJECT_HANDLE, .handle = *handle, .memory = memory_number(p), .count = 1};
	t.object.count = 1;
	books_note(p, &reference);
	return taking_end(&t, result, reference.memory);
}

CUresult hook_cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct process *p = process_peek();
	struct object reference;

	/* Before the call, after which another thread may get the same handle. */
	if (!p || !books_unreference(p, OBJECT_HANDLE, handle, &reference))
		return real_cuMemRelease(handle);
	books_call_begin(p);
	CUresult result = real_cuMemRelease(handle);
	if (result == CUDA_SUCCESS) {
		memory_unreference(p, reference.memory);
	} else if (reference.count) {
		books_reference(p, OBJECT_HANDLE, handle, 1);
	} else {
		reference.count = 1;
		books_note(p, &reference);
	}
	books_call_end(p);
	return result;
}

static bool is_mapped(CUdeviceptr at)
{
	CUmemGenericAllocationHandle handle;

	return real_cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)at) == CUDA_SUCCESS &&
	       real_cuMemRelease(handle) == CUDA_SUCCESS;
}

/* Another thread may unmap it as soon as the driver has mapped it, and not find it in the books
 * yet; or may have unmapped what was there before, and not have got to the books. */
static void mapped(struct process *p, struct object *mapping, uint32_t unmaps_before)
{
	struct object old, own;
	uint32_t unmaps;

	books_mapped(p, mapping, &old, &unmaps);
	if (old.kind == OBJECT_MAPPING)
		memory_unreference(p, old.memory);
	if (unmaps != unmaps_before && !is_mapped(mapping->handle) &&
	    books_unmap(p, mapping->handle, mapping->count, &own))
		memory_unreference(p, own.memory);
}

CUresult hook_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
		       CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct process *p = process_peek();
	struct object reference;

	if (!p || !books_look(p, OBJECT_HANDLE, handle, &reference) ||
	    !books_reference(p, OBJECT_PHYSICAL, reference.memory, 1))
		return real_cuMemMap(ptr, size, offset, handle, flags);
	uint32_t unmaps = books_unmaps(p);
	books_call_begin(p);
	CUresult result = real_cuMemMap(ptr, size, offset, handle, flags);
	struct object mapping = {
		.kind = OBJECT_MAPPING, .handle = ptr, .bytes = size, .memory = reference.memory};
	if (result == CUDA_SUCCESS)
		mapped(p, &mapping, unmaps);
	else
		memory_unreference(p, reference.memory);
	books_call_end(p);
	return result;
}

/* Whole mappings, one after the other; between them may be some of imported memory. Those after
 * `latest` were made when the driver had unmapped these. */
static void unmapped(struct process *p, uint64_t at, uint64_t size, uint32_t latest)
{
	uint64_t end = at + size;
	struct object mapping;

	books_unmapped(p);
	while (at < end) {
		if (!books_unmap(p, at, latest, &mapping)) {
			at += BLOCK_BYTES;
			continue;
		}
		memory_unreference(p, mapping.memory);
		at += mapping.bytes;
	}
}

CUresult hook_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	struct process *p = process_peek();

	if (!p)
		return real_cuMemUnmap(ptr, size);
	uint32_t latest = books_mappings(p);
	books_call_begin(p);
	CUresult result = real_cuMemUnmap(ptr, size);
	if (result == CUDA_SUCCESS)
		unmapped(p, ptr, size, latest);
	books_call_end(p);
	return result;
}

CUresult hook_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *at)
{
	struct process *p = process_peek();
	CUresult result = real_cuMemRetainAllocationHandle(handle, at);
	struct object mapping;

	if (result != CUDA_SUCCESS || !p || !books_look_mapping(p, (uintptr_t)at, &mapping))
		return result;
	books_reference(p, OBJECT_PHYSICAL, mapping.memory, 1);
	struct object reference = {
		.kind = OBJECT_HANDLE, .handle = *handle, .memory = mapping.memory, .count = 1};
	/* The same handle again, or another one for the same memory. */
	if (!books_reference(p, OBJECT_HANDLE, *handle, 1))
		books_note(p, &reference);
	return result;
}

CUresult hook_cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
					   CUmemAllocationHandleType type, unsigned long long flags)
{
	struct process *p = process_peek();
	struct object reference;

	/* Before the call: somebody may have it at once. */
	if (p && books_look(p, OBJECT_HANDLE, handle, &reference))
		books_export(p, OBJECT_PHYSICAL, reference.memory);
	return real_cuMemExportToShareableHandle(shareable, handle, type, flags);
}
