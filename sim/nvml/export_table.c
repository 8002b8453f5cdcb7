/* The table of private functions that nvidia-smi asks for: the slots that base/nvml_private.h knows
 * are answered. The arguments of any other slot are not known, so that nothing is written. Called
 * with a device it says NOT_SUPPORTED; else it succeeds, without which nvidia-smi gives up on whole
 * views. */
#include "base/nvml_private.h"

#include <stdbool.h>
#include <string.h>

#include "base/macros.h"
#include "nvml/library.h"

enum {
	TABLE_SLOTS = 256,
	LIST_CAPACITY_MAX = 65536,
};

static const unsigned char table_guid[16] = NVML_PRIVATE_GUID;

static nvmlReturn_t table_processes(nvmlDevice_t handle, unsigned int *count,
				    struct nvml_private_process *out)
{
	struct device d;
	nvmlReturn_t r = device_enter(handle, __func__, count, &d);
	struct wire_process found[WIRE_PROCESSES_MAX];
	unsigned int n, room = *count;

	if (r != NVML_SUCCESS)
		return r;
	n = device_processes(&d, found, ARRAY_SIZE(found), &r);
	if (r != NVML_SUCCESS)
		return r;
	*count = MIN(n, room);
	for (unsigned int i = 0; i < *count; i++) {
		bool mig = wire_device_is_mig(found[i].device);

		out[i].detail = (nvmlProcessDetail_v1_t){
			.pid = (unsigned int)found[i].pid,
			.usedGpuMemory = found[i].bytes,
			.gpuInstanceId = mig ? wire_device_gi(found[i].device) : NVML_NO_INSTANCE,
			.computeInstanceId =
				mig ? wire_device_ci(found[i].device) : NVML_NO_INSTANCE,
		};
		if (process_name(out[i].detail.pid, out[i].name, sizeof(out[i].name)) !=
		    NVML_SUCCESS)
			strcpy(out[i].name, "[Not Found]");
	}
	return NVML_SUCCESS;
}

static nvmlReturn_t table_call(unsigned int slot, void *first, void *second, void *third)
{
	wire_device id;
	unsigned int *count = second;

	if (slot == NVML_PRIVATE_SLOT_DEVICE_BY_INDEX &&
	    (uintptr_t)third == NVML_PRIVATE_BY_INDEX && (uintptr_t)first < WIRE_GPUS_MAX && second)
		return nvmlDeviceGetHandleByIndex_v2((unsigned int)(uintptr_t)first, second);
	if (!second || !handle_device(first, &id))
		return NVML_SUCCESS;
	if (slot == NVML_PRIVATE_SLOT_PROCESSES && third && *count <= LIST_CAPACITY_MAX)
		return table_processes(first, count, third);
	if (slot > NVML_PRIVATE_SLOT_PROCESSES &&
	    slot < NVML_PRIVATE_SLOT_PROCESSES + NVML_PRIVATE_PROCESS_LISTS) {
		*count = 0;
		return NVML_SUCCESS;
	}
	if (slot == NVML_PRIVATE_SLOT_HOST_LINK_GENERATION)
		return nvmlDeviceGetMaxPcieLinkGeneration(first, second);
	return NVML_ERROR_NOT_SUPPORTED;
}

/* clang-format off */
/* A function for each slot, so that table_call learns which was called. */
#define SLOT(high, low)                                                                 \
	static nvmlReturn_t slot_##high##_##low(void *first, void *second, void *third) \
	{                                                                               \
		return table_call((high) * 16 + (low), first, second, third);           \
	}
#define SLOT_NAME(high, low) slot_##high##_##low,
#define ROW(each, high) each(high, 0) ROW_AFTER_0(each, high)
#define ROW_AFTER_0(each, high)                                                           \
	each(high, 1) each(high, 2) each(high, 3)                                         \
	each(high, 4) each(high, 5) each(high, 6) each(high, 7)                           \
	each(high, 8) each(high, 9) each(high, 10) each(high, 11)                         \
	each(high, 12) each(high, 13) each(high, 14) each(high, 15)
#define ROWS(each)                                                                        \
	ROW_AFTER_0(each, 0) ROW(each, 1) ROW(each, 2) ROW(each, 3)                       \
	ROW(each, 4) ROW(each, 5) ROW(each, 6) ROW(each, 7)                               \
	ROW(each, 8) ROW(each, 9) ROW(each, 10) ROW(each, 11)                             \
	ROW(each, 12) ROW(each, 13) ROW(each, 14) ROW(each, 15)

ROWS(SLOT)

/* In place of slot 0 stands the table's size in bytes. */
static const struct {
	size_t size;
	nvmlReturn_t (*slot[TABLE_SLOTS - 1])(void *, void *, void *);
} table = {
	.size = TABLE_SLOTS * sizeof(void *),
	.slot = { ROWS(SLOT_NAME) },
};
/* clang-format on */

nvmlReturn_t nvmlInternalGetExportTable(const void **ret, const void *guid)
{
	if (!ret || !guid)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (memcmp(guid, table_guid, sizeof(table_guid)) != 0)
		return NVML_ERROR_NOT_SUPPORTED;
	*ret = &table;
	return NVML_SUCCESS;
}
