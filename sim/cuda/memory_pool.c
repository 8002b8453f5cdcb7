/* Pools and their memory. */
#include "cuda/pool.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "cuda/capture.h"
#include "cuda/context.h"
#include "cuda/graph.h"
#include "cuda/handle.h"
#include "cuda/parts.h"
#include "cuda/pool_private.h"
#include "cuda/stream.h"

/* Segments are reserved in multiples of this while there is room. */
#define SEGMENT_UNIT (32u << 20)

pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static CUmemoryPool pools;

static CUresult segment_add(CUmemoryPool pool, uint64_t bytes)
{
	struct segment *segment = calloc(1, sizeof(*segment));
	struct gap *gap = calloc(1, sizeof(*gap));
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	if (segment && gap &&
	    (!pool->props.maxSize || pool->reserved + bytes <= pool->props.maxSize))
		result = block_alloc(pool->device, WIRE_MEMORY_POOL, bytes, &segment->block);
	if (result != CUDA_SUCCESS) {
		free(segment);
		free(gap);
		return result;
	}
	*gap = (struct gap){.size = segment->block.size};
	segment->gaps = gap;
	segment->next = pool->segments;
	pool->segments = segment;
	pool->reserved += segment->block.size;
	pool->reserved_high = MAX(pool->reserved_high, pool->reserved);
	return CUDA_SUCCESS;
}

/* Gives wholly free segments back until the pool holds no more than `keep`. */
static void pool_trim(CUmemoryPool pool, uint64_t keep)
{
	struct segment **link = &pool->segments;

	while (*link && pool->reserved > keep) {
		struct segment *segment = *link;

		if (!segment->gaps || segment->gaps->size != segment->block.size) {
			link = &segment->next;
			continue;
		}
		*link = segment->next;
		pool->reserved -= segment->block.size;
		block_free(&segment->block);
		free(segment->gaps);
		free(segment);
	}
}

static bool piece_fit(CUmemoryPool pool, uint64_t size, struct piece *piece)
{
	for (struct segment *s = pool->segments; s; s = s->next) {
		if (!gap_take(&s->gaps, size, &piece->offset))
			continue;
		piece->segment = s;
		return true;
	}
	return false;
}

/* A place for `size` bytes: in a segment, or in one more; unused segments go first when the device
 * is full. */
