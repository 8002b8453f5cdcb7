/* Virtual memory management: physical memory lives as long as any handle to it or mapping of it.
 * Each cuMemCreate gets a number of ours, which handles and mappings refer to: the driver's handles
 * are used again, and retaining may give another one for the same memory. Imported memory is not in
 * the books: its exporter pays. */
#include "front/books.h"
#include "front/cuda/charge/charge.h"
#include "front/cuda/charge/grow.h"
#include "front/cuda/device.h"
#include "front/cuda/hooks.h"

/* One handle or mapping less; with the last one the memory is gone. Where others may have a handle
 * to it, or a sparse array, a multicast object or another device's driver may use it, only the
 * driver knows whether it is. Within a call that is counted in the slot, but for mappings that were
 * never there. */
static void memory_unreference(struct process *p, uint64_t memory)
{
	struct object object;

	if (!books_unreference(p, OBJECT_PHYSICAL, memory, &object) || object.count)
		return;
	if (!object.exported) {
		books_resize(p, object.gpu, object.bytes, 0);
		return;
	}
	books_leave_object(p, &object);
	grow_settle_in_call(p, object.gpu, NULL);
}

static uint64_t memory_number(struct process *p)
{
	owned_lock_acquire(&p->lock);
	uint64_t number = ++p->last_memory;
	owned_lock_release(&p->lock);
	return number;
}

/* The slice has no room for it; the driver might have had another word for what is wrong. */
static CUresult refused(size_t size, const CUmemAllocationProp *prop, unsigned long long flags)
{
	size_t granularity = 0;
	CUresult result = real_cuMemGetAllocationGranularity(&granularity, prop,
							     CU_MEM_ALLOC_GRANULARITY_MINIMUM);

	if (result != CUDA_SUCCESS)
		return result;
	return flags || (granularity && size % granularity) ? CUDA_ERROR_INVALID_VALUE
							    : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult hook_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
			  const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct process *p = process_get();
	struct taking t;

	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	/* Memory on the host is not the slice's; on no device there is none. */
	CUdevice device = prop ? location_device(&prop->location) : CU_DEVICE_CPU;
	if (!handle || !device_is_there(device))
		return real_cuMemCreate(handle, size, prop, flags);
	CUresult result =
		taking_begin_on(&t, p, device_gpu(p, device), OBJECT_PHYSICAL, books_blocks(size));
	if (result != CUDA_SUCCESS)
		return refused(size, prop, flags);
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
	if (!p || !books_unreference(p, OBJECT_HANDLE, handle, &reference)) {
		CUresult result = real_cuMemRelease(handle);

		if (p && result == CUDA_SUCCESS)
			grow_import_closed(p);
		return result;
	}
	books_call_begin(p);
	bool releasing = books_release_begin(p);
	CUresult result = real_cuMemRelease(handle);
	if (result == CUDA_SUCCESS) {
		memory_unreference(p, reference.memory);
	} else if (reference.count) {
		books_reference(p, OBJECT_HANDLE, handle, 1);
	} else {
		reference.count = 1;
		books_note(p, &reference);
	}
	if (releasing)
		books_release_end(p);
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
 * yet. Or it may have unmapped what was there before, and not have got to the books. */
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

/* A mapping after `latest` was booked after this thread began to unmap: the driver may have made it
 * afterwards, and holds it; or before, and has unmapped it. */
static bool unmapped_one(struct process *p, uint64_t at, uint32_t latest, struct object *ret)
{
	struct object later;

	if (books_unmap(p, at, latest, ret))
		return true;
	return books_look(p, OBJECT_MAPPING, at, &later) && !is_mapped(at) &&
	       books_unmap(p, at, later.count, ret);
}

/* Whole mappings, one after the other; between them may be some of imported memory: true. */
static bool unmapped(struct process *p, uint64_t at, uint64_t size, uint32_t latest)
{
	uint64_t end = at + size;
	bool imported = false;
	struct object mapping;

	books_unmapped(p);
	while (at < end) {
		if (!unmapped_one(p, at, latest, &mapping)) {
			at += BLOCK_BYTES;
			imported = true;
			continue;
		}
		memory_unreference(p, mapping.memory);
		at += mapping.bytes;
	}
	return imported;
}

CUresult hook_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	struct process *p = process_peek();

	if (!p)
		return real_cuMemUnmap(ptr, size);
	struct process *waiting = grow_waits_begin();
	uint32_t latest = books_mappings(p);
	books_call_begin(p);
	bool releasing = books_release_begin(p);
	CUresult result = real_cuMemUnmap(ptr, size);
	bool imported = result == CUDA_SUCCESS && unmapped(p, ptr, size, latest);
	if (releasing)
		books_release_end(p);
	books_call_end(p);
	if (imported)
		grow_import_closed(p);
	return grow_waited(waiting, result);
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

/* ---- Other things that the driver keeps memory for ---- */

/* Before the call: somebody may have it at once. */
static void handle_exported(CUmemGenericAllocationHandle handle)
{
	struct process *p = process_peek();
	struct object reference;

	if (p && books_look(p, OBJECT_HANDLE, handle, &reference))
		books_export(p, OBJECT_PHYSICAL, reference.memory);
}

static void range_exported(CUdeviceptr ptr, size_t size)
{
	struct process *p = process_peek();
	struct object mapping;
	CUdeviceptr start;
	size_t length;

	for (uint64_t at = ptr; p && at - ptr < size; at = mapping.handle + mapping.bytes) {
		if (books_look_mapping(p, at, &mapping)) {
			books_export(p, OBJECT_PHYSICAL, mapping.memory);
			continue;
		}
		if (real_cuMemGetAddressRange_v2(&start, &length, at) == CUDA_SUCCESS)
			books_export(p, OBJECT_LINEAR, start);
		return;
	}
}

/* The memory has a reference more over the call: without one, another thread could give it up
 * before the descriptor is marked. */
CUresult hook_cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
					   CUmemAllocationHandleType type, unsigned long long flags)
{
	struct process *p = process_peek();
	struct object reference;

	if (!p || !books_look(p, OBJECT_HANDLE, handle, &reference) ||
	    !books_reference(p, OBJECT_PHYSICAL, reference.memory, 1))
		return real_cuMemExportToShareableHandle(shareable, handle, type, flags);
	books_export(p, OBJECT_PHYSICAL, reference.memory);
	books_call_begin(p);
	CUresult result = real_cuMemExportToShareableHandle(shareable, handle, type, flags);
	if (result == CUDA_SUCCESS && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		books_describe(p, reference.memory, *(const int *)shareable);
	memory_unreference(p, reference.memory);
	books_call_end(p);
	return result;
}

CUresult hook_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
					     CUmemAllocationHandleType type)
{
	books_import(process_peek());
	return real_cuMemImportFromShareableHandle(handle, shareable, type);
}

