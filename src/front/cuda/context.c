/* Contexts take memory that no call sizes. The cost that was learned for the GPU is reserved first;
 * then the daemon reads what the driver says this process holds, and posts the difference. */
#include "front/books.h"
#include "front/cuda/charge/charge.h"
#include "front/cuda/charge/grow.h"
#include "front/cuda/charge/library_use.h"
#include "front/cuda/charge/local.h"
#include "front/cuda/device.h"
#include "front/cuda/gate/gate.h"
#include "front/cuda/hooks.h"

static uint64_t learned_cost(const struct process *p, int gpu)
{
	return gpu < 0 ? 0 : atomic_load(&p->attachment.ledger.limits->gpu[gpu].context_bytes);
}

static CUresult context_begin(struct taking *t, CUdevice device)
{
	struct process *p = process_get();
	int gpu = p ? device_gpu(p, device) : -1;

	*t = (struct taking){0};
	gate_context_changed();
	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	/* No device at all: the driver has the better word for what is wrong. */
	if (gpu < 0)
		return device_is_there(device) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
	return taking_begin_on(t, p, gpu, OBJECT_CONTEXT, learned_cost(p, gpu));
}

static void settle_contexts(struct process *p, int gpu, bool in_call)
{
	/* If a library was not used yet, the driver may have nothing of it, and it is to be
	 * charged. */
	grow_settle_contexts(p, gpu, !library_is_unused(p), in_call);
}

/* True where the driver took more than the slice had left for a context. */
static bool context_is_too_much(struct process *p, uint32_t gpu)
{
	const struct ledger *l = &p->attachment.ledger;

	settle_contexts(p, -1, true);
	return ledger_committed(l, gpu) > ledger_limit(l, gpu) &&
	       (!charge_sweep_in_call(p, (int)gpu, 0) ||
		ledger_committed(l, gpu) > ledger_limit(l, gpu));
}

/* primary: the device whose primary context it is, else CU_DEVICE_INVALID. */
static CUresult context_end(struct taking *t, CUresult result, CUcontext *context, CUdevice primary)
{
	gate_context_changed();
	if (result != CUDA_SUCCESS || !t->process)
		return taking_end(t, result, 0);
	t->object.count = 1;
	if (context_is_too_much(t->process, t->object.gpu)) {
		if (primary == CU_DEVICE_INVALID)
			real_cuCtxDestroy_v2(*context);
		else
			real_cuDevicePrimaryCtxRelease_v2(primary);
		taking_end(t, CUDA_ERROR_OUT_OF_MEMORY, 0);
		settle_contexts(t->process, -1, false);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	result = taking_end(t, CUDA_SUCCESS, (uintptr_t)*context);
	local_look_again();
	return result;
}

/* Every version of cuCtxCreate does this around the driver's call. */
#define CREATE(context, device, call)                   \
	struct taking t;                                \
	CUresult result = context_begin(&t, device);    \
	return result != CUDA_SUCCESS                   \
		       ? REFUSED(result, context, call) \
		       : context_end(&t, TAKE(&t, call), context, CU_DEVICE_INVALID)

CUresult hook_cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
	CREATE(context, device, real_cuCtxCreate(context, flags, device));
}

CUresult hook_cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
	CREATE(context, device, real_cuCtxCreate_v2(context, flags, device));
}

CUresult hook_cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int affinity_count,
			     unsigned int flags, CUdevice device)
{
	CREATE(context, device,
	       real_cuCtxCreate_v3(context, affinity, affinity_count, flags, device));
}

CUresult hook_cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags,
			     CUdevice device)
{
	CREATE(context, device, real_cuCtxCreate_v4(context, params, flags, device));
}

CUresult hook_cuGLCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
	CREATE(context, device, real_cuGLCtxCreate(context, flags, device));
}

CUresult hook_cuGLCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
	CREATE(context, device, real_cuGLCtxCreate_v2(context, flags, device));
}

CUresult hook_cuVDPAUCtxCreate(CUcontext *context, unsigned int flags, CUdevice device,
			       uint32_t vdp_device, void *get_proc_address)
{
	CREATE(context, device,
	       real_cuVDPAUCtxCreate(context, flags, device, vdp_device, get_proc_address));
}

CUresult hook_cuVDPAUCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device,
				  uint32_t vdp_device, void *get_proc_address)
{
	CREATE(context, device,
	       real_cuVDPAUCtxCreate_v2(context, flags, device, vdp_device, get_proc_address));
}

