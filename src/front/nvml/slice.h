/* The slice in NVML's terms: which of the driver's devices stand for it. A MIG device of the slice
 * has a GPU above it that NVML lists; that GPU then stands for all of the slice's MIG devices on
 * it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
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

/* Entries of a driver's list that name processes. */
struct slice_entry {
	size_t size;      /* at most SLICE_ENTRY_MAX */
	size_t pid_at;    /* where in it the PID is, 32 bits */
	bool with_memory; /* after eight bytes, 64 bits: what the ledger says that it holds */
	bool length_is_no_error; /* asked with no room, the driver succeeds and tells the length */
};
#define SLICE_ENTRY_MAX 64

/* Keeps the slice's entries of such a list, moved to the front. Returns how many are left. */
unsigned int slice_keep_own(struct process *p, nvmlDevice_t device, void *list, unsigned int count,
			    const struct slice_entry *entry);

typedef nvmlReturn_t slice_list_call(nvmlDevice_t device, unsigned int *count, void *infos);
/* The driver's list by that call, without others' entries; *count and the result are as the
 * driver's own call has them. */
nvmlReturn_t slice_list(slice_list_call *real, nvmlDevice_t device, unsigned int *count,
			void *infos, const struct slice_entry *entry);

/* Whether a process is one of the slice's. */
bool slice_has_process(struct process *p, uint32_t pid);
/* Whether the GPU itself is the slice's, and not only instances on it. */
bool slice_has_whole(struct process *p, nvmlDevice_t device);
/* How many GPU instances on this GPU are the slice's; at most `max` of their numbers in ret. */
unsigned int slice_instances(struct process *p, nvmlDevice_t gpu, unsigned int *ret,
			     unsigned int max);
bool slice_has_instance(struct process *p, nvmlDevice_t gpu, unsigned int number);
