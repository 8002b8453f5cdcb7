/* How GPUs lie to each other and to the processors: one node, and no GPU reached through another.
 */
#include <unistd.h>

#include "base/macros.h"
#include "nvml/library.h"

/* Two GPUs, which may be the same. */
static nvmlReturn_t pair_enter(nvmlDevice_t a, nvmlDevice_t b, const char *call, const void *out,
			       struct device *first, struct device *second)
{
	nvmlReturn_t r = gpu_enter(a, call, out, first);

	return r == NVML_SUCCESS ? gpu_enter(b, call, out, second) : r;
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t a, nvmlDevice_t b, int *same)
{
	struct device first, second;
	nvmlReturn_t r = pair_enter(a, b, __func__, same, &first, &second);

	if (r == NVML_SUCCESS)
		*same = first.index == second.index;
	return r;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b,
						 nvmlGpuTopologyLevel_t *level)
{
	struct device first, second;
	nvmlReturn_t r = pair_enter(a, b, __func__, level, &first, &second);

	if (r == NVML_SUCCESS)
		*level = first.index == second.index ? NVML_TOPOLOGY_INTERNAL : NVML_TOPOLOGY_NODE;
	return r;
}

/* Boards of one model reach each other's memory over PCIe, as the simulated libcuda has it; MIG
 * cuts that off. */
nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuP2PCapsIndex_t index,
				    nvmlGpuP2PStatus_t *status)
{
	struct device first, second;
	nvmlReturn_t r = pair_enter(a, b, __func__, status, &first, &second);

	if (r != NVML_SUCCESS)
		return r;
	if ((unsigned int)index >= NVML_P2P_CAPS_INDEX_UNKNOWN || first.index == second.index)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (index == NVML_P2P_CAPS_INDEX_NVLINK || first.model != second.model ||
	    device_mig_mode(&first) || device_mig_mode(&second))
		*status = NVML_P2P_STATUS_NOT_SUPPORTED;
	else
		*status = NVML_P2P_STATUS_OK;
	return NVML_SUCCESS;
}

/* One node: at NODE and beyond all others are as near. The GPU itself is not among them. */
nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level,
					      unsigned int *count, nvmlDevice_t *devices)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, count, &d);
	unsigned int room = devices ? *count : 0, all, found = 0;

	if (r == NVML_SUCCESS)
		r = nvmlDeviceGetCount_v2(&all);
	if (r != NVML_SUCCESS)
		return r;
	for (unsigned int i = 0; level == NVML_TOPOLOGY_NODE && i < all; i++) {
		nvmlDevice_t other;

		if (i == d.index || nvmlDeviceGetHandleByIndex_v2(i, &other) != NVML_SUCCESS)
			continue;
		if (found < room)
			devices[found] = other;
		found++;
	}
	*count = room ? MIN(found, room) : found;
	return NVML_SUCCESS;
}

/* All GPUs are as near to each processor. */
nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned int processor, unsigned int *count,
					 nvmlDevice_t *devices)
{
	unsigned int room = count && devices ? *count : 0, all;
	nvmlReturn_t r = nvmlDeviceGetCount_v2(&all);

	if (r != NVML_SUCCESS)
		return r;
	if (!count || processor >= (unsigned int)sysconf(_SC_NPROCESSORS_CONF))
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned int i = 0; i < MIN(room, all) && r == NVML_SUCCESS; i++)
		r = nvmlDeviceGetHandleByIndex_v2(i, &devices[i]);
	if (r == NVML_SUCCESS)
		*count = room ? MIN(all, room) : all;
	return r;
}

static void set_bits(unsigned long *set, unsigned int words, unsigned long count)
{
	const unsigned long width = sizeof(*set) * 8;

	for (unsigned int i = 0; i < words; i++) {
		unsigned long left = count > i * width ? count - i * width : 0;

		set[i] = left >= width ? ~0ul : (1ul << left) - 1;
	}
}

/* Every processor is as near as any other. */
nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int words, unsigned long *set)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, words ? set : NULL, &d);

	if (r == NVML_SUCCESS)
		set_bits(set, words, (unsigned long)sysconf(_SC_NPROCESSORS_CONF));
	return r;
}

nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int words,
						 unsigned long *set, unsigned int scope)
{
	if (scope > NVML_AFFINITY_SCOPE_SOCKET)
		return NVML_ERROR_INVALID_ARGUMENT;
	return nvmlDeviceGetCpuAffinity(device, words, set);
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int words,
					 unsigned long *set, unsigned int scope)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, words ? set : NULL, &d);

	if (r != NVML_SUCCESS)
		return r;
	if (scope > NVML_AFFINITY_SCOPE_SOCKET)
		return NVML_ERROR_INVALID_ARGUMENT;
	set_bits(set, words, 1);
	return NVML_SUCCESS;
}
