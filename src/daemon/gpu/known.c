#include "daemon/gpu/known.h"

#include <stdio.h>
#include <string.h>

#include "daemon/host/log.h"
#include "daemon/store/store.h"

struct known {
	struct store_host_gpu gpu[GPUS_MAX];
	size_t count;
};

static int on_gpu(void *arg, const struct store_host_gpu *gpu)
{
	struct known *known = arg;

	if (known->count < GPUS_MAX)
		known->gpu[known->count++] = *gpu;
	return 0;
}

static const struct gpu_info *find(const struct gpu_info *list, size_t count, const char *uuid_text)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(list[i].uuid_text, uuid_text))
			return &list[i];
	return NULL;
}

/* The one that an unread GPU is; NULL: nobody knows. */
static const struct store_host_gpu *guess(const struct known *known, const struct gpu_info *list,
					  size_t count, uint32_t index)
{
	const struct store_host_gpu *missing = NULL;
	size_t missing_count = 0;

	for (size_t i = 0; i < known->count; i++) {
		const struct store_host_gpu *gpu = &known->gpu[i];

		if (find(list, count, gpu->uuid_text))
			continue;
		if (gpu->index == index)
			return gpu;
		missing = gpu;
		missing_count++;
	}
	return missing_count == 1 ? missing : NULL;
}

static void complete(struct gpu_info *info, const struct store_host_gpu *known)
{
	if (!known || gpu_uuid_parse(known->uuid_text, info->uuid) < 0) {
		snprintf(info->uuid_text, sizeof(info->uuid_text), "unknown-%u", info->index);
		snprintf(info->name, sizeof(info->name), "unknown");
		return;
	}
	snprintf(info->uuid_text, sizeof(info->uuid_text), "%s", known->uuid_text);
	snprintf(info->name, sizeof(info->name), "%s", known->name);
	snprintf(info->pci_bus_id, sizeof(info->pci_bus_id), "%s", known->pci_bus_id);
	info->total = known->total;
	info->reserved = known->reserved;
	info->mig = info->mig_capable = known->mig;
}

static struct store_host_gpu record_of(const struct gpu_info *info)
{
	struct store_host_gpu gpu = {.index = info->index,
				     .total = info->total,
				     .reserved = info->reserved,
				     .mig = info->mig};

	snprintf(gpu.uuid_text, sizeof(gpu.uuid_text), "%s", info->uuid_text);
	snprintf(gpu.name, sizeof(gpu.name), "%s", info->name);
	snprintf(gpu.pci_bus_id, sizeof(gpu.pci_bus_id), "%s", info->pci_bus_id);
	return gpu;
}

void known_keep(struct store *store, const struct gpu_info *info)
{
	struct store_host_gpu gpu = record_of(info);

	if (!info->unread)
		(void)store_host_gpu_put(store, &gpu);
}

static bool is_known(const struct known *known, const struct gpu_info *info)
{
	struct store_host_gpu gpu = record_of(info);

	for (size_t i = 0; i < known->count; i++) {
		const struct store_host_gpu *other = &known->gpu[i];

		if (!strcmp(other->uuid_text, gpu.uuid_text))
			return other->index == gpu.index && other->total == gpu.total &&
			       other->reserved == gpu.reserved && other->mig == gpu.mig &&
			       !strcmp(other->name, gpu.name) &&
			       !strcmp(other->pci_bus_id, gpu.pci_bus_id);
	}
	return false;
}

/* Those that are not in the list were taken out, if each in it was read. */
static void forget_missing(struct store *store, const struct known *known,
			   const struct gpu_info *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (list[i].unread)
			return;
	for (size_t i = 0; i < known->count && count > 0; i++) {
		const struct store_host_gpu *gpu = &known->gpu[i];

		if (find(list, count, gpu->uuid_text))
			continue;
		log_event(LOG_WARNING, "gpu.missing index=%u uuid=%s name=\"%s\" pci=%s",
			  gpu->index, gpu->uuid_text, gpu->name, gpu->pci_bus_id);
		(void)store_host_gpu_remove(store, gpu->uuid_text);
	}
}

void known_inventory(struct store *store, struct gpu_info *list, size_t count)
{
	struct known known = {0};

	(void)store_host_gpus_each(store, on_gpu, &known);
	for (size_t i = 0; i < count; i++)
		if (list[i].unread)
			complete(&list[i], guess(&known, list, count, list[i].index));
		else if (!is_known(&known, &list[i]))
			known_keep(store, &list[i]);
	forget_missing(store, &known, list, count);
}
