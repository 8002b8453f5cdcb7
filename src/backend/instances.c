#include "backend/instances.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/gpus_private.h"
#include "backend/instances_link.h"
#include "base/kill_point.h"
#include "base/macros.h"
#include "base/nvml_functions.h"

/* NVML's numbers of kinds of GPU instances, with room for those to come. */
#define KINDS_MAX 64u
#define PLACES_MAX 64u
#define COMPUTES_MAX 16u
#define PROCESSES_MAX 64u
/* A driver says for tenths of a second that an instance is in use whose process has just ended. */
#define TRY_PAUSE_MS 50u

struct instances {
	const struct instances_asking *link; /* the warden makes the calls; NULL: this process */
	struct instances_asking asking;
	const struct gpus *gpus;
	__typeof__(nvmlDeviceGetGpuInstanceProfileInfo) *profile_info;
	__typeof__(nvmlDeviceGetGpuInstanceProfileInfoV) *profile_info_v;
	__typeof__(nvmlDeviceGetGpuInstancePossiblePlacements_v2) *placements;
	__typeof__(nvmlDeviceGetGpuInstances) *gpu_instances;
	__typeof__(nvmlGpuInstanceGetInfo) *gpu_instance_info;
	__typeof__(nvmlDeviceCreateGpuInstanceWithPlacement) *gpu_instance_create;
	__typeof__(nvmlGpuInstanceDestroy) *gpu_instance_destroy;
	__typeof__(nvmlGpuInstanceGetComputeInstanceProfileInfo) *compute_profile_info;
	__typeof__(nvmlGpuInstanceGetComputeInstances) *computes;
	__typeof__(nvmlGpuInstanceCreateComputeInstance) *compute_create;
	__typeof__(nvmlComputeInstanceDestroy) *compute_destroy;
	__typeof__(nvmlComputeInstanceGetInfo_v2) *compute_info;
	__typeof__(nvmlDeviceSetMigMode) *set_mode;
	__typeof__(nvmlDeviceGetUUID) *uuid;
	__typeof__(nvmlDeviceGetMemoryInfo) *memory;
	__typeof__(nvmlDeviceGetMemoryInfo_v2) *memory_v2;
	__typeof__(nvmlDeviceGetComputeRunningProcesses_v3) *processes;
};

static const struct {
	const char *name;
	size_t offset;
	bool required;
} functions[] = {
#define FUNCTION(name, member, required)                            \
	{                                                           \
#name, offsetof(struct instances, member), required \
	}
	FUNCTION(nvmlDeviceGetGpuInstanceProfileInfo, profile_info, true),
	FUNCTION(nvmlDeviceGetGpuInstanceProfileInfoV, profile_info_v, false),
	FUNCTION(nvmlDeviceGetGpuInstancePossiblePlacements_v2, placements, true),
	FUNCTION(nvmlDeviceGetGpuInstances, gpu_instances, true),
	FUNCTION(nvmlGpuInstanceGetInfo, gpu_instance_info, true),
	FUNCTION(nvmlDeviceCreateGpuInstanceWithPlacement, gpu_instance_create, true),
	FUNCTION(nvmlGpuInstanceDestroy, gpu_instance_destroy, true),
	FUNCTION(nvmlGpuInstanceGetComputeInstanceProfileInfo, compute_profile_info, true),
	FUNCTION(nvmlGpuInstanceGetComputeInstances, computes, true),
	FUNCTION(nvmlGpuInstanceCreateComputeInstance, compute_create, true),
	FUNCTION(nvmlComputeInstanceDestroy, compute_destroy, true),
	FUNCTION(nvmlComputeInstanceGetInfo_v2, compute_info, true),
	FUNCTION(nvmlDeviceSetMigMode, set_mode, true),
	FUNCTION(nvmlDeviceGetUUID, uuid, true),
	FUNCTION(nvmlDeviceGetMemoryInfo, memory, true),
	FUNCTION(nvmlDeviceGetMemoryInfo_v2, memory_v2, false),
	FUNCTION(nvmlDeviceGetComputeRunningProcesses_v3, processes, false),
};

