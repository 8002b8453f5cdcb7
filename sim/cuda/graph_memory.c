/* Memory that graphs allocate. Memory behind an address stays until the graph goes and nobody uses
 * it, or cuDeviceGraphMemTrim finds it unused: what a graph leaves allocated outlives it, until it
 * is freed. */
#include <pthread.h>
#include <stdlib.h>

#include "base/macros.h"
#include "cuda/capture.h"
#include "cuda/foreign.h"
#include "cuda/graph.h"
#include "cuda/memory.h"

struct graph_memory {
	struct graph_memory *next;
	struct device *device;
	uint64_t address;
	size_t size;
	unsigned int refs; /* counts nodes, executable graphs and launches; like the rest under
			      memory_lock */
	bool is_backed, is_used;
	struct block block;
};

static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;
static struct graph_memory *memories;
static struct {
	uint64_t used, used_high, reserved, reserved_high;
} sums[DEVICES_MAX];

static void count(struct graph_memory *memory, int64_t used, int64_t reserved)
{
	int d = memory->device->ordinal;

	sums[d].used += (uint64_t)used;
	sums[d].reserved += (uint64_t)reserved;
	sums[d].used_high = MAX(sums[d].used_high, sums[d].used);
	sums[d].reserved_high = MAX(sums[d].reserved_high, sums[d].reserved);
}

struct graph_memory *graph_memory_create(struct device *device, size_t bytes)
{
	struct graph_memory *memory = calloc(1, sizeof(*memory));

	if (!memory)
		return NULL;
	memory->refs = 1;
	memory->device = device;
	memory->size = bytes;
	memory->address = window_reserve(ALIGN_UP(bytes, BLOCK_SIZE), BLOCK_SIZE, 0);
	const struct range range = {
		.start = memory->address,
		.size = bytes,
		.kind = RANGE_GRAPH,
		.device = device,
		.owner = memory,
	};
	if (!memory->address || !range_add(&range)) {
		if (memory->address)
			window_release(memory->address, ALIGN_UP(bytes, BLOCK_SIZE));
		free(memory);
		return NULL;
	}
	pthread_mutex_lock(&memory_lock);
	memory->next = memories;
	memories = memory;
	pthread_mutex_unlock(&memory_lock);
	return memory;
}

uint64_t graph_memory_address(const struct graph_memory *memory)
{
	return memory->address;
}

size_t graph_memory_size(const struct graph_memory *memory)
{
	return memory->size;
}

struct device *graph_memory_device(const struct graph_memory *memory)
{
	return memory->device;
}

bool graph_memory_is_used(const struct graph_memory *memory)
{
	return memory->is_used;
}

/* The memory that the range is to show: memory_lock is held. */
static void range_show(struct range *range, void *arg)
{
	const struct graph_memory *memory = arg;

	range->host = memory->is_backed ? block_host(&memory->block) : NULL;
	range->readable = range->writable = memory->is_used && memory->is_backed;
}

static void unback(struct graph_memory *memory)
{
	if (!memory->is_backed)
		return;
	memory->is_backed = false;
	range_change(memory->address, range_show, memory);
	count(memory, 0, -(int64_t)memory->block.size);
	block_free(&memory->block);
}

CUresult graph_memory_back(struct graph_memory *memory)
{
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&memory_lock);
	if (!memory->is_backed)
		result = block_alloc(memory->device, WIRE_MEMORY_GRAPH, memory->size,
				     &memory->block);
	if (result == CUDA_SUCCESS && !memory->is_backed) {
		memory->is_backed = true;
		count(memory, 0, (int64_t)memory->block.size);
		range_change(memory->address, range_show, memory);
	}
	pthread_mutex_unlock(&memory_lock);
	return result;
}

