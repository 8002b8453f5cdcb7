/* The calls that tell of MIG. In a slice of instances those of others are not there, and there is
 * no room for more. Nothing is made or removed in any slice (change.c): carve's daemon does that.
 * Each hook asks the driver first where it has the better word. */
#include <string.h>

#include "front/nvml/hooks.h"
#include "front/nvml/slice.h"

/* The slice is of MIG devices, and not of GPUs. */
static bool is_of_instances(void)
{
	struct process *p = process_get();
	const struct ledger_limits *limits = p ? p->attachment.ledger.limits : NULL;

	return limits && ledger_gpu_count(limits) &&
	       !strncmp(limits->gpu[0].uuid_text, "MIG-", strlen("MIG-"));
}

static bool is_shown(nvmlDevice_t gpu, unsigned int number)
{
	struct process *p = process_get();

	return p && (slice_has_whole(p, gpu) || slice_has_instance(p, gpu, number));
}

nvmlReturn_t hook_nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int profile_id,
					    nvmlGpuInstance_t *instances, unsigned int *count)
{
	nvmlReturn_t result = real_nvmlDeviceGetGpuInstances(device, profile_id, instances, count);
	unsigned int own = 0;

	if (result != NVML_SUCCESS)
		return result;
	for (unsigned int i = 0; i < *count; i++) {
		nvmlGpuInstanceInfo_t info;

		if (real_nvmlGpuInstanceGetInfo(instances[i], &info) == NVML_SUCCESS &&
		    is_shown(device, info.id))
			instances[own++] = instances[i];
	}
	*count = own;
	return NVML_SUCCESS;
}

nvmlReturn_t hook_nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id,
					       nvmlGpuInstance_t *instance)
{
	nvmlReturn_t result = real_nvmlDeviceGetGpuInstanceById(device, id, instance);

	if (result != NVML_SUCCESS || is_shown(device, id))
		return result;
	*instance = NULL;
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t hook_nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device,
							    unsigned int profile_id,
							    unsigned int *count)
{
	nvmlReturn_t result =
		real_nvmlDeviceGetGpuInstanceRemainingCapacity(device, profile_id, count);

	if (result == NVML_SUCCESS && is_of_instances())
		*count = 0;
	return result;
}
