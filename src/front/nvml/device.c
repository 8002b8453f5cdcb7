/* Counting and finding devices: only the slice's are there, numbered as the slice numbers them.
 * Each hook asks the driver first, which has the better word for calls that are wrong in
 * themselves. */
#include "base/macros.h"
#include "front/nvml/hooks.h"
#include "front/nvml/slice.h"

nvmlReturn_t hook_nvmlDeviceGetCount_v2(unsigned int *count)
{
	nvmlReturn_t result = real_nvmlDeviceGetCount_v2(count);

	if (result == NVML_SUCCESS)
		*count = slice_device_count();
	return result;
}

nvmlReturn_t hook_nvmlDeviceGetCount(unsigned int *count)
{
	nvmlReturn_t result = real_nvmlDeviceGetCount(count);

	if (result == NVML_SUCCESS)
		*count = slice_device_count();
	return result;
}

nvmlReturn_t hook_nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	/* Asking for the count tells whether NVML is initialised. */
	unsigned int count;
	nvmlReturn_t result = real_nvmlDeviceGetCount_v2(&count);

	if (result != NVML_SUCCESS)
		return result;
	return device ? slice_device(index, device) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t hook_nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
	return hook_nvmlDeviceGetHandleByIndex_v2(index, device);
}

/* The driver found a device; others' are not there. */
static nvmlReturn_t found(nvmlReturn_t result, nvmlDevice_t *device)
{
	struct process *p = process_get();

	if (result != NVML_SUCCESS || (p && slice_gpus(p, *device)))
		return result;
	*device = NULL;
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t hook_nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	return found(real_nvmlDeviceGetHandleByUUID(uuid, device), device);
}

nvmlReturn_t hook_nvmlDeviceGetHandleByUUIDV(const struct nvmlUUID_st *uuid, nvmlDevice_t *device)
{
	return found(real_nvmlDeviceGetHandleByUUIDV(uuid, device), device);
}

nvmlReturn_t hook_nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
	return found(real_nvmlDeviceGetHandleByPciBusId_v2(bus_id, device), device);
}

nvmlReturn_t hook_nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
	return found(real_nvmlDeviceGetHandleByPciBusId(bus_id, device), device);
}

nvmlReturn_t hook_nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
	return found(real_nvmlDeviceGetHandleBySerial(serial, device), device);
}

/* From the driver's number of a MIG device to that among the slice's on its GPU. */
static nvmlReturn_t mig_index(nvmlDevice_t device, unsigned int *index)
{
	struct process *p = process_get();
	nvmlDevice_t gpu, other;
	unsigned int own = 0;
	nvmlReturn_t result = real_nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device, &gpu);

	for (unsigned int i = 0; p && result == NVML_SUCCESS && i < *index; i++)
		own += real_nvmlDeviceGetMigDeviceHandleByIndex(gpu, i, &other) == NVML_SUCCESS &&
		       slice_gpus(p, other);
	*index = own;
	return result;
}

nvmlReturn_t hook_nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	nvmlReturn_t result = real_nvmlDeviceGetIndex(device, index);
	unsigned int is_mig = 0;
	nvmlDevice_t other;

	if (result != NVML_SUCCESS)
		return result;
	if (real_nvmlDeviceIsMigDeviceHandle(device, &is_mig) == NVML_SUCCESS && is_mig)
		return mig_index(device, index);
	for (unsigned int i = 0; slice_device(i, &other) == NVML_SUCCESS; i++) {
		if (other == device) {
			*index = i;
			break;
		}
	}
	return NVML_SUCCESS;
}

/* A GPU that the slice has whole shows all of its MIG devices; else those of the slice. */
nvmlReturn_t hook_nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
						      nvmlDevice_t *mig)
{
	struct process *p = process_get();
	nvmlDevice_t candidate;
	unsigned int seen = 0;
	nvmlReturn_t result;

	if (!p)
		return NVML_ERROR_NOT_FOUND;
	if (!mig)
		return real_nvmlDeviceGetMigDeviceHandleByIndex(device, index, mig);
	for (unsigned int i = 0; i < LEDGER_GPUS_MAX; i++) {
		result = real_nvmlDeviceGetMigDeviceHandleByIndex(device, i, &candidate);
		if (result == NVML_ERROR_NOT_FOUND)
			continue;
		if (result != NVML_SUCCESS)
			break;
		if (slice_gpus(p, candidate) && seen++ == index) {
			*mig = candidate;
			return NVML_SUCCESS;
		}
	}
	return result == NVML_ERROR_INVALID_ARGUMENT && seen ? NVML_ERROR_NOT_FOUND : result;
}

