/* How busy a device is: with the slice's processes, of whom the driver keeps samples. */
#include <sys/mman.h>

#include "base/macros.h"
#include "front/nvml/hooks.h"
#include "front/nvml/slice.h"

/* More samples than any driver keeps of one GPU. */
#define SAMPLES_MAX 8192u
/* Older samples than that, in microseconds before the newest, say nothing of now. */
#define RECENT_US 1000000ull

static const struct slice_entry used = {.size = sizeof(nvmlProcessUtilizationSample_t)};

nvmlReturn_t hook_nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
						  nvmlProcessUtilizationSample_t *samples,
						  unsigned int *count, unsigned long long last_seen)
{
	struct process *p = process_get();
	nvmlReturn_t result =
		real_nvmlDeviceGetProcessUtilization(device, samples, count, last_seen);

	/* Without a list it tells a length, which may well be more than are kept. */
	if (result == NVML_SUCCESS && samples && count)
		*count = p ? slice_keep_own(p, device, samples, *count, &used) : 0;
	return result;
}

nvmlReturn_t hook_nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
							nvmlProcessesUtilizationInfo_t *info)
{
	struct process *p = process_get();
	nvmlReturn_t result = real_nvmlDeviceGetProcessesUtilizationInfo(device, info);
	unsigned int kept = 0;

	/* Another version's entries are of another size. */
	if (result != NVML_SUCCESS || info->version != NVML_PROCESSES_UTILIZATION_INFO_V1)
		return result;
	for (unsigned int i = 0; p && i < info->processSamplesCount; i++)
		if (slice_has_process(p, info->procUtilArray[i].pid))
			info->procUtilArray[kept++] = info->procUtilArray[i];
	info->processSamplesCount = kept;
	return result;
}

/* Whether sample i is the newest of its process, and recent. */
static bool counts(const nvmlProcessUtilizationSample_t *samples, unsigned int count,
		   unsigned int i, unsigned long long newest)
{
	for (unsigned int k = 0; k < count; k++)
		if (samples[k].pid == samples[i].pid &&
		    (samples[k].timeStamp > samples[i].timeStamp ||
		     (samples[k].timeStamp == samples[i].timeStamp && k < i)))
			return false;
	return samples[i].timeStamp + RECENT_US >= newest;
}

static nvmlUtilization_t own_rates(const nvmlProcessUtilizationSample_t *samples,
				   unsigned int count, unsigned long long newest)
{
	nvmlUtilization_t sum = {0};

	for (unsigned int i = 0; i < count; i++) {
		if (!counts(samples, count, i, newest))
			continue;
		sum.gpu += samples[i].smUtil;
		sum.memory += samples[i].memUtil;
	}
	return sum;
}

/* False: the driver keeps no samples here. */
static bool slice_rates(struct process *p, nvmlDevice_t device, nvmlUtilization_t *ret)
{
	size_t bytes = SAMPLES_MAX * sizeof(nvmlProcessUtilizationSample_t);
	unsigned int count = SAMPLES_MAX;
	unsigned long long newest = 0;
	nvmlProcessUtilizationSample_t *samples =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (samples == MAP_FAILED)
		return false;
	nvmlReturn_t result = real_nvmlDeviceGetProcessUtilization(device, samples, &count, 0);
	if (result == NVML_SUCCESS) {
		for (unsigned int i = 0; i < count; i++)
			newest = MAX(newest, samples[i].timeStamp);
		count = slice_keep_own(p, device, samples, count, &used);
		*ret = own_rates(samples, count, newest);
	} else if (result == NVML_ERROR_NOT_FOUND) {
		*ret = (nvmlUtilization_t){0};
	}
	munmap(samples, bytes);
	return result == NVML_SUCCESS || result == NVML_ERROR_NOT_FOUND;
}

/* Where the driver has no samples (on MIG devices), it is the device's own figure. */
nvmlReturn_t hook_nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
	struct process *p = process_get();
	nvmlReturn_t result = real_nvmlDeviceGetUtilizationRates(device, rates);
	nvmlUtilization_t own;

	if (result == NVML_SUCCESS && p && slice_rates(p, device, &own)) {
		rates->gpu = MIN(rates->gpu, own.gpu);
		rates->memory = MIN(rates->memory, own.memory);
	}
	return result;
}

/* Samples of how busy the device was: nothing above what it is with the slice's processes. */
nvmlReturn_t hook_nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type,
				       unsigned long long last_seen, nvmlValueType_t *value_type,
				       unsigned int *count, nvmlSample_t *samples)
{
	struct process *p = process_get();
	nvmlReturn_t result =
		real_nvmlDeviceGetSamples(device, type, last_seen, value_type, count, samples);
	nvmlUtilization_t own;

	if (result != NVML_SUCCESS || !samples || !p ||
	    (type != NVML_GPU_UTILIZATION_SAMPLES && type != NVML_MEMORY_UTILIZATION_SAMPLES) ||
	    !slice_rates(p, device, &own))
		return result;
	unsigned int most = type == NVML_GPU_UTILIZATION_SAMPLES ? own.gpu : own.memory;
	for (unsigned int i = 0; i < *count; i++)
		samples[i].sampleValue.uiVal = MIN(samples[i].sampleValue.uiVal, most);
	return result;
}
