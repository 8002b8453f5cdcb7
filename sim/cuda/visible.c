/* Which GPUs of the host the process sees, and in which order: CUDA_DEVICE_ORDER and
 * CUDA_VISIBLE_DEVICES (indices, or UUIDs that may be cut short).
 *
 * A GPU in MIG mode is used through its MIG devices alone: named as a GPU, it stands for the first
 * of them. A process sees either GPUs or MIG devices, and of these, before driver 570, only one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cuda/driver.h"
#include "cuda/visible_mig.h"

/* From this branch on, a process may use several MIG devices. */
#define BRANCH_MANY_MIG 570

struct candidate {
	wire_device wire;
	const struct sim_model *model;
	const struct wire_gpu *gpu;
};

/* The default order: the fastest GPU first, equals in order of their PCI addresses. */
static void sort_by_speed(struct candidate *list, int count)
{
	for (int i = 1; i < count; i++) {
		struct candidate c = list[i];
		uint64_t speed = (uint64_t)c.model->sm_count * c.model->clock_sm_mhz;
		int k = i;

		while (k > 0 &&
		       (uint64_t)list[k - 1].model->sm_count * list[k - 1].model->clock_sm_mhz <
			       speed) {
			list[k] = list[k - 1];
			k--;
		}
		list[k] = c;
	}
}

static int list_gpus(struct candidate list[DEVICES_MAX])
{
	const char *order =
		getenv("CUDA_DEVICE_ORDER"); // NOLINT(concurrency-mt-unsafe): as cuInit is
	int count = 0;

	for (uint32_t i = 0; i < driver.host->gpu_count && i < DEVICES_MAX; i++) {
		const struct wire_gpu *gpu = &driver.host->gpu[i];
		const struct sim_model *model = sim_model_find(gpu->model);

		if (model && !(gpu->flags & WIRE_GPU_LOST) && client_may_open(gpu->minor))
			list[count++] = (struct candidate){i, model, gpu};
	}
	if (!order || strcmp(order, "PCI_BUS_ID") != 0)
		sort_by_speed(list, count);
	return count;
}

static void device_add(const struct candidate *c)
{
	struct device *d = &driver.devices[driver.device_count];

	*d = (struct device){
		.ordinal = driver.device_count,
		.wire = c->wire,
		.model = c->model,
		.gpu = c->gpu,
		.sm_count = c->model->sm_count,
		.memory_total = c->gpu->memory_total - c->gpu->memory_reserved,
	};
	snprintf(d->name, sizeof(d->name), "%s", c->model->name);
	memcpy(d->uuid.bytes, c->gpu->uuid, sizeof(d->uuid.bytes));
	driver.device_count++;
}

/* The sixteen bytes behind "MIG-" or "GPU-". */
static void uuid_parse(const char *text, CUuuid *uuid)
{
	const char *p = text + strlen("MIG-");

	for (size_t i = 0; i < sizeof(uuid->bytes); i++, p += 2) {
		char pair[3] = {0};

		p += strspn(p, "-");
		memcpy(pair, p, 2);
		uuid->bytes[i] = (char)strtoul(pair, NULL, 16);
	}
}

/* False: it does not go with what is there already. */
static bool device_add_mig(const struct mig_device *mig)
{
	const struct wire_gpu *gpu = &driver.host->gpu[wire_device_gpu(mig->id)];
	struct device *d = &driver.devices[driver.device_count];

	if (driver.device_count > 0 &&
	    (driver.host->driver_branch < BRANCH_MANY_MIG || !driver.devices[0].is_mig))
		return false;
	*d = (struct device){
		.ordinal = driver.device_count,
		.wire = mig->id,
		.model = sim_model_find(gpu->model),
		.gpu = gpu,
		.sm_count = mig->sm,
		.memory_total = mig->memory_total - mig->memory_reserved,
		.is_mig = true,
	};
	snprintf(d->name, sizeof(d->name), "%s MIG %s", d->model->name, mig->profile);
	uuid_parse(mig->uuid, &d->uuid);
	driver.device_count++;
	return true;
}

/* Adds what a word that names a GPU stands for. */
static bool device_add_named(const struct candidate *c)
{
	struct mig_device mig;

	if (c->gpu->flags & WIRE_GPU_MIG)
		return mig_visible_first(c->wire, &mig) && device_add_mig(&mig);
	if (driver.device_count > 0 && driver.devices[0].is_mig)
		return false;
	device_add(c);
	return true;
}

/* Index of the one candidate that the word names, or -1. */
static int candidate_find(const struct candidate *list, int count, const char *word)
{
	char *end;
	long index = strtol(word, &end, 10);

	/* Text behind the number does not count: "1gpu2,2ampere" is "1,2" by torch.cuda's own
	 * reader of this variable, which says that the driver's is like strtoul(). */
	if (end != word)
		return index >= 0 && index < count ? (int)index : -1;
	int found = -1;
	for (int i = 0; i < count; i++) {
		if (strncasecmp(list[i].gpu->uuid_text, word, strlen(word)) != 0)
			continue;
		if (found >= 0 || strlen(word) <= strlen("GPU-"))
			return -1;
		found = i;
	}
	return found;
}

static bool is_visible(wire_device id)
{
	for (int i = 0; i < driver.device_count; i++)
		if (driver.devices[i].wire == id)
			return true;
	return false;
}

static void add_named(const struct candidate *list, int count, const char *names)
{
	char word[128];
	bool taken[DEVICES_MAX] = {false};

	while (driver.device_count < DEVICES_MAX) {
		names += strspn(names, " \t");
		size_t length = strcspn(names, ",");
		snprintf(word, sizeof(word), "%.*s", (int)length, names);
		word[strcspn(word, " \t")] = '\0';
		/* The first word that names nothing, or a device again, ends the list. */
		if (!strncasecmp(word, "MIG-", 4)) {
			struct mig_device mig;

			if (!mig_visible_named(word, &mig) || is_visible(mig.id) ||
			    !device_add_mig(&mig))
				return;
		} else {
			int i = *word ? candidate_find(list, count, word) : -1;

			if (i < 0 || taken[i] || !device_add_named(&list[i]))
				return;
			taken[i] = true;
		}
		if (!names[length])
			return;
		names += length + 1;
	}
}

void devices_enumerate(void)
{
	struct candidate list[DEVICES_MAX];
	const char *visible =
		getenv("CUDA_VISIBLE_DEVICES"); // NOLINT(concurrency-mt-unsafe): as cuInit is
	int count = list_gpus(list);

	driver.device_count = 0;
	if (visible) {
		add_named(list, count, visible);
		return;
	}
	for (int i = 0; i < count; i++)
		if (!(list[i].gpu->flags & WIRE_GPU_MIG))
			device_add(&list[i]);
	for (int i = 0; i < count && driver.device_count == 0; i++)
		device_add_named(&list[i]);
}
