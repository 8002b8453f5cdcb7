/* Shared by the entry points of the simulated libnvidia-ml: the connection to the host and
 * handles.
 *
 * A handle is a place in a static table, so any pointer a caller passes can be checked without
 * being followed. Handles outlive nvmlShutdown/nvmlInit and fork; whether a MIG instance still
 * exists is the host's knowledge and asked at each use.
 *
 * All functions may be called from any thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/nvml_functions.h"
#include "host/client.h"
#include "host/models.h"

/* A device handle, looked up. `gpu` and `model` are the whole GPU's, for MIG devices too. */
struct device {
	wire_device id;
	unsigned int index; /* the GPU's */
	const struct wire_gpu *gpu;
	const struct sim_model *model;
	struct client *client;
};

/* The connection, while NVML is initialized in this process; else NULL. A forked child gets one of
 * its own at its first call. */
struct client *library_client(void);
/* Every entry point starts with one of these. `call` is the entry point's name (__func__): armed
 * faults hit by it. `out` is the caller's output pointer: NULL gives INVALID_ARGUMENT. (Inline, so
 * that static analysis sees that.)
 *
 * library_open: UNINITIALIZED. For calls that find their device themselves: library_fault follows.
 */
static inline nvmlReturn_t library_open(const void *out, struct client **ret)
{
	struct client *c = library_client();

	if (!c)
		return NVML_ERROR_UNINITIALIZED;
	*ret = c;
	return out ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}
/* The error of an armed fault that hits `call` on a device (WIRE_NO_DEVICE: the call is about
 * none), else SUCCESS. Once for each call, because faults count calls. */
nvmlReturn_t library_fault(struct client *c, wire_device device, const char *call);
/* A call that is about no device: UNINITIALIZED, or an armed fault's error. */
static inline nvmlReturn_t library_enter(const char *call, const void *out, struct client **ret)
{
	nvmlReturn_t r = library_open(out, ret);

	return r == NVML_SUCCESS ? library_fault(*ret, WIRE_NO_DEVICE, call) : r;
}

/* A GPU or MIG device; INVALID_ARGUMENT for what never was a handle or, of a MIG device, is none
 * any more; GPU_IS_LOST. */
nvmlReturn_t device_enter_call(nvmlDevice_t handle, const char *call, struct device *ret);
static inline nvmlReturn_t device_enter(nvmlDevice_t handle, const char *call, const void *out,
					struct device *ret)
{
	if (!out)
		return library_client() ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_UNINITIALIZED;
	return device_enter_call(handle, call, ret);
}

/* A GPU; NOT_SUPPORTED for a MIG device. */
static inline nvmlReturn_t gpu_enter(nvmlDevice_t handle, const char *call, const void *out,
				     struct device *ret)
{
	nvmlReturn_t r = device_enter(handle, call, out, ret);

	return r == NVML_SUCCESS && wire_device_is_mig(ret->id) ? NVML_ERROR_NOT_SUPPORTED : r;
}

/* A GPU's list that is empty in every simulation: *count = 0. */
static inline nvmlReturn_t gpu_list_none(nvmlDevice_t handle, const char *call, unsigned int *count)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(handle, call, count, &d);

	if (r == NVML_SUCCESS)
		*count = 0;
	return r;
}

nvmlDevice_t handle_of_device(wire_device id);
nvmlGpuInstance_t handle_of_gpu_instance(wire_device id);
nvmlComputeInstance_t handle_of_compute_instance(wire_device id);
/* False where the pointer is not in the table. */
bool handle_device(nvmlDevice_t handle, wire_device *ret);
bool handle_gpu_instance(nvmlGpuInstance_t handle, wire_device *ret);
bool handle_compute_instance(nvmlComputeInstance_t handle, wire_device *ret);

static inline bool device_is_mig(const struct device *d)
{
	return wire_device_is_mig(d->id);
}
static inline bool device_mig_mode(const struct device *d)
{
	return d->gpu->flags & WIRE_GPU_MIG;
}

/* The time of samples and values: microseconds since 1970, by the machine's own clock. */
unsigned long long library_timestamp_us(void);
/* NVML's word for a failure of the host's client library (-errno). */
nvmlReturn_t library_error(int error);
/* The processes that hold memory on a device; of a MIG device, its own alone. Fills up to max
 * entries and returns how many there are (0 with *ret set to the error). */
unsigned int device_processes(const struct device *d, struct wire_process *processes,
			      unsigned int max, nvmlReturn_t *ret);
/* A process's name as NVML gives it; size > 0, cut where it does not fit. NOT_FOUND. */
nvmlReturn_t process_name(unsigned int pid, char *name, size_t size);
/* Copies text into a caller's buffer of `length` bytes: INSUFFICIENT_SIZE where it does not fit. */
nvmlReturn_t library_text(const char *text, char *buf, unsigned int length);
/* A function that no driver has: how far the clock of a GPU is behind CLOCK_MONOTONIC when that is
 * now_ns (host/engine.h), ns. Any thread, at any time between nvmlInit and nvmlShutdown; no system
 * call.
 */
unsigned long long simgpuClockLag(unsigned int index, unsigned long long now_ns);
/* The end of every generated entry point. It notes the call for `simhost stat`, and says whether
 * the played driver (since: the branch that brought the function) lacks it or the device does. */
nvmlReturn_t library_unsupported(const char *call, unsigned int since);
