/* The driver's answers beside its lists of processes: of every GPU, of the program that asks, and
 * of process 1, which is somebody else's. An event comes of each GPU in turn. */
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/nvml_functions.h"

#define GPUS 64
#define OTHER_PID 1u

static nvmlReturn_t all_devices(unsigned int *count, nvmlDevice_t *devices)
{
	unsigned int all, room = devices ? *count : 0;
	nvmlReturn_t result = nvmlDeviceGetCount_v2(&all);

	for (unsigned int i = 0; i < MIN(all, room); i++)
		nvmlDeviceGetHandleByIndex_v2(i, &devices[i]);
	*count = room ? MIN(all, room) : all;
	return result;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	char text[96];

	for (unsigned int i = 0; i < GPUS; i++)
		if (nvmlDeviceGetHandleByIndex_v2(i, device) == NVML_SUCCESS &&
		    nvmlDeviceGetUUID(*device, text, sizeof(text)) == NVML_SUCCESS &&
		    !strcmp(text, uuid))
			return NVML_SUCCESS;
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level,
					      unsigned int *count, nvmlDevice_t *devices)
{
	return all_devices(count, devices);
}

nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned int processor, unsigned int *count,
					 nvmlDevice_t *devices)
{
	return all_devices(count, devices);
}

nvmlReturn_t nvmlUnitGetDevices(nvmlUnit_t unit, unsigned int *count, nvmlDevice_t *devices)
{
	return all_devices(count, devices);
}

nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int *count)
{
	*count = 1;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGetExcludedDeviceInfoByIndex(unsigned int index,
					      struct nvmlExcludedDeviceInfo_st *info)
{
	return index ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	nvmlDevice_t other;

	for (unsigned int i = 0; i < GPUS; i++)
		if (nvmlDeviceGetHandleByIndex_v2(i, &other) == NVML_SUCCESS && other == device)
			return *index = i, NVML_SUCCESS;
	return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count,
					 unsigned int *pids)
{
	unsigned int room = *count;

	*count = 2;
	if (room < 2)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	pids[0] = OTHER_PID;
	pids[1] = (unsigned int)getpid();
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid,
					  nvmlAccountingStats_t *stats)
{
	memset(stats, 0, sizeof(*stats));
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceClearAccountingPids(nvmlDevice_t device)
{
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEncoderSessions(nvmlDevice_t device, unsigned int *count,
					  nvmlEncoderSessionInfo_t *infos)
{
	unsigned int room = *count;

	*count = 2;
	if (room < 2)
		return room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
	infos[0] = (nvmlEncoderSessionInfo_t){.pid = OTHER_PID, .averageFps = 10};
	infos[1] = (nvmlEncoderSessionInfo_t){.pid = (unsigned int)getpid(), .averageFps = 30};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned int *sessions,
				       unsigned int *fps, unsigned int *latency)
{
	*sessions = 2;
	*fps = 20;
	*latency = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFBCSessions(nvmlDevice_t device, unsigned int *count,
				      nvmlFBCSessionInfo_t *infos)
{
	unsigned int room = *count;

	*count = 2;
	if (room < 2)
		return room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
	infos[0] = (nvmlFBCSessionInfo_t){.pid = OTHER_PID, .averageFPS = 10};
	infos[1] = (nvmlFBCSessionInfo_t){.pid = (unsigned int)getpid(), .averageFPS = 30};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFBCStats(nvmlDevice_t device, nvmlFBCStats_t *stats)
{
	*stats = (nvmlFBCStats_t){.sessionsCount = 2, .averageFPS = 20};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetConfComputeProtectedMemoryUsage(nvmlDevice_t device, nvmlMemory_t *memory)
{
	return nvmlDeviceGetMemoryInfo(device, memory);
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
	static unsigned int next;
	unsigned int all;

	memset(data, 0, sizeof(*data));
	data->gpuInstanceId = data->computeInstanceId = ~0u;
	if (nvmlDeviceGetCount_v2(&all) != NVML_SUCCESS || next >= all)
		return NVML_ERROR_TIMEOUT;
	return nvmlDeviceGetHandleByIndex_v2(next++, &data->device);
}
