/* The driver's table of private functions for nvidia-smi, as far as NVIDIA itself tells of it in
 * its own simulated NVML (github.com/NVIDIA/k8s-test-infra, pkg/gpu/mocknvml, Apache-2.0). Nothing
 * else of it is relied on. A call of nvmlInternalGetExportTable gives the table for its GUID. The
 * table's first word is its size in bytes; then come function pointers, counted from slot 1. */
#pragma once

#include "base/nvml_abi.h"

/* 6c3efec4-8fc9-4e6c-a327-ee696e12f7c4, its first three groups in little-endian order. */
#define NVML_PRIVATE_GUID                                                                     \
	{                                                                                     \
		0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e, 0xa3, 0x27, 0xee, 0x69, 0x6e, \
			0x12, 0xf7, 0xc4                                                      \
	}

enum {
	/* (index, nvmlDevice_t *ret, NVML_PRIVATE_BY_INDEX) */
	NVML_PRIVATE_SLOT_DEVICE_BY_INDEX = 81,
	NVML_PRIVATE_BY_INDEX = 0x22,
	/* (nvmlDevice_t, unsigned int *count, struct nvml_private_process *): three lists, the
	 * first of compute processes (nvidia-smi prints it as such); *count is the room, then what
	 * is there. */
	NVML_PRIVATE_SLOT_PROCESSES = 213,
	NVML_PRIVATE_PROCESS_LISTS = 3,
	/* (nvmlDevice_t, unsigned int *ret): the host's highest PCIe generation */
	NVML_PRIVATE_SLOT_HOST_LINK_GENERATION = 230,
};

struct nvml_private_process {
	nvmlProcessDetail_v1_t detail;
	char name[4096];
};
_Static_assert(sizeof(struct nvml_private_process) == 4128, "the stride nvidia-smi walks by");
