/* Synchronisation is when the driver gives back what was freed in the order of streams; and whoever
 * waits puts its markers in before. */
#include "front/cuda/charge/grow.h"
#include "front/cuda/gate/gate.h"
#include "front/cuda/hooks.h"

CUresult hook_cuCtxSynchronize(void)
{
	struct gate_own_numbers own;

	gate_before_wait();
	gate_own_note(&own, NULL);
	WAITED(gate_own_waited(&own, real_cuCtxSynchronize()));
}

CUresult hook_cuCtxSynchronize_v2(CUcontext context)
{
	struct gate_own_numbers own;

	gate_before_wait();
	gate_own_note(&own, context);
	WAITED(gate_own_waited(&own, real_cuCtxSynchronize_v2(context)));
}

CUresult hook_cuEventSynchronize(CUevent event)
{
	gate_before_wait();
	WAITED(real_cuEventSynchronize(event));
}

CUresult hook_cuStreamSynchronize(CUstream stream)
{
	gate_before_wait();
	WAITED(real_cuStreamSynchronize(stream));
}

CUresult hook_cuStreamSynchronize_ptsz(CUstream stream)
{
	gate_before_wait();
	WAITED(real_cuStreamSynchronize_ptsz(stream));
}