CUresult hook_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr ptr, size_t size,
					    CUmemRangeHandleType type, unsigned long long flags)
{
	range_exported(ptr, size);
	return real_cuMemGetHandleForAddressRange(handle, ptr, size, type, flags);
}

/* A multicast object or a logical endpoint (CUDA 13.3) keeps what is bound to it, also where its
 * handle is released and its address unmapped. */
CUresult hook_cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t multicast_offset,
				 CUmemGenericAllocationHandle handle, size_t offset, size_t size,
				 unsigned long long flags)
{
	handle_exported(handle);
	return real_cuMulticastBindMem(multicast, multicast_offset, handle, offset, size, flags);
}

CUresult hook_cuMulticastBindAddr(CUmemGenericAllocationHandle multicast, size_t multicast_offset,
				  CUdeviceptr ptr, size_t size, unsigned long long flags)
{
	range_exported(ptr, size);
	return real_cuMulticastBindAddr(multicast, multicast_offset, ptr, size, flags);
}

CUresult hook_cuMulticastBindMem_v2(CUmemGenericAllocationHandle multicast, CUdevice device,
				    size_t multicast_offset, CUmemGenericAllocationHandle handle,
				    size_t offset, size_t size, unsigned long long flags)
{
	handle_exported(handle);
	return real_cuMulticastBindMem_v2(multicast, device, multicast_offset, handle, offset, size,
					  flags);
}

CUresult hook_cuMulticastBindAddr_v2(CUmemGenericAllocationHandle multicast, CUdevice device,
				     size_t multicast_offset, CUdeviceptr ptr, size_t size,
				     unsigned long long flags)
{
	range_exported(ptr, size);
	return real_cuMulticastBindAddr_v2(multicast, device, multicast_offset, ptr, size, flags);
}

CUresult hook_cuLogicalEndpointBindMem(CUlogicalEndpointId endpoint, CUdevice device,
				       cuuint64_t endpoint_offset,
				       CUmemGenericAllocationHandle handle, cuuint64_t offset,
				       cuuint64_t size, unsigned long long flags)
{
	handle_exported(handle);
	return real_cuLogicalEndpointBindMem(endpoint, device, endpoint_offset, handle, offset,
					     size, flags);
}

CUresult hook_cuLogicalEndpointBindAddr(CUlogicalEndpointId endpoint, CUdevice device,
					cuuint64_t endpoint_offset, void *ptr, cuuint64_t size,
					unsigned long long flags)
{
	range_exported((uintptr_t)ptr, size);
	return real_cuLogicalEndpointBindAddr(endpoint, device, endpoint_offset, ptr, size, flags);
}

/* Sparse arrays have no address that a mapping could be known by. */
static void sparse_exported(const CUarrayMapInfo *list, unsigned int count)
{
	for (unsigned int i = 0; list && i < count; i++)
		if (list[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP)
			handle_exported(list[i].memHandle.memHandle);
}

CUresult hook_cuMemMapArrayAsync(CUarrayMapInfo *list, unsigned int count, CUstream stream)
{
	sparse_exported(list, count);
	return real_cuMemMapArrayAsync(list, count, stream);
}

CUresult hook_cuMemMapArrayAsync_ptsz(CUarrayMapInfo *list, unsigned int count, CUstream stream)
{
	sparse_exported(list, count);
	return real_cuMemMapArrayAsync_ptsz(list, count, stream);
}
