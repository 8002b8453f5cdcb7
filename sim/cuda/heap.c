/* Heaps and blocks: addresses and the file behind them. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/macros.h"
#include "cuda/gap.h"
#include "cuda/memory.h"

struct heap {
	int fd;
	uint64_t size;
	uint8_t *window;  /* the addresses that programs see */
	uint8_t *alias;   /* the addresses that the driver uses */
	struct gap *gaps; /* the window's gaps */
};

static pthread_mutex_t heap_lock = PTHREAD_MUTEX_INITIALIZER;

/* Where windows are wished: below the usual place of libraries, so that device pointers look like
 * those of a real driver and do not change from run to run. */
#define WINDOW_HINT 0x7d0000000000ull

static uint8_t *heap_window(struct device *device, uint64_t size)
{
	void *hint =
		(void *)(uintptr_t)(WINDOW_HINT - ((uint64_t)device->ordinal + 1) * (1ull << 40));
	void *p = mmap(hint, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static struct heap *heap_create(struct device *device)
{
	struct heap *heap = calloc(1, sizeof(*heap));
	struct gap *gap = calloc(1, sizeof(*gap));

	if (!heap || !gap)
		goto fail;
	/* Room to spare: freed stretches of odd sizes must not stop a program early. */
	heap->size = ALIGN_UP(device->gpu->memory_total, BLOCK_SIZE) * 4;
	heap->fd = client_memory_backing(driver.client, heap->size);
	if (heap->fd < 0)
		goto fail;
	heap->window = heap_window(device, heap->size);
	heap->alias = mmap(NULL, heap->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
			   heap->fd, 0);
	if (!heap->window || heap->alias == MAP_FAILED)
		goto fail_fd;
	*gap = (struct gap){.size = heap->size};
	heap->gaps = gap;
	return heap;
fail_fd:
	close(heap->fd);
fail:
	free(gap);
	free(heap);
	return NULL;
}

CUresult block_alloc(struct device *device, enum wire_memory kind, uint64_t bytes,
		     struct block *ret)
{
	struct block block = {.device = device, .size = ALIGN_UP(bytes, BLOCK_SIZE)};
	bool ok;

	if (block.size < bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult fault = api_allocation_fault(device);
	if (fault != CUDA_SUCCESS)
		return fault;
	int status = client_memory_reserve_unfailing(driver.client, device->wire, kind, block.size,
						     &block.id);
	if (status < 0)
		return result_from_errno(status);
	pthread_mutex_lock(&heap_lock);
	if (!device->heap)
		device->heap = heap_create(device);
	ok = device->heap && gap_take(&device->heap->gaps, block.size, &block.offset);
	pthread_mutex_unlock(&heap_lock);
	if (!ok) {
		client_memory_free(driver.client, block.id);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret = block;
	return CUDA_SUCCESS;
}

void block_free(struct block *block)
{
	struct heap *heap = block->device->heap;

	madvise(heap->alias + block->offset, block->size, MADV_REMOVE);
	pthread_mutex_lock(&heap_lock);
	gap_give(&heap->gaps, block->offset, block->size);
	pthread_mutex_unlock(&heap_lock);
	client_memory_free(driver.client, block->id);
}

uint64_t block_address(const struct block *block)
{
	return (uint64_t)(uintptr_t)block->device->heap->window + block->offset;
}

void *block_host(const struct block *block)
{
	return block->device->heap->alias + block->offset;
}

int block_fd(const struct block *block)
{
	return block->device->heap->fd;
}

CUresult block_expose(const struct block *block, bool expose)
{
	struct heap *heap = block->device->heap;
	void *at = heap->window + block->offset;
	void *p = expose ? mmap(at, block->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
				heap->fd, (off_t)block->offset)
			 : mmap(at, block->size, PROT_NONE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);

	return p == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