/* ---- lists of devices --------------------------------------------------------------------- */

/* More than any host has. */
#define DEVICES_MAX 256u

/* Hands out the slice's own among `all` devices. It fills what the caller has room for, or, with no
 * room, says how many there are. */
static nvmlReturn_t hand_out_own(const nvmlDevice_t *devices, unsigned int all, unsigned int *count,
				 nvmlDevice_t *ret)
{
	struct process *p = process_get();
	unsigned int room = ret ? *count : 0, own = 0;

	for (unsigned int i = 0; p && i < all; i++) {
		if (!slice_gpus(p, devices[i]))
			continue;
		if (own < room)
			ret[own] = devices[i];
		own++;
	}
	*count = room ? MIN(own, room) : own;
	return NVML_SUCCESS;
}

nvmlReturn_t hook_nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device,
						   nvmlGpuTopologyLevel_t level,
						   unsigned int *count, nvmlDevice_t *devices)
{
	nvmlDevice_t found[DEVICES_MAX];
	unsigned int all = DEVICES_MAX;
	nvmlReturn_t result =
		real_nvmlDeviceGetTopologyNearestGpus(device, level, count ? &all : NULL, found);

	return result == NVML_SUCCESS ? hand_out_own(found, MIN(all, DEVICES_MAX), count, devices)
				      : result;
}

nvmlReturn_t hook_nvmlSystemGetTopologyGpuSet(unsigned int processor, unsigned int *count,
					      nvmlDevice_t *devices)
{
	nvmlDevice_t found[DEVICES_MAX];
	unsigned int all = DEVICES_MAX;
	nvmlReturn_t result =
		real_nvmlSystemGetTopologyGpuSet(processor, count ? &all : NULL, found);

	return result == NVML_SUCCESS ? hand_out_own(found, MIN(all, DEVICES_MAX), count, devices)
				      : result;
}

nvmlReturn_t hook_nvmlUnitGetDevices(nvmlUnit_t unit, unsigned int *count, nvmlDevice_t *devices)
{
	nvmlDevice_t found[DEVICES_MAX];
	unsigned int all = DEVICES_MAX, room = count ? *count : 0, own = 0;
	nvmlReturn_t result = real_nvmlUnitGetDevices(unit, count ? &all : NULL, found);

	if (result != NVML_SUCCESS || !count)
		return result;
	/* Unlike the others it refuses where the room is too small, with the number that there is.
	 */
	(void)hand_out_own(found, MIN(all, DEVICES_MAX), &own, NULL);
	if (own > room)
		return *count = own, NVML_ERROR_INSUFFICIENT_SIZE;
	return own ? hand_out_own(found, MIN(all, DEVICES_MAX), count, devices)
		   : (*count = 0, NVML_SUCCESS);
}

/* GPUs that the driver leaves alone are in no slice. */
nvmlReturn_t hook_nvmlGetExcludedDeviceCount(unsigned int *count)
{
	nvmlReturn_t result = real_nvmlGetExcludedDeviceCount(count);

	if (result == NVML_SUCCESS)
		*count = 0;
	return result;
}

nvmlReturn_t hook_nvmlGetExcludedDeviceInfoByIndex(unsigned int index,
						   struct nvmlExcludedDeviceInfo_st *info)
{
	(void)index;
	(void)info;
	return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t hook_nvmlGetBlacklistDeviceCount(unsigned int *count)
{
	nvmlReturn_t result = real_nvmlGetBlacklistDeviceCount(count);

	if (result == NVML_SUCCESS)
		*count = 0;
	return result;
}

nvmlReturn_t hook_nvmlGetBlacklistDeviceInfoByIndex(unsigned int index,
						    struct nvmlExcludedDeviceInfo_st *info)
{
	return hook_nvmlGetExcludedDeviceInfoByIndex(index, info);
}
