/* The calls that manage MIG. In a slice of instances those of others are not there, there is no
 * room for more, and nothing is made or removed: carve's daemon does that, which a program of
 * root's would otherwise undo by mistake. Each hook asks the driver first where it has the better
 * word. */
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

/* ---- changes ------------------------------------------------------------------------------ */

nvmlReturn_t hook_nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode,
				       nvmlReturn_t *activation)
{
	return is_of_instances() ? NVML_ERROR_NO_PERMISSION
				 : real_nvmlDeviceSetMigMode(device, mode, activation);
}

nvmlReturn_t hook_nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int profile_id,
					      nvmlGpuInstance_t *instance)
{
	return is_of_instances() ? NVML_ERROR_NO_PERMISSION
				 : real_nvmlDeviceCreateGpuInstance(device, profile_id, instance);
}

nvmlReturn_t
hook_nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int profile_id,
					      const nvmlGpuInstancePlacement_t *placement,
					      nvmlGpuInstance_t *instance)
{
	return is_of_instances() ? NVML_ERROR_NO_PERMISSION
				 : real_nvmlDeviceCreateGpuInstanceWithPlacement(
					   device, profile_id, placement, instance);
}

nvmlReturn_t hook_nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance)
{
	return is_of_instances() ? NVML_ERROR_NO_PERMISSION : real_nvmlGpuInstanceDestroy(instance);
}

nvmlReturn_t hook_nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance,
						       unsigned int profile_id,
						       nvmlComputeInstance_t *compute)
{
	return is_of_instances()
		       ? NVML_ERROR_NO_PERMISSION
		       : real_nvmlGpuInstanceCreateComputeInstance(instance, profile_id, compute);
}

nvmlReturn_t hook_nvmlGpuInstanceCreateComputeInstanceWithPlacement(
	nvmlGpuInstance_t instance, unsigned int profile_id,
	const nvmlComputeInstancePlacement_t *placement, nvmlComputeInstance_t *compute)
{
	return is_of_instances() ? NVML_ERROR_NO_PERMISSION
				 : real_nvmlGpuInstanceCreateComputeInstanceWithPlacement(
					   instance, profile_id, placement, compute);
}

nvmlReturn_t hook_nvmlComputeInstanceDestroy(nvmlComputeInstance_t compute)
{
	return is_of_instances() ? NVML_ERROR_NO_PERMISSION
				 : real_nvmlComputeInstanceDestroy(compute);
}
