#include "front/cuda/charge/implicit.h"

#include "base/macros.h"
#include "front/books.h"
#include "front/cuda/charge/grow.h"
#include "front/cuda/hooks.h"

/* A slice has much room whose free part is this many times what may be charged in it for nothing.
 */
#define ROOMY_TIMES 16

size_t implicit_driver_free(void)
{
	size_t free_bytes = 0, total;

	return real_cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS ? free_bytes : 0;
}

uint64_t implicit_context(void)
{
	CUcontext context = NULL;

	return real_cuCtxGetCurrent(&context) == CUDA_SUCCESS ? (uintptr_t)context : 0;
}

static CUresult expected_reserve(struct implicit *i, enum object_kind kind, struct image_memory e)
{
	uint64_t surely = books_blocks(e.surely), most = books_blocks(e.surely + e.perhaps);

	i->surely = surely;
	if (e.perhaps && taking_try_on(&i->taking, i->process, i->gpu, kind, most) == CUDA_SUCCESS)
		return CUDA_SUCCESS;
	i->taking.process = NULL;
	return surely ? taking_begin_on(&i->taking, i->process, i->gpu, kind, surely)
		      : CUDA_SUCCESS;
}

CUresult implicit_begin_in(struct implicit *i, struct process *p, int gpu, uint64_t context,
			   enum object_kind kind, struct image_memory e)
{
	*i = (struct implicit){.process = gpu < 0 ? NULL : p, .gpu = gpu};
	if (!i->process)
		return CUDA_SUCCESS;
	/* How much of this the driver took does not show beside what it may have. */
	if (kind != OBJECT_IMAGE && books_leaving(p, (uint32_t)gpu))
		grow_settle_exactly(p, gpu);
	CUresult result = expected_reserve(i, kind, e);
	if (result != CUDA_SUCCESS)
		return result;
	i->taking.object.context = context;
	i->free_before = implicit_driver_free();
	if (!i->taking.process)
		books_call_begin(i->process);
	return CUDA_SUCCESS;
}

CUresult implicit_begin(struct implicit *i, enum object_kind kind, struct image_memory e)
{
	struct process *p = process_peek();

	return implicit_begin_in(i, p, p ? charge_current_gpu(p) : -1, implicit_context(), kind, e);
}

static uint64_t reserved(const struct implicit *i)
{
	return i->taking.process ? i->taking.object.bytes : 0;
}

/* By how much more is charged than the driver says, which is taken off what was reserved. Where
 * something is leaving, too, that is not told. */
static uint64_t over_take(struct implicit *i, uint64_t perhaps, bool *ret_sure)
{
	struct process *p = i->process;
	uint32_t gpu = (uint32_t)i->gpu;
	bool releasing = !books_leaving(p, gpu);

	if (releasing)
		books_over_begin(p);
	uint64_t all = grow_settle_in_call(p, i->gpu, ret_sure), over = MIN(all, perhaps);
	taking_resize(&i->taking, reserved(i) - over);
	if (releasing)
		books_release_end(p);
	/* The rest may be what the daemon has posted and did not lower meanwhile. */
	if (all > over &&
	    ledger_slot_gpu(&p->attachment.ledger, p->attachment.slot, gpu)->settled > 0)
		grow_settle_in_call(p, i->gpu, NULL);
	return over;
}

/* It keeps what the driver is sure to have taken, out of what it took perhaps. That cannot be told
 * now if other threads' calls are under way, or something may not be on the device. Then the daemon
 * has to find it out when it can. */
static void perhaps_settle(struct implicit *i, uint64_t perhaps)
{
	bool sure, tells = books_figures_tell(i->process);
	uint64_t over = over_take(i, perhaps, &sure);

	sure = sure && tells && books_figures_tell(i->process);
	if (perhaps > over && !i->keeps && !sure)
		books_doubt(i->process, &i->taking.object, perhaps - over);
}

/* Then memory that is given back stays charged until all of them are quiescent. */
static bool anybody_exported(const struct process *p)
{
	const struct ledger *l = &p->attachment.ledger;

	for (uint32_t slot = 1; slot < p->attachment.shape.slot_count; slot++)
		if (atomic_load_explicit(&ledger_slot(l, slot)->exported, memory_order_relaxed))
			return true;
	return false;
}

/* A program may have thousands of modules. They took no more than was reserved, and what the driver
 * did not take of that keeps nobody out. The daemon finds that out by itself, within a second of a
 * quiescent process, or is asked when something needs to know. */
static bool tells_itself(const struct implicit *i, uint64_t perhaps, size_t fell)
{
	if (i->taking.object.kind != OBJECT_IMAGE || fell > reserved(i) ||
	    books_arrays_maybe_freed(i->process, (uint32_t)i->gpu))
		return false;
	uint64_t nothing = books_leaving(i->process, (uint32_t)i->gpu) + perhaps;
	return books_free(i->process, (uint32_t)i->gpu) / ROOMY_TIMES >= nothing &&
	       !anybody_exported(i->process);
}

static void settle(struct implicit *i, size_t fell)
{
	uint64_t perhaps = reserved(i) - MIN(reserved(i), i->surely);

	if (tells_itself(i, perhaps, fell))
		books_doubt(i->process, &i->taking.object, perhaps);
	else if (perhaps)
		perhaps_settle(i, perhaps);
	else
		grow_settle_in_call(i->process, i->gpu, NULL);
}

bool implicit_end(struct implicit *i, bool last)
{
	i->free_after = i->process ? implicit_driver_free() : 0;
	if (!i->process)
		return true;
	size_t fell = i->free_before > i->free_after ? i->free_before - i->free_after : 0;
	if (!fell && !reserved(i))
		return true;
	if (!last && fell > reserved(i) + books_free(i->process, (uint32_t)i->gpu))
		return false;
	settle(i, fell);
	if (books_free(i->process, (uint32_t)i->gpu))
		return true;
	const struct ledger *l = &i->process->attachment.ledger;
	return ledger_committed(l, (uint32_t)i->gpu) <= ledger_limit(l, (uint32_t)i->gpu);
}

bool implicit_refused(const struct implicit *i, bool last)
{
	size_t free_now = implicit_driver_free();
	size_t given = free_now > i->free_after ? free_now - i->free_after : 0;
	size_t took = MIN(given, i->free_before - i->free_after);
	uint64_t more = took - MIN(took, reserved(i));

	if (last)
		grow_settle_in_call(i->process, i->gpu, NULL);
	if (!last && (more <= books_free(i->process, (uint32_t)i->gpu) ||
		      (charge_sweep_in_call(i->process, i->gpu, more) &&
		       more <= books_free(i->process, (uint32_t)i->gpu))))
		return false;
	books_count_refused(i->process, (uint32_t)i->gpu, more);
	return true;
}

CUresult implicit_done(struct implicit *i, CUresult result, uint64_t number)
{
	if (i->taking.process) {
		result = taking_end(&i->taking, result, number);
		if (i->taking.object.kind == OBJECT_IMAGE && i->taking.object.memory)
			books_doubted(i->process);
		return result;
	}
	if (i->process)
		books_call_end(i->process);
	return result;
}
