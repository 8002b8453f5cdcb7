/* nvidia-smi asks the library for a table of functions beside the public ones. NVIDIA describes a
 * few of its slots in its own simulated NVML (github.com/NVIDIA/k8s-test-infra, pkg/gpu/mocknvml,
 * Apache-2.0): device by index, the process lists and the host's highest PCIe generation. Those are
 * answered here. What any other slot takes is not known, so that nothing is written: called with a
 * device it says NOT_SUPPORTED, else it succeeds, without which nvidia-smi gives up on whole views.
 */
#include <stdbool.h>
#include <string.h>

#include "base/macros.h"
#include "nvml/library.h"

enum {
	TABLE_SLOTS = 256,
	SLOT_DEVICE_BY_INDEX = 81,
	SLOT_PROCESSES_FIRST = 213, /* compute, and two lists that are empty here */
	SLOT_PROCESSES_LAST = 215,
	SLOT_HOST_MAX_LINK_GENERATION = 230,
	DEVICE_BY_INDEX_ARGUMENT = 0x22,
	LIST_CAPACITY_MAX = 65536,
};

/* 6c3efec4-8fc9-4e6c-a327-ee696e12f7c4, its first three groups in little-endian order. */
static const unsigned char table_guid[16] = {
	0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
	0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4,
};

/* An entry of the process lists: the public detail, and the name in place. */
struct table_process {
	nvmlProcessDetail_v1_t detail;
	char name[4096];
};
_Static_assert(sizeof(struct table_process) == 4128, "the stride nvidia-smi walks by");

static nvmlReturn_t table_processes(nvmlDevice_t handle, unsigned int *count,
				    struct table_process *out)
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

	if (slot == SLOT_DEVICE_BY_INDEX && (uintptr_t)third == DEVICE_BY_INDEX_ARGUMENT &&
	    (uintptr_t)first < WIRE_GPUS_MAX && second)
		return nvmlDeviceGetHandleByIndex_v2((unsigned int)(uintptr_t)first, second);
	if (!second || !handle_device(first, &id))
		return NVML_SUCCESS;
	if (slot == SLOT_PROCESSES_FIRST && third && *count <= LIST_CAPACITY_MAX)
		return table_processes(first, count, third);
	if (slot > SLOT_PROCESSES_FIRST && slot <= SLOT_PROCESSES_LAST) {
		*count = 0;
		return NVML_SUCCESS;
	}
	if (slot == SLOT_HOST_MAX_LINK_GENERATION)
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
