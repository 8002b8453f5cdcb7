/* Limits on what the processes of a cgroup may have of a GPU's memory: drivers from 615 on. */
#include "nvml/library.h"

#define LIMITS_SINCE 615 /* as functions.txt says */

static nvmlReturn_t limits_enter(nvmlDevice_t device, const char *call, const void *out,
				 const char *cgroup, struct device *ret)
{
	nvmlReturn_t r = gpu_enter(device, call, out, ret);

	if (r != NVML_SUCCESS)
		return r;
	if (client_host(ret->client)->driver_branch < LIMITS_SINCE)
		return NVML_ERROR_FUNCTION_NOT_FOUND;
	return cgroup ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits)
{
	struct device d;
	nvmlReturn_t r =
		limits_enter(device, __func__, limits, limits ? limits->nameSpace : NULL, &d);

	if (r != NVML_SUCCESS)
		return r;
	return library_error(client_limit_set(d.client, d.id, limits->nameSpace, limits->softLimit,
					      limits->hardLimit));
}

nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits)
{
	struct device d;
	uint64_t soft, hard, used;
	nvmlReturn_t r =
		limits_enter(device, __func__, limits, limits ? limits->nameSpace : NULL, &d);

	if (r != NVML_SUCCESS)
		return r;
	r = library_error(client_limit_get(d.client, d.id, limits->nameSpace, &soft, &hard, &used));
	if (r == NVML_SUCCESS) {
		limits->softLimit = soft;
		limits->hardLimit = hard;
		limits->currentUsed = used;
	}
	return r;
}
