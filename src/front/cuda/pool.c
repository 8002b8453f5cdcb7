/* Stream-ordered allocation: a pool is charged for what it has reserved. Pools that were imported
 * are paid by their exporter, those on the host by nobody. In a pool of managed memory each piece
 * is charged as cuMemAllocManaged() is, wherever the pool says that it is: it may be on a GPU in
 * whole. */
#include "front/books.h"
#include "front/cuda/charge/charge.h"
#include "front/cuda/charge/grow.h"
#include "front/cuda/charge/piece.h"
#include "front/cuda/device.h"
#include "front/cuda/hooks.h"

/* How often a place is looked for while other threads free pieces. */
#define PLACES_MOST 4

static uint64_t key_of(CUmemoryPool pool)
{
	return (uintptr_t)pool;
}

static bool is_default_pool(CUmemoryPool pool, CUdevice device)
{
	CUmemoryPool other;

	return real_cuDeviceGetDefaultMemPool(&other, device) == CUDA_SUCCESS && other == pool;
}

#define POOL_FREE (-2)
#define POOL_MANAGED (-3)

/* The ledger's GPU that pays for a pool. -1: it is none of the slice. POOL_FREE: nobody here pays.
 * POOL_MANAGED: each piece is paid by the GPU of the current context. */
static int payer_of(struct process *p, CUmemoryPool pool)
{
	struct object known;
	int count = 0;

	if (books_look(p, OBJECT_POOL, key_of(pool), &known))
		return known.count ? known.gpu : known.memory ? POOL_MANAGED : POOL_FREE;
	real_cuDeviceGetCount(&count);
	for (CUdevice device = 0; device < count; device++)
		if (is_default_pool(pool, device))
			return device_gpu(p, device);
	/* By whatever way it came: somebody here allocates from it. */
	return charge_current_gpu(p);
}

/* Does not count: remembers that nobody here pays for it, or that its pieces are managed memory. */
static void mark(CUmemoryPool pool, bool is_managed)
{
	struct process *p = process_peek();
	struct object object = {.kind = OBJECT_POOL, .handle = key_of(pool), .memory = is_managed};

	if (p)
		books_note(p, &object);
}

static bool is_capturing(CUstream stream, bool own_default)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult result = own_default ? real_cuStreamIsCapturing_ptsz(stream, &status)
				      : real_cuStreamIsCapturing(stream, &status);

	return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

struct pool_call {
	struct growing growing;
	CUmemoryPool pool;
	bool charged;
	bool managed; /* only growing.taking is in use: the piece itself is charged */
};

/* The call is made alone if the pool surely has a place for it. CUDA_ERROR_NOT_READY: other threads
 * free pieces meanwhile, so that it cannot be told. */
static CUresult place_begin(struct pool_call *c, struct process *p, int gpu, size_t bytes)
{
	uint64_t key = key_of(c->pool), freed, freed_since;
	bool quiet = books_pieces_quiet(p, &freed);

	/* Memory on its way to be free is waited for: it is in no place that could be taken. */
	if (!grow_quiesce())
		return CUDA_ERROR_OUT_OF_MEMORY;
	grow_trim(p, gpu);
	CUresult result = grow_begin(&c->growing, p, OBJECT_POOL, key, gpu, bytes);
	if (result == CUDA_SUCCESS)
		return result;
	result = grow_begin_alone(&c->growing, p, OBJECT_POOL, key, gpu);
	if (result != CUDA_SUCCESS)
		return result;
	/* One that is freed while the others are looked at is in its place for some time still. */
	bool fits = piece_fits(p, c->pool, bytes);
	quiet = quiet && books_pieces_quiet(p, &freed_since) && freed == freed_since;
	if (quiet && fits)
		return CUDA_SUCCESS;
	grow_end(&c->growing);
	return quiet ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_NOT_READY;
}

/* If the slice has no room for the most that the pool may grow by, what pools hold unused is given
 * back. If there is none even then, the pool must do with what it has. */