/* A context may be about to go. To be followed by destroy_end(). */
static void destroy_begin(struct giving *g, CUcontext context)
{
	gate_context_destroy_begin(context);
	giving_begin(g, OBJECT_CONTEXT, (uintptr_t)context);
}

/* A context is gone, and everything in it. The context itself may have taken less than was charged
 * by the learned cost, and the daemon has posted the difference: so it is leaving until that is
 * posted anew. */
static CUresult destroy_end(struct giving *g, CUresult result, CUcontext context)
{
	struct process *p = g->process;

	gate_context_destroy_end(context, result == CUDA_SUCCESS);
	if (!p || result != CUDA_SUCCESS)
		return giving_end(g, result);
	books_drop_context(p, (uintptr_t)context);
	g->object.exported = true;
	books_drop(p, &g->object);
	settle_contexts(p, g->object.gpu, false);
	giving_left(g);
	return result;
}

CUresult hook_cuCtxDestroy_v2(CUcontext context)
{
	struct giving g;

	destroy_begin(&g, context);
	return destroy_end(&g, real_cuCtxDestroy_v2(context), context);
}

CUresult hook_cuCtxDestroy(CUcontext context)
{
	struct giving g;

	destroy_begin(&g, context);
	return destroy_end(&g, real_cuCtxDestroy(context), context);
}

CUresult hook_cuCtxAttach(CUcontext *context, unsigned int flags)
{
	CUresult result = real_cuCtxAttach(context, flags);

	gate_context_changed();
	struct process *p = process_peek();

	if (result == CUDA_SUCCESS && p)
		books_reference(p, OBJECT_CONTEXT, (uintptr_t)*context, 1);
	return result;
}

CUresult hook_cuCtxDetach(CUcontext context)
{
	struct process *p = process_peek();
	struct giving g;

	if (p && books_reference(p, OBJECT_CONTEXT, (uintptr_t)context, 0) > 1) {
		CUresult result = real_cuCtxDetach(context);

		if (result == CUDA_SUCCESS)
			books_reference(p, OBJECT_CONTEXT, (uintptr_t)context, -1);
		return result;
	}
	destroy_begin(&g, context);
	return destroy_end(&g, real_cuCtxDetach(context), context);
}

static bool primary_is_active(CUdevice device)
{
	unsigned int flags;
	int active = 0;

	return real_cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active;
}

/* The primary context is made by its first user, and booked once: where two threads are first, the
 * books keep one of the same handle. */
CUresult hook_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	struct taking t;

	if (process_peek() && primary_is_active(device))
		return real_cuDevicePrimaryCtxRetain(context, device);
	CUresult result = context_begin(&t, device);
	if (result != CUDA_SUCCESS)
		return process_peek() && (!context || primary_is_active(device))
			       ? real_cuDevicePrimaryCtxRetain(context, device)
			       : result;
	result = TAKE(&t, real_cuDevicePrimaryCtxRetain(context, device));
	if (result == CUDA_SUCCESS && t.process)
		t.process->gpu[t.object.gpu].primary = (uintptr_t)*context;
	return context_end(&t, result, context, device);
}

static CUcontext primary_of(CUdevice device)
{
	struct process *p = process_peek();
	int gpu = p ? device_gpu(p, device) : -1;

	return gpu < 0 ? NULL : (CUcontext)(uintptr_t)p->gpu[gpu].primary;
}

/* One user less; the context is gone if it was the last. */
static CUresult primary_end(struct giving *g, CUresult result, CUdevice device, CUcontext context)
{
	bool gone = result == CUDA_SUCCESS && !primary_is_active(device);

	destroy_end(g, gone ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN, context);
	return result;
}

/* Every version of the next two does this around the driver's call. */
#define PRIMARY_END(device, call)               \
	CUcontext context = primary_of(device); \
	struct giving g;                        \
	destroy_begin(&g, context);             \
	return primary_end(&g, call, device, context)

CUresult hook_cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	PRIMARY_END(device, real_cuDevicePrimaryCtxRelease_v2(device));
}

CUresult hook_cuDevicePrimaryCtxRelease(CUdevice device)
{
	PRIMARY_END(device, real_cuDevicePrimaryCtxRelease(device));
}

CUresult hook_cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	PRIMARY_END(device, real_cuDevicePrimaryCtxReset_v2(device));
}

CUresult hook_cuDevicePrimaryCtxReset(CUdevice device)
{
	PRIMARY_END(device, real_cuDevicePrimaryCtxReset(device));
}
