#include "front/cuda/grow.h"

#include "front/books.h"
#include "front/cuda/hooks.h"

/* Pools grow in steps of this or of a larger request. */
#define GROW_STEP MIB(32)
/* Growth by other threads while looking is looked at again; not for ever. */
#define SETTLE_ROUNDS 8

struct holding {
	uint64_t reserved, used;
};

/* A pool that is destroyed, or a device without a context, holds nothing that could be asked. */
static struct holding holding_of(enum object_kind kind, uint64_t handle)
{
	struct holding h = {0};

	if (kind == OBJECT_POOL) {
		CUmemoryPool pool = (CUmemoryPool)(uintptr_t)handle;

		real_cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &h.reserved);
		real_cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &h.used);
	} else {
		CUdevice device = (CUdevice)handle;

		real_cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
						  &h.reserved);
		real_cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT,
						  &h.used);
	}
	return h;
}

void grow_track(struct process *p, enum object_kind kind, uint64_t handle, int gpu)
{
	struct object object = {.kind = kind, .handle = handle, .gpu = (uint16_t)gpu, .count = 1};

	lock_acquire(&p->lock);
	if (!table_find(&p->objects, kind, handle) && table_put(&p->objects, &object, NULL) == 0 &&
	    p->growing_count < PROCESS_GROWING_MAX)
		p->growing[p->growing_count++] = object;
	lock_release(&p->lock);
}

/* Books what one holds; growth is paid from *reserve first. 0 or -ENOMEM. */
static int settle(struct process *p, enum object_kind kind, uint64_t handle, uint64_t *reserve)
{
	struct holding h = holding_of(kind, handle), again;
	int r = 0;

	/* Two threads that settle at once may book in the wrong order: whoever sees another figure
	 * after booking books again. */
	for (int i = 0; i < SETTLE_ROUNDS; i++) {
		r = books_hold(p, kind, handle, h.reserved, reserve);
		again = holding_of(kind, handle);
		if (again.reserved == h.reserved)
			break;
		h = again;
	}
	if (h.reserved > h.used)
		grow_expect_less(p);
	return r;
}

CUresult grow_begin(struct growing *g, struct process *p, enum object_kind kind, uint64_t handle,
		    int gpu, uint64_t bytes)
{
	uint64_t bound = bytes > BOOKS_MOST ? UINT64_MAX : ALIGN_UP(bytes, GROW_STEP);

	g->kind = kind;
	g->handle = handle;
	grow_track(p, kind, handle, gpu);
	if (taking_try_on(&g->taking, p, gpu, OBJECT_NONE, bound) == CUDA_SUCCESS)
		return CUDA_SUCCESS;
	/* It need not grow where it has that much to spare. */
	struct holding h = holding_of(kind, handle);
	if (h.reserved - h.used >= bytes)
		return taking_try_on(&g->taking, p, gpu, OBJECT_NONE, 0);
	return taking_begin_on(&g->taking, p, gpu, OBJECT_NONE, bound);
}

bool grow_end(struct growing *g)
{
	struct process *p = g->taking.process;
	int r = settle(p, g->kind, g->handle, &g->taking.object.bytes);

	books_cancel(p, &g->taking.object);
	return r == 0;
}

void grow_expect_less(struct process *p)
{
	atomic_store_explicit(&p->growing_restless, true, memory_order_relaxed);
}

/* A copy of the list's entry, as pools come and go meanwhile. False: no such entry. */
static bool list_entry(struct process *p, uint32_t i, struct object *ret)
{
	lock_acquire(&p->lock);
	bool found = i < p->growing_count;
	if (found)
		*ret = p->growing[i];
	lock_release(&p->lock);
	return found;
}

void grow_settle_one(struct process *p, enum object_kind kind, uint64_t handle)
{
	uint64_t nothing = 0;

	settle(p, kind, handle, &nothing);
}

void grow_settle(struct process *p)
{
	struct object object;

	if (!atomic_load_explicit(&p->growing_restless, memory_order_relaxed))
		return;
	atomic_store_explicit(&p->growing_restless, false, memory_order_relaxed);
	for (uint32_t i = 0; list_entry(p, i, &object); i++)
		grow_settle_one(p, object.kind, object.handle);
}

void grow_trim(struct process *p, int gpu)
{
	struct object object;

	for (uint32_t i = 0; list_entry(p, i, &object); i++) {
		if (object.gpu != gpu)
			continue;
		if (object.kind == OBJECT_POOL)
			real_cuMemPoolTrimTo((CUmemoryPool)(uintptr_t)object.handle, 0);
		else
			real_cuDeviceGraphMemTrim((CUdevice)object.handle);
		grow_settle_one(p, object.kind, object.handle);
	}
}