static CUresult tight_begin(struct pool_call *c, struct process *p, int gpu, size_t bytes)
{
	uint64_t key = key_of(c->pool);
	struct charge_tries tries = {0};

	charge_short_begin(p, gpu, &tries);
	grow_trim(p, gpu);
	CUresult result = grow_begin(&c->growing, p, OBJECT_POOL, key, gpu, bytes);
	for (int i = 0; i < PLACES_MOST && result != CUDA_SUCCESS; i++) {
		result = place_begin(c, p, gpu, bytes);
		if (result != CUDA_ERROR_NOT_READY)
			break;
	}
	while (result != CUDA_SUCCESS && charge_again(p, gpu, bytes, &tries))
		result = grow_begin(&c->growing, p, OBJECT_POOL, key, gpu, bytes);
	charge_short_end(p, gpu, &tries);
	if (result == CUDA_SUCCESS)
		return result;
	books_count_refused(p, gpu, bytes);
	return charge_refusal();
}

/* In blocks of its own. */
static CUresult managed_begin(struct pool_call *c, struct process *p, size_t bytes)
{
	CUresult result = taking_begin_on(&c->growing.taking, p, charge_current_gpu(p),
					  OBJECT_LINEAR, books_blocks(MAX(bytes, BLOCK_BYTES)));

	c->managed = result == CUDA_SUCCESS;
	if (c->managed)
		books_managed(p, &c->growing.taking.object);
	return c->managed ? result : charge_refusal();
}

/* pool: NULL for the one that is current on the context's device. */
static CUresult take_begin(struct pool_call *c, struct process *p, CUmemoryPool pool, size_t bytes)
{
	CUdevice device;

	/* Without a context or a pool the driver has the better word for what is wrong. */
	if (real_cuCtxGetDevice(&device) != CUDA_SUCCESS ||
	    (!pool && real_cuDeviceGetMemPool(&pool, device) != CUDA_SUCCESS))
		return CUDA_SUCCESS;
	int gpu = payer_of(p, pool);
	if (gpu == POOL_MANAGED)
		return managed_begin(c, p, bytes);
	if (gpu < 0)
		return gpu == POOL_FREE ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	c->pool = pool;
	CUresult result = grow_begin(&c->growing, p, OBJECT_POOL, key_of(pool), gpu, bytes);
	if (result != CUDA_SUCCESS)
		result = tight_begin(c, p, gpu, bytes);
	c->charged = result == CUDA_SUCCESS;
	return result;
}

