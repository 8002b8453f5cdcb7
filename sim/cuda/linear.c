/* Linear memory: pieces below 2 MiB share blocks ("slabs") of their context, as with a real driver,
 * larger ones have blocks of their own. */
#include <pthread.h>
#include <stdlib.h>

#include "base/macros.h"
#include "cuda/context.h"
#include "cuda/memory.h"

#define SLAB_UNITS (BLOCK_SIZE / SMALL_UNIT)

struct slab {
	struct slab *next;
	struct block block;
	enum wire_memory booked;
	bool large; /* one piece has it all */
	uint32_t used;
	uint64_t taken[SLAB_UNITS / 64];
};

static pthread_mutex_t slab_lock = PTHREAD_MUTEX_INITIALIZER;

static bool unit_taken(const struct slab *slab, uint32_t unit)
{
	return slab->taken[unit / 64] >> unit % 64 & 1;
}

/* First stretch of `units` free units, or SLAB_UNITS. */
static uint32_t slab_find(const struct slab *slab, uint32_t units)
{
	uint32_t run = 0;

	for (uint32_t i = 0; i < SLAB_UNITS; i++) {
		run = unit_taken(slab, i) ? 0 : run + 1;
		if (run == units)
			return i + 1 - units;
	}
	return SLAB_UNITS;
}

static void slab_mark(struct slab *slab, uint32_t first, uint32_t units, bool take)
{
	for (uint32_t i = first; i < first + units; i++) {
		uint64_t bit = 1ull << i % 64;

		slab->taken[i / 64] = take ? slab->taken[i / 64] | bit : slab->taken[i / 64] & ~bit;
	}
	slab->used = take ? slab->used + units : slab->used - units;
}

static CUresult slab_create(struct device *device, enum wire_memory booked, uint64_t bytes,
			    bool large, struct slab **ret)
{
	struct slab *slab = calloc(1, sizeof(*slab));
	CUresult result =
		slab ? block_alloc(device, booked, bytes, &slab->block) : CUDA_ERROR_OUT_OF_MEMORY;

	if (result != CUDA_SUCCESS) {
		free(slab);
		return result;
	}
	slab->booked = booked;
	slab->large = large;
	*ret = slab;
	return CUDA_SUCCESS;
}

/* A place in one of the context's slabs; makes a new slab where none has room. */
static CUresult small_alloc(CUcontext ctx, uint32_t units, enum wire_memory booked,
			    struct slab **ret_slab, uint32_t *ret_unit)
{
	struct slab **list = context_slabs(ctx), *slab;
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&slab_lock);
	for (slab = *list; slab; slab = slab->next) {
		if (slab->booked != booked || slab->used + units > SLAB_UNITS)
			continue;
		*ret_unit = slab_find(slab, units);
		if (*ret_unit < SLAB_UNITS)
			break;
	}
	if (!slab) {
		result = slab_create(context_device(ctx), booked, BLOCK_SIZE, false, &slab);
		if (result == CUDA_SUCCESS) {
			slab->next = *list;
			*list = slab;
			*ret_unit = 0;
		}
	}
	if (result == CUDA_SUCCESS) {
		slab_mark(slab, *ret_unit, units, true);
		*ret_slab = slab;
	}
	pthread_mutex_unlock(&slab_lock);
	return result;
}

static void small_free(CUcontext ctx, struct slab *slab, uint32_t unit, uint32_t units)
{
	pthread_mutex_lock(&slab_lock);
	slab_mark(slab, unit, units, false);
	if (!slab->used) {
		struct slab **link = context_slabs(ctx);

		while (*link != slab)
			link = &(*link)->next;
		*link = slab->next;
		block_free(&slab->block);
		free(slab);
	}
	pthread_mutex_unlock(&slab_lock);
}

static uint32_t units_of(uint64_t bytes)
{
	return (uint32_t)(ALIGN_UP(bytes, SMALL_UNIT) / SMALL_UNIT);
}

CUresult linear_alloc(CUcontext ctx, uint64_t bytes, enum wire_memory booked, enum range_kind kind,
		      uint64_t *ret_address)
{
	bool small = bytes < BLOCK_SIZE;
	struct slab *slab;
	uint32_t unit = 0;
	CUresult result = api_allocation_fault(context_device(ctx));

	if (result == CUDA_SUCCESS)
		result = small ? small_alloc(ctx, units_of(bytes), booked, &slab, &unit)
			       : slab_create(context_device(ctx), booked, bytes, true, &slab);
	if (result != CUDA_SUCCESS)
		return result;
	struct range range = {
		.start = block_address(&slab->block) + (uint64_t)unit * SMALL_UNIT,
		.size = bytes,
		.host = (uint8_t *)block_host(&slab->block) + (size_t)unit * SMALL_UNIT,
		.kind = kind,
		.readable = true,
		.writable = true,
		.ctx = ctx,
		.device = context_device(ctx),
		.owner = slab,
	};
	if (!range_add(&range)) {
		linear_free(&range);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret_address = range.start;
	return CUDA_SUCCESS;
}

const struct block *linear_block(const struct range *range)
{
	return &((const struct slab *)range->owner)->block;
}

void linear_free(const struct range *range)
{
	struct slab *slab = range->owner;
	uint64_t offset = range->start - block_address(&slab->block);

	if (slab->large) {
		block_free(&slab->block);
		free(slab);
		return;
	}
	small_free(range->ctx, slab, (uint32_t)(offset / SMALL_UNIT), units_of(range->size));
}