static CUresult piece_place(CUmemoryPool pool, uint64_t size, struct piece *piece)
{
	if (piece_fit(pool, size, piece))
		return CUDA_SUCCESS;
	CUresult result = segment_add(pool, ALIGN_UP(size, SEGMENT_UNIT));
	if (result != CUDA_SUCCESS)
		result = segment_add(pool, ALIGN_UP(size, BLOCK_SIZE));
	if (result != CUDA_SUCCESS) {
		for (CUmemoryPool p = pools; p; p = p->next)
			if (p->device == pool->device)
				pool_trim(p, 0);
		result = segment_add(pool, ALIGN_UP(size, BLOCK_SIZE));
	}
	if (result != CUDA_SUCCESS)
		return result;
	return piece_fit(pool, size, piece) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* A piece whose freeing waits on this very stream: what the stream runs next may have it. */
static struct piece *piece_reuse(CUmemoryPool pool, uint64_t size, unsigned long long stream_id)
{
	for (struct piece **link = &pool->pending; *link; link = &(*link)->next_pending) {
		struct piece *piece = *link;

		if (piece->stream_id != stream_id || piece->size < size)
			continue;
		*link = piece->next_pending;
		piece->is_pending = false;
		piece->ticket++;
		return piece;
	}
	return NULL;
}

static uint64_t piece_address(const struct piece *piece)
{
	return block_address(&piece->segment->block) + piece->offset;
}

static CUresult piece_new(CUmemoryPool pool, uint64_t size, struct piece **ret)
{
	struct piece *piece = calloc(1, sizeof(*piece));
	CUresult result = piece ? piece_place(pool, size, piece) : CUDA_ERROR_OUT_OF_MEMORY;

	if (result != CUDA_SUCCESS) {
		free(piece);
		return result;
	}
	piece->pool = pool;
	piece->size = size;
	pool->pieces++;
	pool->used += size;
	pool->used_high = MAX(pool->used_high, pool->used);
	*ret = piece;
	return CUDA_SUCCESS;
}

static void pool_free(CUmemoryPool pool)
{
	pool_trim(pool, 0);
	for (CUmemoryPool *link = &pools; *link; link = &(*link)->next) {
		if (*link == pool) {
			*link = pool->next;
			break;
		}
	}
	free(pool);
}

/* pool_lock is held. */
static void pending_remove(struct piece *piece)
{
	struct piece **link = &piece->pool->pending;

	while (*link && *link != piece)
		link = &(*link)->next_pending;
	if (*link)
		*link = piece->next_pending;
}

void pool_piece_free(struct piece *piece)
{
	CUmemoryPool pool = piece->pool;

	pthread_mutex_lock(&pool_lock);
	pending_remove(piece);
	if (piece->segment) {
		gap_give(&piece->segment->gaps, piece->offset, piece->size);
		pool->used -= piece->size;
	} else {
		foreign_unmap(&piece->foreign);
	}
	pool->pieces--;
	free(piece);
	if (pool->is_destroyed && !pool->pieces)
		pool_free(pool);
	pthread_mutex_unlock(&pool_lock);
}

struct device *pool_device(CUmemoryPool pool)
{
	return pool->device;
}

CUresult pool_range_add(struct piece *piece, uint64_t address, uint8_t *host, uint64_t size)
{
	struct range range = {
		.start = address,
		.size = size,
		.host = host,
		.kind = RANGE_POOL,
		.readable = true,
		.writable = true,
		.device = piece->pool->device,
		.owner = piece,
		.pool = piece->pool,
		.mapping = piece->segment ? block_address(&piece->segment->block) : address,
		.mapping_size = piece->segment ? piece->segment->block.size : size,
	};

	if (range_add(&range))
		return CUDA_SUCCESS;
	pool_piece_free(piece);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult pool_alloc(CUmemoryPool pool, uint64_t bytes, unsigned long long stream_id,
			   uint64_t *ret)
{
	uint64_t size = ALIGN_UP(bytes, SMALL_UNIT);
	struct piece *piece;
	CUresult result = api_allocation_fault(pool->device);

	if (result != CUDA_SUCCESS)
		return result;
	if (size < bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&pool_lock);
	piece = piece_reuse(pool, size, stream_id);
	bool reused = piece != NULL;
	if (!reused)
		result = piece_new(pool, size, &piece);
	pthread_mutex_unlock(&pool_lock);
	if (result != CUDA_SUCCESS)
		return result;
	*ret = piece_address(piece);
	uint8_t *host = (uint8_t *)block_host(&piece->segment->block) + piece->offset;
	/* All of the piece, since who gets it next may ask for a little more. */
	return reused ? CUDA_SUCCESS : pool_range_add(piece, *ret, host, size);
}

CUmemoryPool pool_create(struct device *device, const CUmemPoolProps *props)
{
	CUmemoryPool pool = calloc(1, sizeof(*pool));

	if (!pool || !handle_add(pool, HANDLE_POOL)) {
		free(pool);
		return NULL;
	}
	pool->device = device;
	pool->props = *props;
	pool->reuse[0] = pool->reuse[1] = pool->reuse[2] = 1;
	pthread_mutex_lock(&pool_lock);
	pool->next = pools;
	pools = pool;
	pthread_mutex_unlock(&pool_lock);
	return pool;
}

CUmemoryPool pool_default(struct device *device)
{
	const CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, device->ordinal},
	};

	pthread_mutex_lock(&driver.lock);
	if (!device->default_pool)
		device->default_pool = pool_create(device, &props);
	if (device->default_pool)
		device->default_pool->is_default = true;
	pthread_mutex_unlock(&driver.lock);
	return device->default_pool;
}

CUmemoryPool pool_current(struct device *device)
{
	return device->current_pool ? device->current_pool : pool_default(device);
}

void pool_destroy(CUmemoryPool pool)
{
	handle_remove(pool);
	pthread_mutex_lock(&pool_lock);
	pool->is_destroyed = true;
	if (!pool->pieces)
		pool_free(pool);
	pthread_mutex_unlock(&pool_lock);
}

static void pools_trim(struct device *device, bool all)
{
	pthread_mutex_lock(&pool_lock);
	for (CUmemoryPool p = pools; p; p = p->next)
		if (p->device == device)
			pool_trim(p, all ? 0 : p->threshold);
	pthread_mutex_unlock(&pool_lock);
}

void pools_settle(struct device *device)
{
	if (__atomic_load_n(&pools, __ATOMIC_RELAXED))
		pools_trim(device, false);
}