int instances_open(const struct gpus *gpus, struct instances **ret)
{
	struct instances *in = calloc(1, sizeof(*in));

	if (!in)
		return -ENOMEM;
	in->gpus = gpus;
	for (size_t i = 0; i < ARRAY_SIZE(functions); i++) {
		void **slot = (void **)((char *)in + functions[i].offset);

		*slot = gpus_function(gpus, functions[i].name);
		if (!*slot && functions[i].required) {
			free(in);
			return -ENOTSUP;
		}
	}
	*ret = in;
	return 0;
}

int instances_open_link(const struct instances_asking *asking, struct instances **ret)
{
	struct instances *in = calloc(1, sizeof(*in));

	if (!in)
		return -ENOMEM;
	in->asking = *asking;
	in->link = &in->asking;
	*ret = in;
	return 0;
}

void instances_close(struct instances *instances)
{
	free(instances);
}

/* ---- kinds ------------------------------------------------------------------------------- */

/* "MIG 1g.10gb" is 1g.10gb. A driver too old to name its profiles has them named as it shows them.
 */
static void name_read(const struct instances *in, nvmlDevice_t device, unsigned kind,
		      const nvmlGpuInstanceProfileInfo_t *info, char ret[static INSTANCE_NAME_SIZE])
{
	nvmlGpuInstanceProfileInfo_v2_t named = {.version = NVML_GPU_INSTANCE_PROFILE_INFO_V2};
	const char *name = named.name;

	if (in->profile_info_v && in->profile_info_v(device, kind, &named) == NVML_SUCCESS) {
		name += strncmp(name, "MIG ", 4) == 0 ? 4 : 0;
		snprintf(ret, INSTANCE_NAME_SIZE, "%.*s", INSTANCE_NAME_SIZE - 1, name);
		return;
	}
	uint32_t flags = mig_flags_of(kind);
	snprintf(ret, INSTANCE_NAME_SIZE, "%ug.%llugb%s", info->sliceCount,
		 (info->memorySizeMB + 1023) / 1024,
		 flags & MIG_MEDIA      ? "+me"
		 : flags & MIG_NO_MEDIA ? "-me"
		 : flags & MIG_GRAPHICS ? "+gfx"
					: "");
}

/* -ENOENT: this GPU has no such kind. */
static int kind_read(const struct instances *in, nvmlDevice_t device, unsigned kind,
		     struct mig_profile *profile, struct instance_profile *named)
{
	nvmlGpuInstancePlacement_t places[PLACES_MAX];
	nvmlGpuInstanceProfileInfo_t info;
	unsigned count = PLACES_MAX;

	if (in->profile_info(device, kind, &info) != NVML_SUCCESS ||
	    in->placements(device, info.id, places, &count) != NVML_SUCCESS || !count)
		return -ENOENT;
	*profile = (struct mig_profile){
		.memory_bytes = MIB(info.memorySizeMB),
		.sms = info.multiprocessorCount,
		.slices = info.sliceCount,
		.limit = info.instanceCount,
		.engines = {[MIG_DECODERS] = (uint16_t)info.decoderCount,
			    [MIG_ENCODERS] = (uint16_t)info.encoderCount,
			    [MIG_JPEG] = (uint16_t)info.jpegCount,
			    [MIG_OPTICAL_FLOW] = (uint16_t)info.ofaCount},
		.flags = mig_flags_of(kind),
		.size = (uint8_t)MIN(places[0].size, MIG_UNITS_MAX + 1),
	};
	for (unsigned i = 0; i < MIN(count, PLACES_MAX); i++)
		if (places[i].start < MIG_UNITS_MAX)
			profile->starts |= 1u << places[i].start;
	named->id = info.id;
	name_read(in, device, kind, &info, named->name);
	return 0;
}

static bool is_larger(const struct mig_profile *a, const struct mig_profile *b)
{
	if (a->size != b->size)
		return a->size > b->size;
	return a->slices != b->slices ? a->slices > b->slices : a->flags > b->flags;
}

/* By insertion: there are a dozen. */
static void kinds_sort(struct instance_kinds *kinds)
{
	for (uint32_t i = 1; i < kinds->die.profile_count; i++) {
		struct mig_profile profile = kinds->die.profile[i];
		struct instance_profile named = kinds->profile[i];
		uint32_t at = i;

		for (; at && is_larger(&kinds->die.profile[at - 1], &profile); at--) {
			kinds->die.profile[at] = kinds->die.profile[at - 1];
			kinds->profile[at] = kinds->profile[at - 1];
		}
		kinds->die.profile[at] = profile;
		kinds->profile[at] = named;
	}
}

