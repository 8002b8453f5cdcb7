/* Virtual memory management: physical memory by handle, addresses by reservation, and mappings of
 * the one into the other. Physical memory lives until its last handle and its last mapping are
 * gone. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "cuda/context.h"
#include "cuda/foreign.h"
#include "cuda/handle.h"
#include "cuda/memory.h"
#include "cuda/parts.h"

struct physical {
	unsigned int handles, mappings; /* under driver.lock */
	uint64_t size;
	CUmemAllocationProp prop;
	struct device *device;
	bool is_foreign;
	struct block block;     /* ours, or: */
	struct foreign foreign; /* imported */
};

/* Reserved addresses, under driver.lock. */
static struct reservation {
	struct reservation *next;
	uint64_t start, size;
} * reservations;

static struct physical *physical_find(CUmemGenericAllocationHandle handle)
{
	void *p = (void *)(uintptr_t)handle;

	return handle_is(p, HANDLE_PHYSICAL) ? p : NULL;
}

static uint8_t *physical_host(const struct physical *p)
{
	return p->is_foreign ? p->foreign.host : block_host(&p->block);
}

/* Drops a handle or a mapping, and the memory with the last of them. */
static void physical_drop(struct physical *p, bool mapping)
{
	pthread_mutex_lock(&driver.lock);
	if (mapping)
		p->mappings--;
	else if (--p->handles == 0)
		handle_remove(p);
	bool last = !p->handles && !p->mappings;
	pthread_mutex_unlock(&driver.lock);
	if (!last)
		return;
	if (p->is_foreign)
		foreign_unmap(&p->foreign);
	else
		block_free(&p->block);
	free(p);
}

