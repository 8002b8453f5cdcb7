/* Devices by the driver's numbers and by the ledger's. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "base/cuda_abi.h"
#include "front/process.h"

/* In process.device_gpu: the slice does not have it. */
#define DEVICE_NONE UINT8_MAX

/* Asks the driver; see device_gpu(). */
int device_gpu_ask(struct process *p, CUdevice device);

/* The ledger's GPU behind a device of the driver; -1: it is not of the slice. */
static inline int device_gpu(struct process *p, CUdevice device)
{
	uint8_t known = DEVICE_NONE;

	if ((uint32_t)device < LEDGER_GPUS_MAX)
		known = atomic_load_explicit(&p->device_gpu[device], memory_order_relaxed);
	int gpu = known == DEVICE_NONE ? -1 : known - 1;
	return known ? gpu : device_gpu_ask(p, device);
}

/* The device whose memory the location names; CU_DEVICE_CPU: the memory is the host's. A location
 * of a type that is not known here is taken for a device's, whose number is the lowest byte of its
 * id: a locality domain is such a location (CUDA 13.4). */
static inline CUdevice location_device(const CUmemLocation *location)
{
	switch ((unsigned int)location->type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return location->id;
	case CU_MEM_LOCATION_TYPE_NONE:
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		return CU_DEVICE_CPU;
	default:
		return location->id & 0xff;
	}
}

/* Whether it is a device of the driver's at all. False before cuInit. */
bool device_is_there(CUdevice device);