/* A stream stands for the device of its own context, whichever is current. True: pop it. */
static bool stream_context_push(struct process *p, CUstream stream)
{
	CUcontext current = NULL, context = NULL;

	if ((uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD)
		return false;
	if (real_cuCtxGetCurrent(&current) == CUDA_SUCCESS && current &&
	    p->attachment.gpu_count < 2)
		return false;
	return real_cuStreamGetCtx(stream, &context) == CUDA_SUCCESS && context != current &&
	       real_cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
}

static CUresult pool_begin(struct pool_call *c, CUmemoryPool pool, size_t bytes, CUstream stream,
			   bool own_default)
{
	struct process *p = process_get();
	CUcontext popped;

	*c = (struct pool_call){0};
	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (is_capturing(stream, own_default)) {
		/* It becomes a node of a graph, which pays when it is launched. */
		atomic_store(&graphs_have_memory, true);
		return CUDA_SUCCESS;
	}
	bool pushed = stream_context_push(p, stream);
	CUresult result = take_begin(c, p, pool, bytes);
	if (pushed)
		real_cuCtxPopCurrent_v2(&popped);
	return result;
}

/* The pool grew by more than the slice has left. The memory that was allocated goes back at once.
 */
static CUresult pool_undo(struct pool_call *c, CUdeviceptr ptr, CUstream stream, bool own_default)
{
	struct process *p = c->growing.taking.process;
	struct giving g;

	struct process *waiting = grow_waits_begin();

	giving_begin(&g, OBJECT_LINEAR, ptr);
	if (own_default) {
		real_cuMemFreeAsync_ptsz(ptr, stream);
		real_cuStreamSynchronize_ptsz(stream);
	} else {
		real_cuMemFreeAsync(ptr, stream);
		real_cuStreamSynchronize(stream);
	}
	giving_end(&g, CUDA_SUCCESS);
	grow_trim(p, c->growing.taking.object.gpu);
	grow_waits_end(waiting);
	books_count_refused(p, c->growing.taking.object.gpu, c->growing.taking.object.bytes);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult pool_end(struct pool_call *c, CUresult result, const CUdeviceptr *ptr,
			 CUstream stream, bool own_default)
{
	if (c->managed)
		return taking_end(&c->growing.taking, result, result == CUDA_SUCCESS ? *ptr : 0);
	if (!c->charged)
		return result;
	if (result == CUDA_SUCCESS)
		piece_note(c->growing.taking.process, c->pool, *ptr);
	return grow_end(&c->growing) || result != CUDA_SUCCESS
		       ? result
		       : pool_undo(c, *ptr, stream, own_default);
}

CUresult hook_cuMemAllocAsync(CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
	struct pool_call c;
	CUresult result = pool_begin(&c, NULL, bytes, stream, false);

	if (result != CUDA_SUCCESS)
		return REFUSED(result, ptr, real_cuMemAllocAsync(ptr, bytes, stream));
	return pool_end(&c, TAKE(&c.growing.taking, real_cuMemAllocAsync(ptr, bytes, stream)), ptr,
			stream, false);
}

CUresult hook_cuMemAllocAsync_ptsz(CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
	struct pool_call c;
	CUresult result = pool_begin(&c, NULL, bytes, stream, true);

	if (result != CUDA_SUCCESS)
		return REFUSED(result, ptr, real_cuMemAllocAsync_ptsz(ptr, bytes, stream));
	return pool_end(&c, TAKE(&c.growing.taking, real_cuMemAllocAsync_ptsz(ptr, bytes, stream)),
			ptr, stream, true);
}

CUresult hook_cuMemAllocFromPoolAsync(CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool,
				      CUstream stream)
{
	struct pool_call c;
	CUresult result = pool_begin(&c, pool, bytes, stream, false);

	if (result != CUDA_SUCCESS)
		return REFUSED(result, ptr && pool,
			       real_cuMemAllocFromPoolAsync(ptr, bytes, pool, stream));
	return pool_end(
		&c, TAKE(&c.growing.taking, real_cuMemAllocFromPoolAsync(ptr, bytes, pool, stream)),
		ptr, stream, false);
}

CUresult hook_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool,
					   CUstream stream)
{
	struct pool_call c;
	CUresult result = pool_begin(&c, pool, bytes, stream, true);

	if (result != CUDA_SUCCESS)
		return REFUSED(result, ptr && pool,
			       real_cuMemAllocFromPoolAsync_ptsz(ptr, bytes, pool, stream));
	return pool_end(&c,
			TAKE(&c.growing.taking,
			     real_cuMemAllocFromPoolAsync_ptsz(ptr, bytes, pool, stream)),
			ptr, stream, true);
}

/* The driver's thread says that a stream has got to where it frees something. */
static void left(void *number)
{
	struct process *p = process_peek();

	if (p)
		books_freed(p, (uintptr_t)number, true);
}

/* Memory of its own, not a piece of a pool, is held until the stream gets there; where others have
 * it, longer. Where nobody would say that it got there, the daemon can. */
static void own_freed(struct giving *g, CUstream stream, bool own_default)
{
	struct process *p = g->process;

	uint64_t number = books_freeing(p, &g->object);
	if (own_default && !stream)
		stream = CU_STREAM_PER_THREAD;
	if (number &&
	    real_cuLaunchHostFunc(stream, left, (void *)(uintptr_t)number) != CUDA_SUCCESS)
		books_freed(p, number, false);
	giving_left(g);
}

/* From before the call, as another thread may have the pool shrink before it is over. */
static void freed_begin(struct giving *g, CUdeviceptr ptr)
{
	struct process *p = process_peek();

	if (p)
		grow_expect_less(p);
	giving_begin(g, OBJECT_LINEAR, ptr);
}

/* Freed in the order of a stream: the pool may shrink when that is synchronised. */
static CUresult freed(struct giving *g, CUresult result, CUstream stream, bool own_default)
{
	struct process *p = process_peek();

	if (result == CUDA_SUCCESS && g->process && !g->object.memory)
		own_freed(g, stream, own_default);
	else
		giving_end(g, result);
	if (p)
		grow_expect_less(p);
	return result;
}

CUresult hook_cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
	struct giving g;

	freed_begin(&g, ptr);
	return freed(&g, real_cuMemFreeAsync(ptr, stream), stream, false);
}

