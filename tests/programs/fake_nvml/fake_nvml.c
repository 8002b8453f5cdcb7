/* An NVML that says what a file says, for tests of the daemon alone: GPUs, memory held by nobody,
 * and processes, without any of them being real. FAKE_NVML names the file, read anew at each call:
 *
 *   gpu TOTAL RESERVED OUTSIDE NAME...     a GPU (bytes), in order of index
 *   process GPU PID BYTES                  memory held by a process
 *   driver_mode GPU MODE                   the driver's compute mode (nvmlComputeMode_t; else 0)
 *   utilization GPU PERCENT                how busy it says it is (else 0)
 *   use GPU PID PERCENT                    GPU time that a process uses
 *   use_untold                             it does not tell that
 *   mig GPU CURRENT PENDING SECRET         it has a MIG mode (0 or 1); SECRET: while that is on,
 *                                          its memory is not told
 *   fail                                   every call about memory fails
 *   delay MS                               each call about the memory of a GPU, or who draws, takes
 *                                          so long, and is told: a letter in the file of that name
 *                                          and ".calls" */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/nvml_functions.h"

#define GPUS 64
#define PROCESSES 4096

struct nvmlDevice_st {
	unsigned index;
};

struct state {
	unsigned gpu_count, process_count;
	struct {
		unsigned long long total, reserved, outside;
		char name[64];
		unsigned utilization, driver_mode;
		unsigned has_mig, mig, mig_pending, mig_secret;
	} gpu[GPUS];
	struct {
		unsigned gpu, pid;
		unsigned long long bytes;
	} process[PROCESSES];
	struct {
		unsigned gpu, pid, percent;
	} use[PROCESSES];
	unsigned use_count;
	int failing, use_untold;
	unsigned delay_ms;
};

static struct nvmlDevice_st devices[GPUS];

static void line_read(const char *line, struct state *state)
{
	unsigned g = state->gpu_count, p = state->process_count, gpu, percent;

	if (!strncmp(line, "fail", 4)) {
		state->failing = 1;
	} else if (!strncmp(line, "use_untold", 10)) {
		state->use_untold = 1;
	} else if (state->use_count < PROCESSES &&
		   sscanf(line, "use %u %u %u", &gpu, &state->use[state->use_count].pid,
			  &state->use[state->use_count].percent) == 3) {
		state->use[state->use_count++].gpu = gpu;
	} else if (sscanf(line, "delay %u", &state->delay_ms) == 1) {
	} else if (sscanf(line, "driver_mode %u %u", &gpu, &percent) == 2 && gpu < GPUS) {
		state->gpu[gpu].driver_mode = percent;
	} else if (sscanf(line, "mig %u", &gpu) == 1 && gpu < GPUS) {
		state->gpu[gpu].has_mig =
			sscanf(line, "mig %u %u %u %u", &gpu, &state->gpu[gpu].mig,
			       &state->gpu[gpu].mig_pending, &state->gpu[gpu].mig_secret) == 4;
	} else if (sscanf(line, "utilization %u %u", &gpu, &percent) == 2 && gpu < GPUS) {
		state->gpu[gpu].utilization = percent;
	} else if (g < GPUS && sscanf(line, "gpu %llu %llu %llu %63[^\n]", &state->gpu[g].total,
				      &state->gpu[g].reserved, &state->gpu[g].outside,
				      state->gpu[g].name) == 4) {
		state->gpu_count++;
	} else if (p < PROCESSES && sscanf(line, "process %u %u %llu", &state->process[p].gpu,
					   &state->process[p].pid, &state->process[p].bytes) == 3) {
		state->process_count++;
	}
}

/* Owned by the caller; NULL where there is no file. */
static struct state *state_read(void)
{
	const char *path = getenv("FAKE_NVML");
	FILE *file = path ? fopen(path, "re") : NULL;
	struct state *state = file ? calloc(1, sizeof(*state)) : NULL;
	char line[256];

	while (state && fgets(line, sizeof(line), file))
		line_read(line, state);
	if (file)
		fclose(file);
	return state;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
	return result == NVML_ERROR_DRIVER_NOT_LOADED ? "Driver Not Loaded" : "Fake Error";
}

nvmlReturn_t nvmlInit_v2(void)
{
	struct state *state = state_read();
	nvmlReturn_t rc = state ? NVML_SUCCESS : NVML_ERROR_DRIVER_NOT_LOADED;

	free(state);
	return rc;
}

nvmlReturn_t nvmlShutdown(void)
{
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
	snprintf(version, length, "550.0.fake");
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
	struct state *state = state_read();

	if (!state)
		return NVML_ERROR_UNKNOWN;
	*count = state->gpu_count;
	free(state);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
	if (index >= GPUS)
		return NVML_ERROR_INVALID_ARGUMENT;
	devices[index].index = index;
	*device = &devices[index];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length)
{
	struct state *state = state_read();

	if (!state)
		return NVML_ERROR_UNKNOWN;
	snprintf(name, length, "%s", state->gpu[device->index].name);
	free(state);
	return NVML_SUCCESS;
}

