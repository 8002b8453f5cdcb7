/* Samples of a GPU's counters (GPM), from which utilisation is computed. If the slice has an
 * instance on a GPU, they are the instance's: the GPU's would count the neighbours' work. */
#include "front/nvml/hooks.h"
#include "front/nvml/slice.h"

/* A device is the slice's whole GPU, or NVML has the better word for it: a MIG device, no device.
 */
static bool samples_as_it_is(struct process *p, nvmlDevice_t device)
{
	unsigned int is_mig;

	return slice_has_whole(p, device) ||
	       real_nvmlDeviceIsMigDeviceHandle(device, &is_mig) != NVML_SUCCESS || is_mig;
}

/* Several instances have no figure for all. */
nvmlReturn_t hook_nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample)
{
	struct process *p = process_get();
	unsigned int own;

	if (!p)
		return NVML_ERROR_NOT_SUPPORTED;
	if (samples_as_it_is(p, device))
		return real_nvmlGpmSampleGet(device, sample);
	if (slice_instances(p, device, &own, 1) != 1)
		return NVML_ERROR_NOT_SUPPORTED;
	return real_nvmlGpmMigSampleGet(device, own, sample);
}

nvmlReturn_t hook_nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int gpu_instance,
				      nvmlGpmSample_t sample)
{
	struct process *p = process_get();

	if (!p)
		return NVML_ERROR_NOT_SUPPORTED;
	if (samples_as_it_is(p, device) || slice_has_instance(p, device, gpu_instance))
		return real_nvmlGpmMigSampleGet(device, gpu_instance, sample);
	return NVML_ERROR_INVALID_ARGUMENT;
}