int instances_kinds(const struct instances *in, uint32_t gpu, struct instance_kinds *ret)
{
	nvmlDevice_t device;

	if (in->link)
		return instances_link_kinds(in->link, gpu, ret);
	int rc = gpus_device(in->gpus, gpu, &device);
	memset(ret, 0, sizeof(*ret));
	for (unsigned kind = 0; rc == 0 && kind < KINDS_MAX; kind++) {
		uint32_t at = ret->die.profile_count;

		if (at < MIG_PROFILES_MAX &&
		    kind_read(in, device, kind, &ret->die.profile[at], &ret->profile[at]) == 0)
			ret->die.profile_count++;
	}
	if (rc < 0)
		return rc;
	kinds_sort(ret);
	return mig_die_init(&ret->die);
}

/* ---- the instances that there are -------------------------------------------------------- */

/* A kind that this driver has no number for: there are no more. Those that the first drivers had
 * are asked for whatever it says. */
static bool is_beyond(unsigned kind, nvmlReturn_t status)
{
	return kind >= NVML_COMPUTE_INSTANCE_PROFILE_COUNT && status == NVML_ERROR_INVALID_ARGUMENT;
}

static unsigned computes_of(const struct instances *in, nvmlGpuInstance_t gi,
			    nvmlComputeInstance_t *list, unsigned max)
{
	unsigned all = 0;

	for (unsigned kind = 0; kind < KINDS_MAX; kind++) {
		nvmlComputeInstanceProfileInfo_t info;
		nvmlComputeInstance_t found[COMPUTES_MAX];
		unsigned count = COMPUTES_MAX;

		nvmlReturn_t status = in->compute_profile_info(
			gi, kind, NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, &info);

		if (is_beyond(kind, status))
			break;
		if (status != NVML_SUCCESS ||
		    in->computes(gi, info.id, found, &count) != NVML_SUCCESS)
			continue;
		for (unsigned i = 0; i < MIN(count, COMPUTES_MAX) && all < max; i++)
			list[all++] = found[i];
	}
	return all;
}

/* The kind of compute instance that is all of a GPU instance: that with the most slices. */
static int whole_compute(const struct instances *in, nvmlGpuInstance_t gi,
			 nvmlComputeInstanceProfileInfo_t *ret)
{
	bool any = false;

	for (unsigned kind = 0; kind < KINDS_MAX; kind++) {
		nvmlComputeInstanceProfileInfo_t info;

		nvmlReturn_t status = in->compute_profile_info(
			gi, kind, NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, &info);

		if (is_beyond(kind, status))
			break;
		if (status != NVML_SUCCESS)
			continue;
		if (!any || info.multiprocessorCount > ret->multiprocessorCount)
			*ret = info;
		any = true;
	}
	return any ? 0 : -EIO;
}

static void pids_read(const struct instances *in, nvmlDevice_t device, struct instance *ret)
{
	nvmlProcessInfo_t list[PROCESSES_MAX];
	unsigned count = PROCESSES_MAX;

	ret->pid_count = 0;
	if (!in->processes || in->processes(device, &count, list) != NVML_SUCCESS)
		return;
	for (unsigned i = 0; i < MIN(count, PROCESSES_MAX) && i < INSTANCE_PIDS_MAX; i++)
		ret->pid[ret->pid_count++] = list[i].pid;
}

/* They name the capabilities that a container needs. */
static void ids_read(const struct instances *in, const nvmlComputeInstanceInfo_t *compute,
		     struct instance *ret)
{
	nvmlGpuInstanceInfo_t info;

	ret->gpu_instance = ret->compute_instance = 0;
	if (in->gpu_instance_info(compute->gpuInstance, &info) != NVML_SUCCESS ||
	    info.id >= UINT8_MAX || compute->id >= UINT8_MAX)
		return;
	ret->gpu_instance = (uint8_t)(info.id + 1);
	ret->compute_instance = (uint8_t)(compute->id + 1);
}

