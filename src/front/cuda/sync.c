/* Synchronisation is when the driver gives back what was freed in the order of streams. */
#include "front/cuda/grow.h"
#include "front/cuda/hooks.h"

static CUresult synchronised(CUresult result)
{
	struct process *p = process_peek();

	if (p)
		grow_settle(p);
	return result;
}

CUresult hook_cuCtxSynchronize(void)
{
	return synchronised(real_cuCtxSynchronize());
}

CUresult hook_cuCtxSynchronize_v2(CUcontext context)
{
	return synchronised(real_cuCtxSynchronize_v2(context));
}

CUresult hook_cuEventSynchronize(CUevent event)
{
	return synchronised(real_cuEventSynchronize(event));
}

CUresult hook_cuStreamSynchronize(CUstream stream)
{
	return synchronised(real_cuStreamSynchronize(stream));
}

CUresult hook_cuStreamSynchronize_ptsz(CUstream stream)
{
	return synchronised(real_cuStreamSynchronize_ptsz(stream));
}