/* Hosts that differ in their state file have different GPUs. */
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length)
{
	unsigned hash = 2166136261u;

	for (const char *p = getenv("FAKE_NVML"); p && *p; p++)
		hash = (hash ^ (unsigned char)*p) * 16777619u;
	snprintf(uuid, length, "GPU-%08x-fa4e-fa4e-fa4e-%012x", hash, device->index);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	*pci = (nvmlPciInfo_t){.bus = device->index + 1};
	snprintf(pci->busId, sizeof(pci->busId), "00000000:%02X:00.0", device->index + 1);
	return NVML_SUCCESS;
}

static void take_long(const struct state *state, char letter)
{
	char path[4096];

	if (!state || !state->delay_ms)
		return;
	usleep(state->delay_ms * 1000);
	snprintf(path, sizeof(path), "%s.calls", getenv("FAKE_NVML"));
	FILE *file = fopen(path, "ae");
	if (!file)
		return;
	fputc(letter, file);
	fclose(file);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	struct state *state = state_read();

	take_long(state, 'm');
	if (!state || state->failing) {
		free(state);
		return NVML_ERROR_UNKNOWN;
	}
	if (state->gpu[device->index].mig && state->gpu[device->index].mig_secret) {
		free(state);
		return NVML_ERROR_NO_PERMISSION;
	}
	memory->total = state->gpu[device->index].total;
	memory->reserved = state->gpu[device->index].reserved;
	memory->used = state->gpu[device->index].outside;
	for (unsigned i = 0; i < state->process_count; i++)
		if (state->process[i].gpu == device->index)
			memory->used += state->process[i].bytes;
	memory->free = memory->total - memory->reserved - memory->used;
	free(state);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	nvmlMemory_v2_t v2;
	nvmlReturn_t rc = nvmlDeviceGetMemoryInfo_v2(device, &v2);

	if (rc == NVML_SUCCESS)
		*memory = (nvmlMemory_t){v2.total, v2.free, v2.used + v2.reserved};
	return rc;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
						     nvmlProcessInfo_v2_t *list)
{
	struct state *state = state_read();
	unsigned found = 0;

	if (!state || state->failing) {
		free(state);
		return NVML_ERROR_UNKNOWN;
	}
	for (unsigned i = 0; i < state->process_count; i++) {
		if (state->process[i].gpu != device->index)
			continue;
		if (found < *count)
			list[found] = (nvmlProcessInfo_v2_t){
				.pid = state->process[i].pid,
				.usedGpuMemory = state->process[i].bytes,
				.gpuInstanceId = NVML_NO_INSTANCE,
				.computeInstanceId = NVML_NO_INSTANCE,
			};
		found++;
	}
	nvmlReturn_t rc = found > *count ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
	*count = found;
	free(state);
	return rc;
}

/* Nobody draws. */
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
						      nvmlProcessInfo_v2_t *list)
{
	struct state *state = state_read();

	take_long(state, 'g');
	free(state);
	*count = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode)
{
	struct state *state = state_read();

	if (!state)
		return NVML_ERROR_UNKNOWN;
	*mode = (nvmlComputeMode_t)state->gpu[device->index].driver_mode;
	free(state);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
	struct state *state = state_read();

	if (!state)
		return NVML_ERROR_UNKNOWN;
	nvmlReturn_t rc = state->failing                      ? NVML_ERROR_GPU_IS_LOST
			  : state->gpu[device->index].has_mig ? NVML_SUCCESS
							      : NVML_ERROR_NOT_SUPPORTED;
	*current = state->gpu[device->index].mig;
	*pending = state->gpu[device->index].mig_pending;
	free(state);
	return rc;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
	struct state *state = state_read();

	if (!state || state->failing) {
		free(state);
		return NVML_ERROR_UNKNOWN;
	}
	*rates = (nvmlUtilization_t){.gpu = state->gpu[device->index].utilization};
	free(state);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
					     nvmlProcessUtilizationSample_t *samples,
					     unsigned *count, unsigned long long last_seen)
{
	struct state *state = state_read();
	unsigned found = 0;

	if (!state || state->use_untold) {
		free(state);
		return NVML_ERROR_NOT_SUPPORTED;
	}
	for (unsigned i = 0; i < state->use_count; i++)
		if (state->use[i].gpu == device->index && found < *count)
			samples[found++] = (nvmlProcessUtilizationSample_t){
				.pid = state->use[i].pid, .smUtil = state->use[i].percent};
	free(state);
	*count = found;
	return found ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}
