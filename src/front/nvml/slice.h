/* The slice in NVML's terms: which of the driver's devices stand for it. A MIG device of the slice
 * has a GPU above it that NVML lists; that GPU then stands for all of the slice's MIG devices on
 * it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/nvml_abi.h"
#include "front/process.h"

/* GPUs of the ledger that a device stands for, one bit each; 0: it is not of the slice. */
uint64_t slice_gpus(struct process *p, nvmlDevice_t device);

/* The slice's devices as NVML counts them, GPUs only, in the order of the slice. Without a session
 * there are none. */
unsigned int slice_device_count(void);
/* NVML_SUCCESS, or the driver's word where it cannot be had; NVML_ERROR_INVALID_ARGUMENT: no such
 * index. */
nvmlReturn_t slice_device(unsigned int index, nvmlDevice_t *ret);

/* Of a driver's list of processes, keeps the slice's, moved to the front, with what the ledger says
 * they hold (with_memory: as 64 bits after eight). Entries are `size` bytes and begin with the PID.
 * Returns how many are left. */
unsigned int slice_keep_own(struct process *p, nvmlDevice_t device, void *list, unsigned int count,
			    size_t size, bool with_memory);
/* Whether a process is one of the slice's. */
bool slice_has_process(struct process *p, uint32_t pid);
