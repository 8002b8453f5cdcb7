/* Event sets. The host raises no events that reach here, so that waiting on a set only times out.
 */
#include <stdlib.h>
#include <time.h>

#include "nvml/library.h"

struct nvmlEventSet_st {
	unsigned long long types;
};

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
	struct client *c;
	nvmlReturn_t r = library_enter(__func__, set, &c);
	nvmlEventSet_t fresh;

	if (r != NVML_SUCCESS)
		return r;
	fresh = calloc(1, sizeof(*fresh));
	if (!fresh)
		return NVML_ERROR_MEMORY;
	*set = fresh;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
	struct client *c;
	nvmlReturn_t r = library_enter(__func__, set, &c);

	if (r == NVML_SUCCESS)
		free(set);
	return r;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, types, &d);

	if (r == NVML_SUCCESS)
		*types = NVML_EVENT_TYPE_XID_CRITICAL_ERROR |
			 (d.model->mig_class ? NVML_EVENT_TYPE_MIG_CONFIG_CHANGE : 0);
	return r;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
				      nvmlEventSet_t set)
{
	unsigned long long supported;
	nvmlReturn_t r = nvmlDeviceGetSupportedEventTypes(device, set ? &supported : NULL);

	if (r != NVML_SUCCESS)
		return r;
	if (types & ~supported)
		return NVML_ERROR_NOT_SUPPORTED;
	set->types |= types;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
	struct client *c;
	nvmlReturn_t r = library_enter(__func__, set && data ? set : NULL, &c);
	struct timespec rest = {timeout_ms / 1000, (long)(timeout_ms % 1000) * 1000000};

	if (r != NVML_SUCCESS)
		return r;
	while (nanosleep(&rest, &rest) != 0)
		;
	return NVML_ERROR_TIMEOUT;
}
