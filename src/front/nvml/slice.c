#include "front/nvml/slice.h"

#include <stdbool.h>
#include <string.h>

#include "front/nvml/hooks.h"

static bool has_uuid(nvmlDevice_t device, const char *uuid)
{
	char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE];

	return real_nvmlDeviceGetUUID(device, text, sizeof(text)) == NVML_SUCCESS &&
	       strcmp(text, uuid) == 0;
}

/* The GPU that NVML lists for one of the ledger's: itself, or the one that a MIG device is on. */
static nvmlReturn_t listed_device(const struct ledger_limits *limits, uint32_t gpu,
				  nvmlDevice_t *ret)
{
	unsigned int is_mig = 0;
	nvmlReturn_t result = real_nvmlDeviceGetHandleByUUID(limits->gpu[gpu].uuid_text, ret);

	if (result == NVML_SUCCESS &&
	    real_nvmlDeviceIsMigDeviceHandle(*ret, &is_mig) == NVML_SUCCESS && is_mig)
		return real_nvmlDeviceGetDeviceHandleFromMigDeviceHandle(*ret, ret);
	return result;
}

uint64_t slice_gpus(struct process *p, nvmlDevice_t device)
{
	const struct ledger_limits *limits = p->attachment.ledger.limits;
	uint64_t below = 0;

	for (uint32_t gpu = 0; gpu < ledger_gpu_count(limits); gpu++) {
		nvmlDevice_t listed;

		if (has_uuid(device, limits->gpu[gpu].uuid_text))
			return 1ull << gpu;
		if (listed_device(limits, gpu, &listed) == NVML_SUCCESS && listed == device)
			below |= 1ull << gpu;
	}
	return below;
}

/* Goes through the listed devices, each once; stops at number `wanted` and returns it in *ret.
 * Returns how many it saw. */
static unsigned int walk_devices(const struct ledger_limits *limits, unsigned int wanted,
				 nvmlDevice_t *ret, nvmlReturn_t *result)
{
	nvmlDevice_t seen[LEDGER_GPUS_MAX];
	unsigned int count = 0;

	for (uint32_t gpu = 0; gpu < ledger_gpu_count(limits); gpu++) {
		bool known = false;

		*result = listed_device(limits, gpu, &seen[count]);
		for (unsigned int i = 0; i < count; i++)
			known |= seen[i] == seen[count];
		if (known && *result == NVML_SUCCESS)
			continue;
		if (count == wanted) {
			*ret = seen[count];
			return count + 1;
		}
		count++;
	}
	return count;
}

unsigned int slice_device_count(void)
{
	struct process *p = process_get();
	nvmlDevice_t unused;
	nvmlReturn_t result;

	return p ? walk_devices(p->attachment.ledger.limits, LEDGER_GPUS_MAX, &unused, &result) : 0;
}

nvmlReturn_t slice_device(unsigned int index, nvmlDevice_t *ret)
{
	struct process *p = process_get();
	nvmlDevice_t device = NULL;
	nvmlReturn_t result = NVML_ERROR_INVALID_ARGUMENT;

	if (!p || index >= LEDGER_GPUS_MAX ||
	    walk_devices(p->attachment.ledger.limits, index, &device, &result) <= index)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (result == NVML_SUCCESS)
		*ret = device;
	return result;
}

bool slice_has_whole(struct process *p, nvmlDevice_t device)
{
	const struct ledger_limits *limits = p->attachment.ledger.limits;

	for (uint32_t gpu = 0; gpu < ledger_gpu_count(limits); gpu++)
		if (has_uuid(device, limits->gpu[gpu].uuid_text))
			return true;
	return false;
}

/* Adds a number to those that are known; false: it was. */
static bool number_add(unsigned int *known, unsigned int *count, unsigned int number)
{
	for (unsigned int i = 0; i < *count; i++)
		if (known[i] == number)
			return false;
	known[(*count)++] = number;
	return true;
}

unsigned int slice_instances(struct process *p, nvmlDevice_t gpu, unsigned int *ret,
			     unsigned int max)
{
	unsigned int known[LEDGER_GPUS_MAX], count = 0, id;
	nvmlDevice_t mig;

	for (unsigned int i = 0; i < LEDGER_GPUS_MAX; i++)
		if (real_nvmlDeviceGetMigDeviceHandleByIndex(gpu, i, &mig) == NVML_SUCCESS &&
		    slice_gpus(p, mig) &&
		    real_nvmlDeviceGetGpuInstanceId(mig, &id) == NVML_SUCCESS &&
		    number_add(known, &count, id) && count <= max)
			ret[count - 1] = id;
	return count;
}

bool slice_has_instance(struct process *p, nvmlDevice_t gpu, unsigned int number)
{
	unsigned int own[LEDGER_GPUS_MAX];
	unsigned int count = slice_instances(p, gpu, own, LEDGER_GPUS_MAX);

	for (unsigned int i = 0; i < count; i++)
		if (own[i] == number)
			return true;
	return false;
}
