/* Memory of a device: the slice's. Free and used always add up to the total. */
#include "base/macros.h"
#include "front/books.h"
#include "front/nvml/hooks.h"
#include "front/nvml/slice.h"

struct slice_memory {
	uint64_t total, used;
};

static struct slice_memory slice_memory(nvmlDevice_t device)
{
	struct process *p = process_get();
	struct slice_memory sum = {0};
	uint64_t gpus = p ? slice_gpus(p, device) : 0;

	for (uint32_t gpu = 0; gpu < LEDGER_GPUS_MAX; gpu++) {
		if (!(gpus >> gpu & 1))
			continue;
		uint64_t limit = books_limit(p, gpu);

		sum.total += limit;
		sum.used += limit - books_free(p, gpu);
	}
	return sum;
}

static nvmlReturn_t bounded(nvmlReturn_t result, nvmlDevice_t device, nvmlMemory_t *memory)
{
	if (result == NVML_SUCCESS) {
		struct slice_memory slice = slice_memory(device);

		memory->total = MIN(memory->total, slice.total);
		memory->used = MIN(slice.used, memory->total);
		memory->free = memory->total - memory->used;
	}
	return result;
}

nvmlReturn_t hook_nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	return bounded(real_nvmlDeviceGetMemoryInfo(device, memory), device, memory);
}

nvmlReturn_t hook_nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	nvmlReturn_t result = real_nvmlDeviceGetMemoryInfo_v2(device, memory);

	if (result == NVML_SUCCESS) {
		struct slice_memory slice = slice_memory(device);

		memory->total = MIN(memory->total, slice.total);
		memory->used = MIN(slice.used, memory->total);
		memory->free = memory->total - memory->used;
		memory->reserved = 0;
	}
	return result;
}

/* For a GPU in confidential mode it is all of its memory; else 0, which stays. */
nvmlReturn_t hook_nvmlDeviceGetConfComputeProtectedMemoryUsage(nvmlDevice_t device,
							       nvmlMemory_t *memory)
{
	return bounded(real_nvmlDeviceGetConfComputeProtectedMemoryUsage(device, memory), device,
		       memory);
}