void pools_empty(struct device *device)
{
	pools_trim(device, true);
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	API_BEGIN();
	if (!handle_is(pool, HANDLE_POOL))
		return CUDA_ERROR_INVALID_VALUE;
	RETURN_IF_CAPTURE_FORBIDS();
	pthread_mutex_lock(&pool_lock);
	pool_trim(pool, keep);
	pthread_mutex_unlock(&pool_lock);
	return CUDA_SUCCESS;
}

static CUresult alloc_async(CUcontext ctx, CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
			    CUstream handle)
{
	CUstream stream;
	uint64_t at;
	CUresult result = stream_resolve(ctx, handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (!address || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (!pool)
		pool = pool_current(stream->ctx->device);
	if (!handle_is(pool, HANDLE_POOL))
		return pool ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
	if (pool->is_imported)
		return CUDA_ERROR_INVALID_VALUE;
	if (capture_takes_alloc(stream, pool, bytes, address, &result))
		return result;
	result = pool_alloc(pool, bytes, stream->id, &at);
	if (result == CUDA_SUCCESS)
		*address = at;
	return result;
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
	API_BEGIN_CONTEXT(ctx);
	return alloc_async(ctx, address, bytes, NULL, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
				 CUstream stream)
{
	API_BEGIN_CONTEXT(ctx);
	return pool ? alloc_async(ctx, address, bytes, pool, stream) : CUDA_ERROR_INVALID_VALUE;
}

/* The change to a range while nobody can take it out. A program may free the same memory twice, or
 * from two threads, and one of them is to be told. */
struct freeing {
	unsigned long long stream_id;
	uint64_t ticket;
	bool ok;
};

/* Notes that the piece will be free when the stream gets there; not ok: it already is to be freed.
 */
static void piece_pend(struct range *range, void *arg)
{
	struct freeing *freeing = arg;
	struct piece *piece = range->owner;

	if (range->kind != RANGE_POOL)
		return;
	pthread_mutex_lock(&pool_lock);
	freeing->ok = !piece->is_pending;
	if (freeing->ok) {
		piece->is_pending = true;
		piece->stream_id = freeing->stream_id;
		freeing->ticket = ++piece->ticket;
		if (piece->segment) {
			piece->next_pending = piece->pool->pending;
			piece->pool->pending = piece;
		}
	}
	pthread_mutex_unlock(&pool_lock);
}

/* From now on nobody else can have it; not ok: it was given again meanwhile. */
static void piece_claim(struct range *range, void *arg)
{
	struct freeing *freeing = arg;
	struct piece *piece = range->owner;

	if (range->kind != RANGE_POOL)
		return;
	pthread_mutex_lock(&pool_lock);
	freeing->ok = piece->is_pending && piece->ticket == freeing->ticket;
	if (freeing->ok)
		pending_remove(piece);
	pthread_mutex_unlock(&pool_lock);
}

void memory_free_in_order(uint64_t address, uint64_t ticket)
{
	struct freeing freeing = {.ticket = ticket};
	struct range range;

	if (!range_find(address, &range) || range.start != address)
		return;
	if (range.kind == RANGE_GRAPH) {
		graph_memory_use_at(address, false);
		return;
	}
	if (range.kind == RANGE_POOL &&
	    (!range_change(address, piece_claim, &freeing) || !freeing.ok))
		return;
	if (range_remove(address, range.kind, &range))
		memory_release(&range);
}

static bool may_free_in_order(const struct range *range)
{
	if (range->kind == RANGE_GRAPH)
		return graph_memory_is_used_at(range->start);
	return range->kind == RANGE_POOL || range->kind == RANGE_LINEAR ||
	       range->kind == RANGE_MANAGED;
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle)
{
	CUstream stream;
	struct range range;
	struct op op = {.kind = OP_FREE, .memory = {.address = address}};

	API_BEGIN_CONTEXT(ctx);
	CUresult result = stream_resolve(ctx, handle, &stream);
	if (result != CUDA_SUCCESS)
		return result;
	if (capture_takes(stream, &op, &result))
		return result;
	if (!range_find(address, &range) || range.start != address || !may_free_in_order(&range))
		return CUDA_ERROR_INVALID_VALUE;
	if (range.kind == RANGE_POOL) {
		struct freeing freeing = {.stream_id = stream->id};

		if (!range_change(address, piece_pend, &freeing) || !freeing.ok)
			return CUDA_ERROR_INVALID_VALUE;
		op.memory.ticket = freeing.ticket;
	}
	return stream_submit(stream, &op);
}
