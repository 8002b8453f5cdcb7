/* The calls of programs for pools: making them, attributes, access, sharing between processes. If a
 * capture forbids its thread what it does not know, it forbids all of these. NVIDIA/cccl #11360
 * says so of attributes, and ROCm/rocm-systems #7845 does so for the others to be alike. To find a
 * device's pool is allowed. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"
#include "cuda/capture.h"
#include "cuda/context.h"
#include "cuda/handle.h"
#include "cuda/pool_private.h"

#define POOL_OR_RETURN(pool)                             \
	do {                                             \
		API_BEGIN();                             \
		if (!handle_is(pool, HANDLE_POOL))       \
			return CUDA_ERROR_INVALID_VALUE; \
	} while (0)

static CUresult props_check(const CUmemPoolProps *props, struct device **ret)
{
	const int known = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

	if (!props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	if ((int)props->handleTypes & ~known)
		return CUDA_ERROR_NOT_SUPPORTED;
	*ret = device_find(props->location.id);
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
	struct device *device;

	API_BEGIN();
	CUresult result = pool ? props_check(props, &device) : CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	RETURN_IF_CAPTURE_FORBIDS();
	CUmemoryPool made = pool_create(device, props);
	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*pool = made;
	return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	POOL_OR_RETURN(pool);
	if (pool->is_default)
		return CUDA_ERROR_INVALID_VALUE;
	RETURN_IF_CAPTURE_FORBIDS();
	pthread_mutex_lock(&driver.lock);
	for (int i = 0; i < driver.device_count; i++)
		if (driver.devices[i].current_pool == pool)
			driver.devices[i].current_pool = NULL;
	pthread_mutex_unlock(&driver.lock);
	pool_destroy(pool);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice dev)
{
	API_BEGIN();
	struct device *device = device_find(dev);
	if (!pool || !device)
		return device ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE;
	*pool = pool_default(device);
	return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
	API_BEGIN();
	struct device *device = device_find(dev);
	if (!pool || !device)
		return device ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE;
	*pool = pool_current(device);
	return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
	POOL_OR_RETURN(pool);
	struct device *device = device_find(dev);
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	if (pool->device != device)
		return CUDA_ERROR_INVALID_VALUE;
	device->current_pool = pool;
	return CUDA_SUCCESS;
}

/* By location: the newer names of the three above. */
static CUresult location_device(const CUmemLocation *location, CUmemAllocationType type,
				CUdevice *ret)
{
	if (!location || type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	*ret = location->id;
	return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location,
				CUmemAllocationType type)
{
	CUdevice dev;
	CUresult result = location_device(location, type, &dev);

	return result == CUDA_SUCCESS ? cuDeviceGetDefaultMemPool(pool, dev) : result;
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
	CUdevice dev;
	CUresult result = location_device(location, type, &dev);

	return result == CUDA_SUCCESS ? cuDeviceGetMemPool(pool, dev) : result;
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	CUdevice dev;
	CUresult result = location_device(location, type, &dev);

	return result == CUDA_SUCCESS ? cuDeviceSetMemPool(dev, pool) : result;
}

/* The counters by attribute; NULL: it is none. */
static uint64_t *pool_counter(CUmemoryPool pool, CUmemPool_attribute attribute)
{
	switch (attribute) {
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		return &pool->threshold;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		return &pool->reserved;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		return &pool->reserved_high;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		return &pool->used;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		return &pool->used_high;
	default:
		return NULL;
	}
}

static bool is_reuse(CUmemPool_attribute attribute)
{
	return attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
	       attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	POOL_OR_RETURN(pool);
	uint64_t *counter = pool_counter(pool, attribute);
	if (!value || (!counter && !is_reuse(attribute)))
		return CUDA_ERROR_INVALID_VALUE;
	RETURN_IF_CAPTURE_FORBIDS();
	pthread_mutex_lock(&pool_lock);
	if (counter)
		*(cuuint64_t *)value = *counter;
	else
		*(int *)value =
			pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
	pthread_mutex_unlock(&pool_lock);
	return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	CUresult result = CUDA_SUCCESS;

	POOL_OR_RETURN(pool);
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	RETURN_IF_CAPTURE_FORBIDS();
	pthread_mutex_lock(&pool_lock);
	if (is_reuse(attribute))
		pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] =
			*(int *)value;
	else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		pool->threshold = *(cuuint64_t *)value;
	else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && !*(cuuint64_t *)value)
		pool->reserved_high = pool->reserved;
	else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH && !*(cuuint64_t *)value)
		pool->used_high = pool->used;
	else
		result = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&pool_lock);
	return result;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	POOL_OR_RETURN(pool);
	if (!map)
		return CUDA_ERROR_INVALID_VALUE;
	RETURN_IF_CAPTURE_FORBIDS();
	for (size_t i = 0; i < count; i++) {
		struct device *device = device_find(map[i].location.id);

		if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !device)
			return CUDA_ERROR_INVALID_DEVICE;
		if (device == pool->device && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return CUDA_ERROR_INVALID_VALUE;
		uint64_t bit = 1ull << device->ordinal;
		pool->peers = map[i].flags ? pool->peers | bit : pool->peers & ~bit;
	}
	return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location)
{
	POOL_OR_RETURN(pool);
	if (!flags || !location)
		return CUDA_ERROR_INVALID_VALUE;
	struct device *device = device_find(location->id);
	if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || !device)
		return CUDA_ERROR_INVALID_DEVICE;
	RETURN_IF_CAPTURE_FORBIDS();
	bool may = device == pool->device || pool->peers >> device->ordinal & 1;
	*flags = may ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return CUDA_SUCCESS;
}

