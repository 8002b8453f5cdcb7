/* Lists of processes: of those that the driver lists, the slice's own, with what the ledger says
 * they hold. All versions differ in the size of an entry only. */
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "base/macros.h"
#include "front/nvml/hooks.h"
#include "front/nvml/slice.h"

/* In every version of an entry the PID comes first, and the memory after eight bytes. */
#define MEMORY_OFFSET 8
_Static_assert(offsetof(nvmlProcessInfo_v1_t, usedGpuMemory) == MEMORY_OFFSET, "entry");
_Static_assert(offsetof(nvmlProcessInfo_v2_t, usedGpuMemory) == MEMORY_OFFSET, "entry");
_Static_assert(offsetof(nvmlProcessDetail_v1_t, usedGpuMemory) == MEMORY_OFFSET, "entry");

/* More processes than any driver lists on one GPU. */
#define ENTRIES_MAX ((size_t)4096)
_Static_assert(sizeof(nvmlProcessDetail_v1_t) <= SLICE_ENTRY_MAX, "entry");
_Static_assert(sizeof(nvmlFBCSessionInfo_t) <= SLICE_ENTRY_MAX, "entry");

/* The memory that a process holds on some GPUs, by the ledger; false: it is none of the slice's. */
static bool slice_process(struct process *p, uint32_t pid, uint64_t gpus, uint64_t *ret_bytes)
{
	const struct ledger *l = &p->attachment.ledger;
	bool found = false;

	*ret_bytes = 0;
	for (uint32_t slot = 1; slot < p->attachment.shape.slot_count; slot++) {
		const struct ledger_slot *s = ledger_slot(l, slot);

		if (atomic_load_explicit(&s->state, memory_order_relaxed) != LEDGER_SLOT_LIVE ||
		    (uint32_t)s->pid != pid)
			continue;
		found = true;
		for (uint32_t gpu = 0; gpu < p->attachment.gpu_count; gpu++)
			if (gpus >> gpu & 1)
				*ret_bytes += ledger_slot_bytes(l, slot, gpu);
	}
	return found;
}

bool slice_has_process(struct process *p, uint32_t pid)
{
	uint64_t unused;

	return slice_process(p, pid, 0, &unused);
}

unsigned int slice_keep_own(struct process *p, nvmlDevice_t device, void *list, unsigned int count,
			    const struct slice_entry *entry)
{
	char *entries = list;
	uint64_t gpus = slice_gpus(p, device);
	unsigned int kept = 0;

	for (unsigned int i = 0; i < count; i++) {
		unsigned int pid;
		uint64_t bytes;
		char *from = entries + i * entry->size, *to = entries + kept * entry->size;

		memcpy(&pid, from + entry->pid_at, sizeof(pid));
		if (!slice_process(p, pid, gpus, &bytes))
			continue;
		memmove(to, from, entry->size);
		if (entry->with_memory)
			memcpy(to + MEMORY_OFFSET, &bytes, sizeof(bytes));
		kept++;
	}
	return kept;
}

static void *entries_map(void)
{
	void *at = mmap(NULL, ENTRIES_MAX * SLICE_ENTRY_MAX, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

static void entries_unmap(void *at)
{
	munmap(at, ENTRIES_MAX * SLICE_ENTRY_MAX);
}

/* Hands out a list as NVML does: its length always, itself only where it fits. */
static nvmlReturn_t hand_out(const void *entries, unsigned int count,
			     const struct slice_entry *entry, void *ret, unsigned int *ret_count)
{
	unsigned int room = *ret_count;

	*ret_count = count;
	if (count > room)
		return !room && entry->length_is_no_error ? NVML_SUCCESS
							  : NVML_ERROR_INSUFFICIENT_SIZE;
	if (count)
		memcpy(ret, entries, count * entry->size);
	return NVML_SUCCESS;
}

nvmlReturn_t slice_list(slice_list_call *real, nvmlDevice_t device, unsigned int *count,
			void *infos, const struct slice_entry *entry)
{
	struct process *p = process_get();
	unsigned int all = ENTRIES_MAX;

	/* Calls that are wrong in themselves are the driver's to answer. */
	if (!count || (*count && !infos))
		return real(device, count, infos);
	if (!p) {
		*count = 0;
		return NVML_SUCCESS;
	}
	char *entries = entries_map();
	if (!entries)
		return NVML_ERROR_MEMORY;
	nvmlReturn_t result = real(device, &all, entries);
	if (result == NVML_SUCCESS) {
		all = slice_keep_own(p, device, entries, MIN(all, ENTRIES_MAX), entry);
		result = hand_out(entries, all, entry, infos, count);
	}
	entries_unmap(entries);
	return result;
}

/* NOLINTBEGIN(bugprone-macro-parentheses): `entry` is a type */
#define LIST(name, entry)                                                                        \
	nvmlReturn_t hook_##name(nvmlDevice_t device, unsigned int *count, entry *infos)         \
	{                                                                                        \
		static const struct slice_entry shape = {.size = sizeof(entry),                  \
							 .with_memory = true};                   \
		return slice_list((slice_list_call *)real_##name, device, count, infos, &shape); \
	}
/* NOLINTEND(bugprone-macro-parentheses) */

LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t)
LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t)

nvmlReturn_t hook_nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
							nvmlProcessDetailList_t *details)
{
	struct process *p = process_get();

	/* Another version's entries are of another size. */
	if (!details || details->version != NVML_PROCESS_DETAIL_LIST_V1)
		return real_nvmlDeviceGetRunningProcessDetailList(device, details);
	if (!p) {
		details->numProcArrayEntries = 0;
		return NVML_SUCCESS;
	}
	nvmlProcessDetailList_t all = {.version = details->version,
				       .mode = details->mode,
				       .numProcArrayEntries = ENTRIES_MAX,
				       .procArray = entries_map()};
	if (!all.procArray)
		return NVML_ERROR_MEMORY;
	nvmlReturn_t result = real_nvmlDeviceGetRunningProcessDetailList(device, &all);
	if (result == NVML_SUCCESS) {
		static const struct slice_entry shape = {.size = sizeof(nvmlProcessDetail_v1_t),
							 .with_memory = true};
		unsigned int kept =
			slice_keep_own(p, device, all.procArray,
				       MIN(all.numProcArrayEntries, ENTRIES_MAX), &shape);

		result = hand_out(all.procArray, kept, &shape, details->procArray,
				  &details->numProcArrayEntries);
	}
	entries_unmap(all.procArray);
	return result;
}