/* A block that nobody refers to or uses any more. memory_lock is held. */
static void free_if_unused(struct graph_memory *memory)
{
	struct range range;

	if (memory->refs || memory->is_used)
		return;
	for (struct graph_memory **link = &memories; *link; link = &(*link)->next) {
		if (*link == memory) {
			*link = memory->next;
			break;
		}
	}
	range_remove(memory->address, RANGE_GRAPH, &range);
	unback(memory);
	window_release(memory->address, ALIGN_UP(memory->size, BLOCK_SIZE));
	free(memory);
}

/* memory_lock is held. */
static bool use_change(struct graph_memory *memory, bool use)
{
	if (memory->is_used == use)
		return false;
	memory->is_used = use;
	count(memory, use ? (int64_t)memory->size : -(int64_t)memory->size, 0);
	range_change(memory->address, range_show, memory);
	free_if_unused(memory);
	return true;
}

void graph_memory_use(struct graph_memory *memory)
{
	pthread_mutex_lock(&memory_lock);
	use_change(memory, true);
	pthread_mutex_unlock(&memory_lock);
}

/* A caller that knows it by its address only keeps it from going away by the lock alone. */
static struct graph_memory *memory_at(uint64_t address)
{
	struct range range;

	return range_find(address, &range) && range.kind == RANGE_GRAPH ? range.owner : NULL;
}

bool graph_memory_use_at(uint64_t address, bool use)
{
	pthread_mutex_lock(&memory_lock);
	struct graph_memory *memory = memory_at(address);
	bool changed = memory && use_change(memory, use);
	pthread_mutex_unlock(&memory_lock);
	return changed;
}

bool graph_memory_is_used_at(uint64_t address)
{
	pthread_mutex_lock(&memory_lock);
	struct graph_memory *memory = memory_at(address);
	bool used = memory && memory->is_used;
	pthread_mutex_unlock(&memory_lock);
	return used;
}

struct graph_memory *graph_memory_ref(struct graph_memory *memory)
{
	if (!memory)
		return NULL;
	pthread_mutex_lock(&memory_lock);
	memory->refs++;
	pthread_mutex_unlock(&memory_lock);
	return memory;
}

void graph_memory_unref(struct graph_memory *memory)
{
	if (!memory)
		return;
	pthread_mutex_lock(&memory_lock);
	memory->refs--;
	free_if_unused(memory);
	pthread_mutex_unlock(&memory_lock);
}

/* Captures are taken to forbid what asks or tells graphs' memory something as they do for pools. */
CUresult cuDeviceGraphMemTrim(CUdevice dev)
{
	API_BEGIN();
	struct device *device = device_find(dev);
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	RETURN_IF_CAPTURE_FORBIDS();
	pthread_mutex_lock(&memory_lock);
	for (struct graph_memory *m = memories; m; m = m->next)
		if (m->device == device && !m->is_used)
			unback(m);
	pthread_mutex_unlock(&memory_lock);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attribute, void *value)
{
	uint64_t found;

	API_BEGIN();
	if (!value || !device_find(dev))
		return value ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
	RETURN_IF_CAPTURE_FORBIDS();
	pthread_mutex_lock(&memory_lock);
	switch (attribute) {
	case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
		found = sums[dev].used;
		break;
	case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
		found = sums[dev].used_high;
		break;
	case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
		found = sums[dev].reserved;
		break;
	case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
		found = sums[dev].reserved_high;
		break;
	default:
		found = UINT64_MAX;
	}
	pthread_mutex_unlock(&memory_lock);
	if (found == UINT64_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	*(cuuint64_t *)value = found;
	return CUDA_SUCCESS;
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attribute, void *value)
{
	API_BEGIN();
	if (!value || *(cuuint64_t *)value)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_find(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	if (attribute != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH &&
	    attribute != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
		return CUDA_ERROR_INVALID_VALUE;
	RETURN_IF_CAPTURE_FORBIDS();
	pthread_mutex_lock(&memory_lock);
	if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
		sums[dev].used_high = sums[dev].used;
	else
		sums[dev].reserved_high = sums[dev].reserved;
	pthread_mutex_unlock(&memory_lock);
	return CUDA_SUCCESS;
}