/* The contents of the file that a pool is shared by. */
struct pool_file {
	uint32_t magic;
	wire_device device;
	CUmemPoolProps props;
};
#define POOL_FILE_MAGIC 0x4c4f4f50u

CUresult cuMemPoolExportToShareableHandle(void *handle, CUmemoryPool pool,
					  CUmemAllocationHandleType type, unsigned long long flags)
{
	POOL_OR_RETURN(pool);
	if (!handle || flags || pool->is_imported)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !(pool->props.handleTypes & type))
		return CUDA_ERROR_INVALID_VALUE;
	RETURN_IF_CAPTURE_FORBIDS();
	/* Made by the host and mapped: `ulimit -f` binds neither. */
	cleanup_close int fd = client_memory_backing(driver.client, sizeof(struct pool_file));
	struct pool_file *file =
		fd < 0 ? MAP_FAILED
		       : mmap(NULL, sizeof(*file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (file == MAP_FAILED)
		return CUDA_ERROR_OPERATING_SYSTEM;
	*file = (struct pool_file){POOL_FILE_MAGIC, pool->device->wire, pool->props};
	munmap(file, sizeof(*file));
	*(int *)handle = steal_fd(&fd);
	return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle,
					    CUmemAllocationHandleType type,
					    unsigned long long flags)
{
	struct pool_file file;

	API_BEGIN();
	if (!pool || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	RETURN_IF_CAPTURE_FORBIDS();
	if (pread((int)(intptr_t)handle, &file, sizeof(file), 0) != sizeof(file) ||
	    file.magic != POOL_FILE_MAGIC)
		return CUDA_ERROR_INVALID_VALUE;
	struct device *device = foreign_device(file.device);
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	CUmemoryPool made = pool_create(device, &file.props);
	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	made->is_imported = true;
	*pool = made;
	return CUDA_SUCCESS;
}

struct pool_pointer {
	uint8_t token[CLIENT_TOKEN_SIZE];
	uint64_t offset, size; /* the piece's place in its segment */
	uint64_t spare[2];
};
_Static_assert(sizeof(struct pool_pointer) == sizeof(CUmemPoolPtrExportData), "fills it");

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr address)
{
	struct range range;
	struct pool_pointer pointer = {0};

	API_BEGIN();
	if (!data || !range_find(address, &range) || range.kind != RANGE_POOL)
		return CUDA_ERROR_INVALID_VALUE;
	RETURN_IF_CAPTURE_FORBIDS();
	const struct piece *piece = range.owner;
	if (!piece->segment || !piece->pool->props.handleTypes)
		return CUDA_ERROR_INVALID_VALUE;
	const struct block *block = &piece->segment->block;
	const struct memory_note note = {.offset = block->offset, .size = block->size};
	CUresult result = memory_export_token(block->id, block_fd(block), &note, pointer.token);
	if (result != CUDA_SUCCESS)
		return result;
	pointer.offset = piece->offset;
	pointer.size = range.size;
	memcpy(data, &pointer, sizeof(*data));
	return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *address, CUmemoryPool pool,
				CUmemPoolPtrExportData *data)
{
	struct client_import import;
	struct pool_pointer pointer;

	POOL_OR_RETURN(pool);
	if (!address || !data || !pool->is_imported)
		return CUDA_ERROR_INVALID_VALUE;
	RETURN_IF_CAPTURE_FORBIDS();
	memcpy(&pointer, data, sizeof(pointer));
	if (client_memory_import(driver.client, pointer.token, &import) < 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct piece *piece = calloc(1, sizeof(*piece));
	if (!piece) {
		close(import.fd);
		client_memory_free(driver.client, import.id);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	CUresult result = foreign_map(&import, true, &piece->foreign);
	if (result != CUDA_SUCCESS) {
		free(piece);
		return result;
	}
	piece->pool = pool;
	pthread_mutex_lock(&pool_lock);
	pool->pieces++;
	pthread_mutex_unlock(&pool_lock);
	uint64_t at = piece->foreign.window + pointer.offset;
	result = pool_range_add(piece, at, piece->foreign.host + pointer.offset, pointer.size);
	if (result == CUDA_SUCCESS)
		*address = at;
	return result;
}
