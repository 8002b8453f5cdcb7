/* nvidia-smi reads the driver's lists of processes not by the public functions but by a table of
 * private ones (base/nvml_private.h). The program gets a copy of the table in which the slots of
 * the lists are ours; all else is the driver's. */
#include "base/nvml_private.h"

#include <string.h>

#include "front/lock.h"
#include "front/nvml/hooks.h"
#include "front/nvml/slice.h"

enum {
	FIRST = NVML_PRIVATE_SLOT_PROCESSES,
	LISTS = NVML_PRIVATE_PROCESS_LISTS,
	TABLE_SLOTS_MAX = 4096,
};

static const unsigned char table_guid[16] = NVML_PRIVATE_GUID;

typedef nvmlReturn_t list_call(nvmlDevice_t device, unsigned int *count, void *entries);

static struct lock table_lock;     /* guards the making of what follows */
static const void *table_original; /* the driver's, of which this is the copy; NULL: none yet */
static list_call *table_lists[LISTS];
static void *table_copy[TABLE_SLOTS_MAX];

static nvmlReturn_t list(unsigned int which, nvmlDevice_t device, unsigned int *count,
			 void *entries)
{
	static const struct slice_entry shape = {.size = sizeof(struct nvml_private_process),
						 .with_memory = true};
	nvmlReturn_t result = table_lists[which](device, count, entries);
	struct process *p;

	if (result != NVML_SUCCESS || !count || !entries)
		return result;
	p = process_get();
	*count = p ? slice_keep_own(p, device, entries, *count, &shape) : 0;
	return NVML_SUCCESS;
}

static nvmlReturn_t list_compute(nvmlDevice_t device, unsigned int *count, void *entries)
{
	return list(0, device, count, entries);
}

static nvmlReturn_t list_graphics(nvmlDevice_t device, unsigned int *count, void *entries)
{
	return list(1, device, count, entries);
}

static nvmlReturn_t list_mps(nvmlDevice_t device, unsigned int *count, void *entries)
{
	return list(2, device, count, entries);
}

/* A table of another length than can be is none that we know: it is handed on as it is. */
static void table_make(const void *original)
{
	static list_call *const ours[LISTS] = {list_compute, list_graphics, list_mps};
	size_t size = *(const size_t *)original;

	if (size < (FIRST + LISTS) * sizeof(void *) || size > sizeof(table_copy))
		return;
	memcpy(table_copy, original, size);
	for (size_t i = 0; i < LISTS; i++) {
		memcpy(&table_lists[i], &table_copy[FIRST + i], sizeof(table_lists[i]));
		if (table_lists[i])
			memcpy(&table_copy[FIRST + i], &ours[i], sizeof(ours[i]));
	}
	table_original = original;
}

nvmlReturn_t hook_nvmlInternalGetExportTable(const void **ret, const void *guid)
{
	nvmlReturn_t result = real_nvmlInternalGetExportTable(ret, guid);

	if (result != NVML_SUCCESS || !ret || !*ret || !guid ||
	    memcmp(guid, table_guid, sizeof(table_guid)) != 0)
		return result;
	lock_acquire(&table_lock);
	if (!table_original)
		table_make(*ret);
	if (*ret == table_original)
		*ret = table_copy;
	lock_release(&table_lock);
	return NVML_SUCCESS;
}