static int device_read(const struct instances *in, nvmlComputeInstance_t compute,
		       struct instance *ret)
{
	nvmlComputeInstanceInfo_t info;
	nvmlMemory_v2_t reserved = {.version = NVML_MEMORY_V2};
	nvmlMemory_t memory;
	nvmlReturn_t status = in->compute_info(compute, &info);

	if (status == NVML_SUCCESS)
		status = in->uuid(info.device, ret->uuid_text, sizeof(ret->uuid_text));
	if (status != NVML_SUCCESS) {
		ret->uuid_text[0] = '\0';
		return gpus_errno(status);
	}
	ret->bytes = in->memory(info.device, &memory) == NVML_SUCCESS ? memory.total : 0;
	if (in->memory_v2 && in->memory_v2(info.device, &reserved) == NVML_SUCCESS)
		ret->reserved = reserved.reserved;
	pids_read(in, info.device, ret);
	ids_read(in, &info, ret);
	return 0;
}

static void instance_read(const struct instances *in, nvmlGpuInstance_t gi, struct instance *ret)
{
	nvmlComputeInstance_t computes[COMPUTES_MAX];
	nvmlComputeInstanceProfileInfo_t whole;
	nvmlComputeInstanceInfo_t info;

	if (computes_of(in, gi, computes, COMPUTES_MAX) != 1 ||
	    in->compute_info(computes[0], &info) != NVML_SUCCESS ||
	    whole_compute(in, gi, &whole) < 0 || info.profileId != whole.id)
		return;
	(void)device_read(in, computes[0], ret);
}

typedef bool (*instance_cb)(void *arg, nvmlGpuInstance_t gi, const nvmlGpuInstanceInfo_t *info);

/* Calls for each GPU instance of a profile until one call returns false. */
static int each_of_profile(const struct instances *in, nvmlDevice_t device, uint32_t profile_id,
			   instance_cb cb, void *arg)
{
	nvmlGpuInstance_t found[PLACES_MAX];
	nvmlGpuInstanceInfo_t info;
	unsigned count = PLACES_MAX;
	nvmlReturn_t status = in->gpu_instances(device, profile_id, found, &count);

	if (status != NVML_SUCCESS)
		return gpus_errno(status);
	for (unsigned i = 0; i < MIN(count, PLACES_MAX); i++)
		if (in->gpu_instance_info(found[i], &info) == NVML_SUCCESS &&
		    !cb(arg, found[i], &info))
			break;
	return 0;
}

struct listing {
	const struct instances *in;
	struct instance *list;
	size_t max, count;
};

static bool listing_add(void *arg, nvmlGpuInstance_t gi, const nvmlGpuInstanceInfo_t *info)
{
	struct listing *l = arg;

	if (l->count == l->max)
		return false;
	struct instance *to = &l->list[l->count++];
	*to = (struct instance){.place = {.profile_id = info->profileId,
					  .start = (uint8_t)info->placement.start,
					  .size = (uint8_t)info->placement.size}};
	instance_read(l->in, gi, to);
	return true;
}

int instances_list(const struct instances *in, uint32_t gpu,
		   const struct instance_profile *profiles, size_t profile_count,
		   struct instance *list, size_t max, size_t *ret_count)
{
	struct listing l = {.in = in, .list = list, .max = max};
	nvmlDevice_t device;

	if (in->link)
		return instances_link_list(in->link, gpu, profiles, profile_count, list, max,
					   ret_count);
	int rc = gpus_device(in->gpus, gpu, &device);
	for (size_t i = 0; rc == 0 && i < profile_count; i++)
		rc = each_of_profile(in, device, profiles[i].id, listing_add, &l);
	*ret_count = l.count;
	return rc;
}

/* ---- changes ----------------------------------------------------------------------------- */

static void pause_ms(unsigned ms)
{
	nanosleep(&(struct timespec){.tv_nsec = (long)ms * 1000000}, NULL);
}

static int gpu_instance_end(const struct instances *in, nvmlGpuInstance_t gi)
{
	nvmlComputeInstance_t computes[COMPUTES_MAX];
	unsigned count = computes_of(in, gi, computes, COMPUTES_MAX);

	for (unsigned i = 0; i < count; i++) {
		int rc = gpus_errno(in->compute_destroy(computes[i]));

		if (rc < 0 && rc != -ENOENT)
			return rc;
		kill_point("mig.taken_apart");
	}
	int rc = gpus_errno(in->gpu_instance_destroy(gi));
	kill_point("mig.destroyed");
	return rc == -ENOENT ? 0 : rc;
}