CUresult hook_cuMemFreeAsync_ptsz(CUdeviceptr ptr, CUstream stream)
{
	struct giving g;

	freed_begin(&g, ptr);
	return freed(&g, real_cuMemFreeAsync_ptsz(ptr, stream), stream, true);
}

CUresult hook_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
	struct process *p = process_get();
	CUresult result;

	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = real_cuMemPoolCreate(pool, props);
	if (result != CUDA_SUCCESS)
		return result;
	bool is_managed = props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
	CUdevice device = location_device(&props->location);
	if (is_managed || device == CU_DEVICE_CPU) {
		mark(*pool, is_managed);
		return result;
	}
	int gpu = device_gpu(p, device);
	if (gpu >= 0) {
		grow_track(p, OBJECT_POOL, key_of(*pool), gpu);
		grow_settle_one(p, OBJECT_POOL, key_of(*pool));
	}
	return result;
}

CUresult hook_cuMemPoolDestroy(CUmemoryPool pool)
{
	struct process *p = process_peek();
	struct object known = {0};
	uint64_t used = 0;

	if (!p)
		return real_cuMemPoolDestroy(pool);
	if (!books_figures_tell(p))
		used = grow_pool_used(pool);
	books_call_begin(p);
	bool releasing = books_release_begin(p);
	books_pool_ending(p, key_of(pool), &known);
	CUresult result = real_cuMemPoolDestroy(pool);
	if (result != CUDA_SUCCESS && known.kind)
		books_pool_restore(p, &known);
	/* Memory allocated from it stays until that is freed, and so do the pieces that it is in,
	 * or until it has been freed in a stream. Only the driver knows how much that is. Where the
	 * process has memory that may be elsewhere, that cannot be told from this: then what is
	 * allocated is charged until it has none. */
	if (result == CUDA_SUCCESS) {
		books_pool_ended(p, &known, used);
		if (known.bytes && books_leaving(p, known.gpu)) {
			atomic_store(&p->has_remains, true);
			grow_settle_in_call(p, known.gpu, NULL);
		}
	}
	if (releasing)
		books_release_end(p);
	books_call_end(p);
	return result;
}

CUresult hook_cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	struct process *p = process_peek();
	struct object known;
	bool releasing = p && books_release_begin(p);
	struct process *waiting = grow_waits_begin();
	CUresult result = real_cuMemPoolTrimTo(pool, keep);

	if (p && books_look(p, OBJECT_POOL, key_of(pool), &known) && known.count)
		grow_settle_one(p, OBJECT_POOL, key_of(pool));
	grow_waits_end(waiting);
	if (p)
		grow_settle_leaving(p);
	if (releasing)
		books_release_end(p);
	return result;
}

/* Its pieces can be handed out from now on, one by one. */
CUresult hook_cuMemPoolExportToShareableHandle(void *handle, CUmemoryPool pool,
					       CUmemAllocationHandleType type,
					       unsigned long long flags)
{
	struct process *p = process_peek();

	if (p)
		books_export(p, OBJECT_POOL, key_of(pool));
	return real_cuMemPoolExportToShareableHandle(handle, pool, type, flags);
}

CUresult hook_cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle,
						 CUmemAllocationHandleType type,
						 unsigned long long flags)
{
	books_import(process_peek());

	CUresult result = real_cuMemPoolImportFromShareableHandle(pool, handle, type, flags);

	if (result == CUDA_SUCCESS)
		mark(*pool, false);
	return result;
}

/* A pool by its location: one on the host is nobody's to pay, unless its memory is managed. */
static CUresult located(CUresult result, const CUmemoryPool *pool, const CUmemLocation *location,
			CUmemAllocationType type)
{
	bool is_managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;

	if (result == CUDA_SUCCESS && (is_managed || location_device(location) == CU_DEVICE_CPU))
		mark(*pool, is_managed);
	return result;
}

CUresult hook_cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location,
				     CUmemAllocationType type)
{
	return located(real_cuMemGetDefaultMemPool(pool, location, type), pool, location, type);
}

CUresult hook_cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
	return located(real_cuMemGetMemPool(pool, location, type), pool, location, type);
}
