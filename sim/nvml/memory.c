/* How much memory a device has and who holds it. */
#include "base/macros.h"
#include "nvml/library.h"
#include "nvml/mig.h"

#define BAR1_BYTES_MIN MIB(256)

struct memory {
	uint64_t total, reserved, used; /* bytes; `used` without `reserved` */
};

static nvmlReturn_t device_memory(nvmlDevice_t device, const char *call, const void *out,
				  struct memory *ret)
{
	struct device d;
	struct mig_device mig;
	nvmlReturn_t r = device_enter(device, call, out, &d);

	if (r != NVML_SUCCESS)
		return r;
	if (!device_is_mig(&d)) {
		uint64_t used;
		int error = client_memory_look(d.client, d.id, &used, NULL);

		if (error < 0)
			return library_error(error);
		*ret = (struct memory){d.gpu->memory_total, d.gpu->memory_reserved, used};
	} else if (mig_device_get(&d, &mig)) {
		*ret = (struct memory){mig.memory_total, mig.memory_reserved, mig.memory_used};
	} else {
		return NVML_ERROR_NOT_FOUND;
	}
	return NVML_SUCCESS;
}

/* In a cgroup with a limit, it is as if the GPU had no more. */
static nvmlReturn_t memory_within_limit(nvmlDevice_t device, const char *call,
					nvmlMemory_v2_t *memory)
{
	struct device d;
	uint64_t used, limit;
	nvmlReturn_t r = device_enter(device, call, memory, &d);

	if (r != NVML_SUCCESS || device_is_mig(&d))
		return r;
	int error = client_memory_look_own(d.client, d.id, &used, &limit);
	if (error < 0)
		return library_error(error);
	if (limit >= memory->total)
		return NVML_SUCCESS;
	memory->total = limit;
	memory->reserved = 0;
	memory->used = MIN(used, limit);
	memory->free = limit - memory->used;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	struct memory m = {0};
	nvmlReturn_t r = device_memory(device, __func__, memory, &m);

	if (r != NVML_SUCCESS)
		return r;
	if (memory->version != NVML_MEMORY_V2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	memory->total = m.total;
	memory->reserved = m.reserved;
	memory->used = m.used;
	memory->free = m.total - m.reserved - m.used;
	return memory_within_limit(device, __func__, memory);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	struct memory m = {0};
	nvmlReturn_t r = device_memory(device, __func__, memory, &m);

	if (r != NVML_SUCCESS)
		return r;
	memory->total = m.total;
	memory->used = m.used + m.reserved;
	memory->free = m.total - memory->used;
	return NVML_SUCCESS;
}

/* Data-centre boards map all their memory through BAR1: the next power of two; others 256 MiB. A
 * MIG device has its part. */
nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
	struct device d;
	struct mig_device mig = {.memory_total = 0};
	nvmlReturn_t r = device_enter(device, __func__, memory, &d);
	uint64_t total = BAR1_BYTES_MIN, mapped;

	if (r != NVML_SUCCESS)
		return r;
	if (device_is_mig(&d) && !mig_device_get(&d, &mig))
		return NVML_ERROR_NOT_FOUND;
	mapped = device_is_mig(&d) ? mig.memory_total : d.gpu->memory_total;
	while (d.model->ecc && total < mapped)
		total <<= 1;
	memory->bar1Total = total;
	memory->bar1Used = MIB(1);
	memory->bar1Free = total - memory->bar1Used;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetConfComputeProtectedMemoryUsage(nvmlDevice_t device, nvmlMemory_t *memory)
{
	struct device d;
	nvmlReturn_t r = device_enter(device, __func__, memory, &d);

	if (r == NVML_SUCCESS)
		*memory = (nvmlMemory_t){0};
	return r;
}

static bool process_joins(struct wire_process *processes, unsigned int count,
			  const struct wire_process *more)
{
	for (unsigned int i = 0; i < count; i++)
		if (processes[i].pid == more->pid && processes[i].device == more->device) {
			processes[i].bytes += more->bytes;
			return true;
		}
	return false;
}

/* Processes. NVML's rule for all lists: *count is the array's size going in and the number of
 * entries coming out. If the array is too small, it is left alone and *count says what is
 * needed. */
unsigned int device_processes(const struct device *d, struct wire_process *processes,
			      unsigned int max, nvmlReturn_t *ret)
{
	struct wire_process all[WIRE_PROCESSES_MAX];
	int n = client_process_list(d->client, d->id, all, ARRAY_SIZE(all));
	unsigned int found = 0;

	*ret = n < 0 ? library_error(n) : NVML_SUCCESS;
	for (int i = 0; i < MIN(n, (int)ARRAY_SIZE(all)); i++) {
		/* Asked for a MIG device, the host tells of all its GPU instance. */
		if (device_is_mig(d) && all[i].device != d->id)
			continue;
		/* The driver lists PIDs: a process that has ended, whose memory a child keeps, and
		 * the one that has its PID now are one entry. */
		if (process_joins(processes, MIN(found, max), &all[i]))
			continue;
		if (found < max)
			processes[found] = all[i];
		found++;
	}
	return found;
}

static nvmlProcessInfo_v2_t process_info(const struct wire_process *p)
{
	bool mig = wire_device_is_mig(p->device);

	return (nvmlProcessInfo_v2_t){
		.pid = (unsigned int)p->pid,
		.usedGpuMemory = p->bytes,
		.gpuInstanceId = mig ? wire_device_gi(p->device) : NVML_NO_INSTANCE,
		.computeInstanceId = mig ? wire_device_ci(p->device) : NVML_NO_INSTANCE,
	};
}

/* Fills v1 or v2 entries, whichever is not NULL. */
static nvmlReturn_t list_processes(nvmlDevice_t device, const char *call, unsigned int *count,
				   nvmlProcessInfo_v1_t *v1, nvmlProcessInfo_v2_t *v2)
{
	struct device d;
	nvmlReturn_t r = device_enter(device, call, count, &d);
	struct wire_process found[WIRE_PROCESSES_MAX];
	unsigned int n;

	if (r != NVML_SUCCESS)
		return r;
	if (*count > 0 && !v1 && !v2)
		return NVML_ERROR_INVALID_ARGUMENT;
	n = device_processes(&d, found, ARRAY_SIZE(found), &r);
	if (r != NVML_SUCCESS)
		return r;
	if (n > *count) {
		*count = n;
		return NVML_ERROR_INSUFFICIENT_SIZE;
	}
	*count = n;
	for (unsigned int i = 0; i < n; i++) {
		nvmlProcessInfo_v2_t info = process_info(&found[i]);

		if (v1)
			v1[i] = (nvmlProcessInfo_v1_t){info.pid, info.usedGpuMemory};
		else
			v2[i] = info;
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
						  nvmlProcessInfo_v1_t *infos)
{
	return list_processes(device, __func__, count, infos, NULL);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
						     nvmlProcessInfo_v2_t *infos)
{
	return list_processes(device, __func__, count, NULL, infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
						     nvmlProcessInfo_t *infos)
{
	return list_processes(device, __func__, count, NULL, infos);
}

/* Nothing here draws, and there is no MPS server. */
static nvmlReturn_t list_nobody(nvmlDevice_t device, const char *call, unsigned int *count)
{
	struct device d;
	nvmlReturn_t r = device_enter(device, call, count, &d);

	if (r == NVML_SUCCESS)
		*count = 0;
	return r;
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *count,
						   nvmlProcessInfo_v1_t *infos)
{
	return list_nobody(device, __func__, count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
						      nvmlProcessInfo_v2_t *infos)
{
	return list_nobody(device, __func__, count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
						      nvmlProcessInfo_t *infos)
{
	return list_nobody(device, __func__, count);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
						     nvmlProcessInfo_v1_t *infos)
{
	return list_nobody(device, __func__, count);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
							nvmlProcessInfo_v2_t *infos)
{
	return list_nobody(device, __func__, count);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
							nvmlProcessInfo_t *infos)
{
	return list_nobody(device, __func__, count);
}

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
						   nvmlProcessDetailList_t *list)
{
	struct device d;
	nvmlReturn_t r = device_enter(device, __func__, list, &d);
	struct wire_process found[WIRE_PROCESSES_MAX];
	unsigned int n = 0, room;

	if (r != NVML_SUCCESS)
		return r;
	if (list->version != NVML_PROCESS_DETAIL_LIST_V1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (list->mode > 2)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (list->mode == 0)
		n = device_processes(&d, found, ARRAY_SIZE(found), &r);
	if (r != NVML_SUCCESS)
		return r;
	room = list->procArray ? list->numProcArrayEntries : 0;
	list->numProcArrayEntries = n;
	if (n > room)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned int i = 0; i < n; i++) {
		nvmlProcessInfo_v2_t info = process_info(&found[i]);

		list->procArray[i] = (nvmlProcessDetail_v1_t){
			.pid = info.pid,
			.usedGpuMemory = info.usedGpuMemory,
			.gpuInstanceId = info.gpuInstanceId,
			.computeInstanceId = info.computeInstanceId,
		};
	}
	return NVML_SUCCESS;
}

/* Processes' use of the GPU over the last second. A sample is as new as the call; asking for later
 * ones than that finds none. */
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
					     nvmlProcessUtilizationSample_t *samples,
					     unsigned int *count, unsigned long long last_seen)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, count, &d);
	struct wire_process found[WIRE_PROCESSES_MAX];
	unsigned long long now = library_timestamp_us();
	unsigned int n;

	if (r != NVML_SUCCESS)
		return r;
	if (device_mig_mode(&d))
		return NVML_ERROR_NOT_SUPPORTED;
	n = device_processes(&d, found, ARRAY_SIZE(found), &r);
	if (r != NVML_SUCCESS)
		return r;
	if (n == 0 || last_seen >= now) {
		*count = 0;
		return NVML_ERROR_NOT_FOUND;
	}
	if (!samples || n > *count) {
		*count = n;
		return NVML_ERROR_INSUFFICIENT_SIZE;
	}
	*count = n;
	for (unsigned int i = 0; i < n; i++)
		samples[i] = (nvmlProcessUtilizationSample_t){
			.pid = (unsigned int)found[i].pid,
			.timeStamp = now,
			.smUtil = found[i].sm_permille / 10,
			.memUtil = found[i].copy_permille / 10,
		};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
						   nvmlProcessesUtilizationInfo_t *info)
{
	nvmlProcessUtilizationSample_t samples[WIRE_PROCESSES_MAX];
	unsigned int n = ARRAY_SIZE(samples), room;
	nvmlReturn_t r;

	if (!info)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (info->version != NVML_PROCESSES_UTILIZATION_INFO_V1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	r = nvmlDeviceGetProcessUtilization(device, samples, &n, info->lastSeenTimeStamp);
	if (r != NVML_SUCCESS)
		return r;
	room = info->procUtilArray ? info->processSamplesCount : 0;
	info->processSamplesCount = n;
	if (n > room)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned int i = 0; i < n; i++)
		info->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){
			.timeStamp = samples[i].timeStamp,
			.pid = samples[i].pid,
			.smUtil = samples[i].smUtil,
			.memUtil = samples[i].memUtil,
		};
	return NVML_SUCCESS;
}

/* Accounting is off, as it is by default; the host keeps no records to turn on. */
nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, mode, &d);

	if (r == NVML_SUCCESS)
		*mode = NVML_FEATURE_DISABLED;
	return r;
}

nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t device, unsigned int *size)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, size, &d);

	if (r == NVML_SUCCESS)
		*size = 4000;
	return r;
}

nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count,
					 unsigned int *pids)
{
	(void)pids;
	return gpu_list_none(device, __func__, count);
}

nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid,
					  nvmlAccountingStats_t *stats)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, stats, &d);

	return r == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : r;
}
