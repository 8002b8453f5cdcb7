#include "cuda/device_heap.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/macros.h"
#include "cuda/context.h"
#include "cuda/gap.h"
#include "cuda/memory.h"

/* Before each piece stands its size; pieces are aligned as malloc's are. */
#define UNIT 16u

struct device_heap {
	uint64_t address;
	uint8_t *host;
	struct gap *gaps;
};

static pthread_mutex_t heap_lock = PTHREAD_MUTEX_INITIALIZER;

static struct device_heap *heap_create(CUcontext ctx)
{
	struct device_heap *heap = calloc(1, sizeof(*heap));
	uint64_t size = ctx->limits[CU_LIMIT_MALLOC_HEAP_SIZE];
	struct range range;

	if (!heap || linear_alloc(ctx, size, WIRE_MEMORY_LOCAL, RANGE_MODULE, &heap->address) !=
			     CUDA_SUCCESS) {
		free(heap);
		return NULL;
	}
	range_find(heap->address, &range);
	heap->host = range.host;
	gap_give(&heap->gaps, 0, size / UNIT * UNIT);
	return heap;
}

uint64_t device_heap_alloc(CUcontext ctx, uint64_t size)
{
	uint64_t room = ALIGN_UP(size, UNIT) + UNIT, offset, address = 0;

	if (!size || room < size)
		return 0;
	pthread_mutex_lock(&heap_lock);
	if (!ctx->device_heap)
		ctx->device_heap = heap_create(ctx);
	if (ctx->device_heap && gap_take(&ctx->device_heap->gaps, room, &offset)) {
		*(uint64_t *)(ctx->device_heap->host + offset) = room;
		address = ctx->device_heap->address + offset + UNIT;
	}
	pthread_mutex_unlock(&heap_lock);
	return address;
}

void device_heap_free(CUcontext ctx, uint64_t address)
{
	pthread_mutex_lock(&heap_lock);
	struct device_heap *heap = ctx->device_heap;
	if (heap && address > heap->address) {
		uint64_t offset = address - heap->address - UNIT;

		gap_give(&heap->gaps, offset, *(uint64_t *)(heap->host + offset));
	}
	pthread_mutex_unlock(&heap_lock);
}

void device_heap_destroy(struct device_heap *heap)
{
	while (heap && heap->gaps) {
		struct gap *next = heap->gaps->next;

		free(heap->gaps);
		heap->gaps = next;
	}
	free(heap);
}