static int gpu_instance_end_patiently(const struct instances *in, nvmlGpuInstance_t gi,
				      unsigned patience_ms)
{
	int rc = gpu_instance_end(in, gi);

	for (unsigned waited = 0; rc == -EBUSY && waited < patience_ms; waited += TRY_PAUSE_MS) {
		pause_ms(TRY_PAUSE_MS);
		rc = gpu_instance_end(in, gi);
	}
	return rc;
}

int instance_make(const struct instances *in, uint32_t gpu, const struct instance_place *place,
		  struct instance *ret)
{
	const nvmlGpuInstancePlacement_t at = {.start = place->start, .size = place->size};
	nvmlComputeInstanceProfileInfo_t whole;
	nvmlComputeInstance_t compute;
	nvmlGpuInstance_t gi = NULL;
	nvmlDevice_t device = NULL;

	if (in->link)
		return instances_link_make(in->link, gpu, place, ret);
	int rc = gpus_device(in->gpus, gpu, &device);
	if (rc == 0)
		rc = gpus_errno(in->gpu_instance_create(device, place->profile_id, &at, &gi));
	if (rc < 0)
		return rc;
	kill_point("mig.half_made");
	*ret = (struct instance){.place = *place};
	rc = whole_compute(in, gi, &whole);
	if (rc == 0)
		rc = gpus_errno(in->compute_create(gi, whole.id, &compute));
	kill_point("mig.made");
	if (rc == 0)
		rc = device_read(in, compute, ret);
	if (rc < 0 && gpu_instance_end_patiently(in, gi, 500) < 0)
		return -EUCLEAN;
	return rc;
}

struct search {
	struct instance_place place;
	nvmlGpuInstance_t found;
};

static bool search_compare(void *arg, nvmlGpuInstance_t gi, const nvmlGpuInstanceInfo_t *info)
{
	struct search *s = arg;
	bool same =
		info->placement.start == s->place.start && info->placement.size == s->place.size;

	if (same)
		s->found = gi;
	return !same;
}

static int remove_once(const struct instances *in, uint32_t gpu, const struct instance_place *place)
{
	struct search search = {.place = *place};
	nvmlDevice_t device;

	if (in->link)
		return instances_link_remove(in->link, gpu, place);
	int rc = gpus_device(in->gpus, gpu, &device);
	if (rc == 0)
		rc = each_of_profile(in, device, place->profile_id, search_compare, &search);
	return rc < 0 || !search.found ? rc : gpu_instance_end(in, search.found);
}

int instance_remove(const struct instances *in, uint32_t gpu, const struct instance_place *place,
		    unsigned patience_ms)
{
	int rc = remove_once(in, gpu, place);

	for (unsigned waited = 0; rc == -EBUSY && waited < patience_ms; waited += TRY_PAUSE_MS) {
		pause_ms(TRY_PAUSE_MS);
		rc = remove_once(in, gpu, place);
	}
	return rc;
}

/* The driver may take the wish and leave it pending. */
static int mode_once(const struct instances *in, uint32_t gpu)
{
	nvmlReturn_t activation = NVML_SUCCESS, ignored;
	nvmlDevice_t device;

	if (in->link)
		return instances_link_mode(in->link, gpu);
	int rc = gpus_device(in->gpus, gpu, &device);
	if (rc == 0)
		rc = gpus_errno(in->set_mode(device, NVML_FEATURE_ENABLED, &activation));
	kill_point("mig.mode");
	if (rc == 0)
		rc = gpus_errno(activation);
	if (rc == -EBUSY)
		(void)in->set_mode(device, NVML_FEATURE_DISABLED, &ignored);
	return rc;
}

int instances_mode_enable(const struct instances *in, uint32_t gpu, unsigned patience_ms)
{
	int rc = mode_once(in, gpu);

	for (unsigned waited = 0; rc == -EBUSY && waited < patience_ms; waited += TRY_PAUSE_MS) {
		pause_ms(TRY_PAUSE_MS);
		rc = mode_once(in, gpu);
	}
	return rc;
}