static CUresult prop_check(const CUmemAllocationProp *prop, struct device **ret)
{
	const int known = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

	if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return prop->location.type > CU_MEM_LOCATION_TYPE_DEVICE ? CUDA_ERROR_NOT_SUPPORTED
									 : CUDA_ERROR_INVALID_VALUE;
	if ((int)prop->requestedHandleTypes & ~known)
		return CUDA_ERROR_NOT_SUPPORTED;
	*ret = device_find(prop->location.id);
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
				       CUmemAllocationGranularity_flags option)
{
	struct device *device;

	API_BEGIN();
	if (!granularity || (unsigned int)option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = prop_check(prop, &device);
	if (result == CUDA_SUCCESS)
		*granularity = BLOCK_SIZE;
	return result;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
		     const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct device *device;

	API_BEGIN();
	if (!handle || flags || !size || size % BLOCK_SIZE)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = prop_check(prop, &device);
	if (result != CUDA_SUCCESS)
		return result;
	struct physical *p = calloc(1, sizeof(*p));
	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = block_alloc(device, WIRE_MEMORY_VMM, size, &p->block);
	if (result == CUDA_SUCCESS && !handle_add(p, HANDLE_PHYSICAL)) {
		block_free(&p->block);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result != CUDA_SUCCESS) {
		free(p);
		return result;
	}
	p->handles = 1;
	p->size = size;
	p->prop = *prop;
	p->device = device;
	*handle = (uintptr_t)p;
	return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	API_BEGIN();
	struct physical *p = physical_find(handle);
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	physical_drop(p, false);
	return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
						CUmemGenericAllocationHandle handle)
{
	API_BEGIN();
	struct physical *p = physical_find(handle);
	if (!prop || !p)
		return CUDA_ERROR_INVALID_VALUE;
	*prop = p->prop;
	return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct range range;

	API_BEGIN();
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	/* The thread that unmaps it drops the memory after that, with the lock held. */
	pthread_mutex_lock(&driver.lock);
	if (range_find((uint64_t)(uintptr_t)address, &range) && range.kind == RANGE_VMM) {
		struct physical *p = range.owner;

		/* The handle may have been released before: it comes back to life. */
		result = p->handles || handle_add(p, HANDLE_PHYSICAL) ? CUDA_SUCCESS
								      : CUDA_ERROR_OUT_OF_MEMORY;
		p->handles += result == CUDA_SUCCESS;
		*handle = (uintptr_t)p;
	}
	pthread_mutex_unlock(&driver.lock);
	return result;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wish,
			     unsigned long long flags)
{
	API_BEGIN();
	if (!address || !size || size % BLOCK_SIZE || flags || alignment & (alignment - 1))
		return CUDA_ERROR_INVALID_VALUE;
	struct reservation *r = malloc(sizeof(*r));
	if (!r)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r->size = size;
	r->start = window_reserve(size, alignment, wish % BLOCK_SIZE ? 0 : wish);
	if (!r->start) {
		free(r);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_lock(&driver.lock);
	r->next = reservations;
	reservations = r;
	pthread_mutex_unlock(&driver.lock);
	*address = r->start;
	return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size)
{
	struct reservation *found = NULL;

	API_BEGIN();
	pthread_mutex_lock(&driver.lock);
	for (struct reservation **link = &reservations; *link; link = &(*link)->next) {
		if ((*link)->start != address || (*link)->size != size)
			continue;
		found = *link;
		*link = found->next;
		break;
	}
	pthread_mutex_unlock(&driver.lock);
	if (!found)
		return CUDA_ERROR_INVALID_VALUE;
	window_release(address, size);
	free(found);
	return CUDA_SUCCESS;
}

static bool is_reserved(uint64_t start, uint64_t size)
{
	bool found = false;

	pthread_mutex_lock(&driver.lock);
	for (struct reservation *r = reservations; r && !found; r = r->next)
		found = start >= r->start && size <= r->size && start - r->start <= r->size - size;
	pthread_mutex_unlock(&driver.lock);
	return found;
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset,
		  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	API_BEGIN();
	struct physical *p = physical_find(handle);
	if (!p || !size || size % BLOCK_SIZE || offset || flags || size > p->size ||
	    !is_reserved(address, size))
		return CUDA_ERROR_INVALID_VALUE;
	/* Nobody may use it before cuMemSetAccess. */
	struct range range = {
		.start = address,
		.size = size,
		.host = physical_host(p),
		.kind = RANGE_VMM,
		.device = p->device,
		.owner = p,
	};
	pthread_mutex_lock(&driver.lock);
	p->mappings++;
	pthread_mutex_unlock(&driver.lock);
	if (range_add(&range))
		return CUDA_SUCCESS;
	physical_drop(p, true);
	return CUDA_ERROR_INVALID_VALUE;
}

/* Calls act(range) on each mapping of [address, address + size), which they must fill exactly. */
static bool mappings_are(uint64_t address, uint64_t size)
{
	uint64_t at = address;
	struct range range;

	while (at < address + size) {
		if (!range_find(at, &range) || range.kind != RANGE_VMM || range.start != at)
			return false;
		at += range.size;
	}
	return size && at == address + size;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
	struct range range;

	API_BEGIN();
	if (!mappings_are(address, size))
		return CUDA_ERROR_INVALID_VALUE;
	CUcontext ctx = context_current();
	if (context_is_alive(ctx))
		context_synchronize(ctx);
	for (uint64_t at = address; at < address + size; at += range.size) {
		if (!range_remove(at, RANGE_VMM, &range))
			return CUDA_ERROR_INVALID_VALUE;
		physical_drop(range.owner, true);
	}
	return CUDA_SUCCESS;
}

static void set_access(struct range *range, void *arg)
{
	const CUmemAccess_flags flags = *(const CUmemAccess_flags *)arg;

	range->readable = flags & CU_MEM_ACCESS_FLAGS_PROT_READ;
	range->writable = flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *descs,
			size_t count)
{
	struct range range;

	API_BEGIN();
	if (!descs || !count || !mappings_are(address, size))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		if (descs[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
			return CUDA_ERROR_NOT_SUPPORTED;
		if (!device_find(descs[i].location.id))
			return CUDA_ERROR_INVALID_DEVICE;
	}
	for (uint64_t at = address; at < address + size; at += range.size) {
		if (!range_find(at, &range))
			return CUDA_ERROR_INVALID_VALUE;
		for (size_t i = 0; i < count; i++)
			range_change(at, set_access, (void *)&descs[i].flags);
	}
	return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
			CUdeviceptr address)
{
	struct range range;

	API_BEGIN();
	if (!flags || !location || !range_find(address, &range) || range.kind != RANGE_VMM)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = range.writable   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
		 : range.readable ? CU_MEM_ACCESS_FLAGS_PROT_READ
				  : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
				      CUmemAllocationHandleType type, unsigned long long flags)
{
	int fd;

	API_BEGIN();
	struct physical *p = physical_find(handle);
	if (!shareable || !p || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!(p->prop.requestedHandleTypes & type) || p->is_foreign)
		return CUDA_ERROR_INVALID_VALUE;
	const struct memory_note note = {
		.offset = p->block.offset, .size = p->size, .prop = p->prop};
	CUresult result = memory_export_fd(p->block.id, block_fd(&p->block), &note, &fd);
	if (result == CUDA_SUCCESS)
		*(int *)shareable = fd;
	return result;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
					CUmemAllocationHandleType type)
{
	struct client_import import;

	API_BEGIN();
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (client_memory_import_fd(driver.client, (int)(intptr_t)shareable, &import) < 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct physical *p = calloc(1, sizeof(*p));
	struct device *device = foreign_device(import.device);
	CUresult result = p ? foreign_map(&import, false, &p->foreign) : CUDA_ERROR_OUT_OF_MEMORY;
	if (result != CUDA_SUCCESS) {
		free(p);
		return result;
	}
	p->is_foreign = true;
	p->handles = 1;
	p->size = p->foreign.note.size;
	p->prop = p->foreign.note.prop;
	p->device = device;
	if (device)
		p->prop.location.id = device->ordinal;
	if (!device || !handle_add(p, HANDLE_PHYSICAL)) {
		foreign_unmap(&p->foreign);
		free(p);
		return device ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_DEVICE;
	}
	*handle = (uintptr_t)p;
	return CUDA_SUCCESS;
}
