#include "front/cuda/device.h"

#include <string.h>

#include "front/cuda/hooks.h"

static int find_gpu(const struct attachment *a, const CUuuid *uuid)
{
	for (uint32_t gpu = 0; gpu < a->gpu_count; gpu++)
		if (memcmp(a->ledger.limits->gpu[gpu].uuid, uuid, LEDGER_UUID_SIZE) == 0)
			return (int)gpu;
	return -1;
}

/* Before cuInit the driver does not say: that is not remembered. */
int device_gpu_ask(struct process *p, CUdevice device)
{
	CUuuid uuid;

	/* Only the second version names a MIG device by its own UUID; old drivers lack it. */
	if (real_cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS &&
	    real_cuDeviceGetUuid(&uuid, device) != CUDA_SUCCESS)
		return -1;
	int gpu = find_gpu(&p->attachment, &uuid);
	atomic_store_explicit(&p->device_gpu[device], gpu < 0 ? DEVICE_NONE : (uint8_t)(gpu + 1),
			      memory_order_relaxed);
	return gpu;
}

bool device_is_there(CUdevice device)
{
	int count = 0;

	return real_cuDeviceGetCount(&count) == CUDA_SUCCESS && device >= 0 && device < count;
}
