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
