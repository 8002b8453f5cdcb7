/* MIG GPU instances and compute instances: finding, making and destroying them. The host decides
 * and keeps them; here are handles and NVML's manners. */
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "nvml/mig.h"

/* A GPU whose MIG mode is on, its board and its instances. */
struct instances {
	struct client *client;
	uint32_t gpu;
	struct mig_board board;
	struct wire_mig_state_reply reply;
};

static nvmlReturn_t instances_get(struct client *c, uint32_t gpu, struct instances *ret)
{
	const struct wire_host *host = client_host(c);

	if (gpu >= host->gpu_count)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (host->gpu[gpu].flags & WIRE_GPU_LOST)
		return NVML_ERROR_GPU_IS_LOST;
	if (!mig_board_find(sim_model_find(host->gpu[gpu].model), host->driver_branch,
			    &ret->board) ||
	    !(host->gpu[gpu].flags & WIRE_GPU_MIG))
		return NVML_ERROR_NOT_SUPPORTED;
	ret->client = c;
	ret->gpu = gpu;
	return library_error(mig_client_state(c, gpu, &ret->reply));
}

static nvmlReturn_t gpu_instances_enter(nvmlDevice_t device, const char *call, const void *out,
					struct instances *ret)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, call, out, &d);

	return r == NVML_SUCCESS ? instances_get(d.client, d.index, ret) : r;
}

/* A GPU instance's handle; NOT_FOUND when it is gone. */
static nvmlReturn_t instance_enter(nvmlGpuInstance_t instance, const char *call, const void *out,
				   struct instances *s, const struct mig_gi **ret)
{
	struct client *c;
	wire_device id;
	nvmlReturn_t r = library_open(out, &c);

	if (r != NVML_SUCCESS)
		return r;
	if (!handle_gpu_instance(instance, &id))
		return NVML_ERROR_INVALID_ARGUMENT;
	if ((r = library_fault(c, id, call)) != NVML_SUCCESS)
		return r;
	r = instances_get(c, wire_device_gpu(id), s);
	if (r != NVML_SUCCESS)
		return r;
	*ret = mig_gi_find(&s->reply.state, (uint8_t)wire_device_gi(id));
	return *ret ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

/* A compute instance's handle; NOT_FOUND when it is gone. */
static nvmlReturn_t compute_enter(nvmlComputeInstance_t compute, const char *call, const void *out,
				  struct instances *s, const struct mig_gi **gi, wire_device *id)
{
	struct client *c;
	nvmlReturn_t r = library_open(out, &c);

	if (r != NVML_SUCCESS)
		return r;
	if (!handle_compute_instance(compute, id))
		return NVML_ERROR_INVALID_ARGUMENT;
	if ((r = library_fault(c, *id, call)) != NVML_SUCCESS)
		return r;
	r = instances_get(c, wire_device_gpu(*id), s);
	if (r != NVML_SUCCESS)
		return r;
	*gi = mig_gi_find(&s->reply.state, (uint8_t)wire_device_gi(*id));
	return *gi && (*gi)->ci[wire_device_ci(*id)].used ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

/* GPU instances. */
static nvmlReturn_t create_gpu_instance(nvmlDevice_t device, const char *call,
					unsigned int profile_id, unsigned int start,
					nvmlGpuInstance_t *instance)
{
	struct instances s;
	nvmlReturn_t r = gpu_instances_enter(device, call, instance, &s);
	uint32_t id;

	if (r == NVML_SUCCESS)
		r = library_error(mig_client_create(s.client, WIRE_MIG_GI_CREATE, s.gpu, profile_id,
						    start, &id));
	if (r == NVML_SUCCESS)
		*instance = handle_of_gpu_instance(WIRE_DEVICE_MIG(s.gpu, id, WIRE_NO_INSTANCE));
	return r;
}

nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int profile_id,
					 nvmlGpuInstance_t *instance)
{
	return create_gpu_instance(device, __func__, profile_id, MIG_ANYWHERE, instance);
}

nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int profile_id,
						      const nvmlGpuInstancePlacement_t *placement,
						      nvmlGpuInstance_t *instance)
{
	if (!placement || placement->start >= MIG_ANYWHERE)
		return NVML_ERROR_INVALID_ARGUMENT;
	return create_gpu_instance(device, __func__, profile_id, placement->start, instance);
}

nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance)
{
	struct instances s;
	const struct mig_gi *gi;
	nvmlReturn_t r = instance_enter(instance, __func__, instance, &s, &gi);

	if (r != NVML_SUCCESS)
		return r;
	return library_error(mig_client_destroy(s.client, WIRE_MIG_GI_DESTROY,
						WIRE_DEVICE_MIG(s.gpu, gi->id, WIRE_NO_INSTANCE)));
}

/* The instances of one profile, by ID. NVML's array is as large as the profile's highest count. */
nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int profile_id,
				       nvmlGpuInstance_t *instances, unsigned int *count)
{
	struct instances s;
	nvmlReturn_t r =
		gpu_instances_enter(device, __func__, instances && count ? count : NULL, &s);
	unsigned int n = 0;

	if (r != NVML_SUCCESS)
		return r;
	if (!mig_profile_by_id(&s.board, profile_id))
		return NVML_ERROR_INVALID_ARGUMENT;
	for (uint8_t id = 0; id < WIRE_NO_INSTANCE; id++) {
		const struct mig_gi *gi = mig_gi_find(&s.reply.state, id);

		if (gi && gi->profile_id == profile_id)
			instances[n++] = handle_of_gpu_instance(
				WIRE_DEVICE_MIG(s.gpu, id, WIRE_NO_INSTANCE));
	}
	*count = n;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id,
					  nvmlGpuInstance_t *instance)
{
	struct instances s;
	nvmlReturn_t r = gpu_instances_enter(device, __func__, instance, &s);

	if (r != NVML_SUCCESS)
		return r;
	if (id >= WIRE_NO_INSTANCE || !mig_gi_find(&s.reply.state, (uint8_t)id))
		return NVML_ERROR_NOT_FOUND;
	*instance = handle_of_gpu_instance(WIRE_DEVICE_MIG(s.gpu, id, WIRE_NO_INSTANCE));
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info)
{
	struct instances s;
	const struct mig_gi *gi;
	nvmlReturn_t r = instance_enter(instance, __func__, info, &s, &gi);

	if (r == NVML_SUCCESS)
		*info = (nvmlGpuInstanceInfo_t){
			.device = handle_of_device(s.gpu),
			.id = gi->id,
			.profileId = gi->profile_id,
			.placement = {gi->start, gi->size},
		};
	return r;
}

/* Compute instance profiles. */
static nvmlReturn_t compute_profile_enter(nvmlGpuInstance_t instance, const char *call,
					  const void *out, unsigned int profile_enum,
					  unsigned int engine_profile,
					  struct mig_compute_profile *ret,
					  nvmlComputeInstanceProfileInfo_t *info)
{
	struct instances s;
	const struct mig_gi *gi;
	const struct mig_profile *p;
	nvmlReturn_t r = instance_enter(instance, call, out, &s, &gi);

	if (r != NVML_SUCCESS)
		return r;
	if (profile_enum >= NVML_COMPUTE_INSTANCE_PROFILE_COUNT ||
	    engine_profile >= NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!mig_compute_profile(&s.board, gi, profile_enum, ret))
		return NVML_ERROR_NOT_SUPPORTED;
	p = mig_profile_by_id(&s.board, gi->profile_id);
	*info = (nvmlComputeInstanceProfileInfo_t){
		.id = ret->id,
		.sliceCount = ret->slices,
		.instanceCount = ret->max_instances,
		.multiprocessorCount = ret->sm,
		.sharedCopyEngineCount = p->ce,
		.sharedDecoderCount = p->dec,
		.sharedEncoderCount = p->enc,
		.sharedJpegCount = p->jpeg,
		.sharedOfaCount = p->ofa,
	};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance,
							  unsigned int profile_enum,
							  unsigned int engine_profile,
							  nvmlComputeInstanceProfileInfo_t *info)
{
	struct mig_compute_profile compute;
	nvmlComputeInstanceProfileInfo_t found;
	nvmlReturn_t r = compute_profile_enter(instance, __func__, info, profile_enum,
					       engine_profile, &compute, &found);

	if (r == NVML_SUCCESS)
		*info = found;
	return r;
}

/* The second version of the structure is the third's beginning; the first's fields follow `version`
 * in both. */
nvmlReturn_t
nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t instance, unsigned int profile_enum,
					      unsigned int engine_profile,
					      nvmlComputeInstanceProfileInfo_v2_t *info)
{
	struct mig_compute_profile compute;
	nvmlComputeInstanceProfileInfo_t found;
	nvmlReturn_t r = compute_profile_enter(instance, __func__, info, profile_enum,
					       engine_profile, &compute, &found);

	if (r != NVML_SUCCESS)
		return r;
	if (info->version != NVML_COMPUTE_INSTANCE_PROFILE_INFO_V2 &&
	    info->version != NVML_COMPUTE_INSTANCE_PROFILE_INFO_V3)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	_Static_assert(offsetof(nvmlComputeInstanceProfileInfo_v2_t, name) ==
			       offsetof(nvmlComputeInstanceProfileInfo_v2_t, id) + sizeof(found),
		       "the first version's fields, in its order");
	memcpy(&info->id, &found, sizeof(found));
	snprintf(info->name, sizeof(info->name), "MIG %s", compute.name);
	if (info->version == NVML_COMPUTE_INSTANCE_PROFILE_INFO_V3)
		((nvmlComputeInstanceProfileInfo_v3_t *)info)->capabilities = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t instance,
								unsigned int profile_id,
								unsigned int *count)
{
	struct instances s;
	const struct mig_gi *gi;
	struct mig_compute_profile compute;
	nvmlReturn_t r = instance_enter(instance, __func__, count, &s, &gi);

	if (r != NVML_SUCCESS)
		return r;
	if (!mig_compute_profile(&s.board, gi, profile_id, &compute))
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = mig_ci_remaining(&s.board, gi, profile_id);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(
	nvmlGpuInstance_t instance, unsigned int profile_id,
	nvmlComputeInstancePlacement_t *placements, unsigned int *count)
{
	struct instances s;
	const struct mig_gi *gi;
	uint8_t starts[MIG_CI_MAX], size = 0;
	nvmlReturn_t r = instance_enter(instance, __func__, count, &s, &gi);
	unsigned int n, room;

	if (r != NVML_SUCCESS)
		return r;
	n = mig_ci_places(&s.board, gi, profile_id, starts, &size);
	if (n == 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	room = *count;
	*count = n;
	if (!placements)
		return NVML_SUCCESS;
	if (room < n)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned int i = 0; i < n; i++)
		placements[i] = (nvmlComputeInstancePlacement_t){starts[i], size};
	return NVML_SUCCESS;
}

/* Compute instances. */
static nvmlReturn_t create_compute_instance(nvmlGpuInstance_t instance, const char *call,
					    unsigned int profile_id, unsigned int start,
					    nvmlComputeInstance_t *compute)
{
	struct instances s;
	const struct mig_gi *gi;
	nvmlReturn_t r = instance_enter(instance, call, compute, &s, &gi);
	uint32_t id;

	if (r != NVML_SUCCESS)
		return r;
	r = library_error(mig_client_create(s.client, WIRE_MIG_CI_CREATE,
					    WIRE_DEVICE_MIG(s.gpu, gi->id, WIRE_NO_INSTANCE),
					    profile_id, start, &id));
	if (r == NVML_SUCCESS)
		*compute = handle_of_compute_instance(WIRE_DEVICE_MIG(s.gpu, gi->id, id));
	return r;
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance,
						  unsigned int profile_id,
						  nvmlComputeInstance_t *compute)
{
	return create_compute_instance(instance, __func__, profile_id, MIG_ANYWHERE, compute);
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(
	nvmlGpuInstance_t instance, unsigned int profile_id,
	const nvmlComputeInstancePlacement_t *placement, nvmlComputeInstance_t *compute)
{
	if (!placement || placement->start >= MIG_ANYWHERE)
		return NVML_ERROR_INVALID_ARGUMENT;
	return create_compute_instance(instance, __func__, profile_id, placement->start, compute);
}

nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t compute)
{
	struct instances s;
	const struct mig_gi *gi;
	wire_device id;
	nvmlReturn_t r = compute_enter(compute, __func__, compute, &s, &gi, &id);

	return r == NVML_SUCCESS
		       ? library_error(mig_client_destroy(s.client, WIRE_MIG_CI_DESTROY, id))
		       : r;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, unsigned int profile_id,
						nvmlComputeInstance_t *computes,
						unsigned int *count)
{
	struct instances s;
	const struct mig_gi *gi;
	struct mig_compute_profile compute;
	nvmlReturn_t r =
		instance_enter(instance, __func__, computes && count ? count : NULL, &s, &gi);
	unsigned int n = 0;

	if (r != NVML_SUCCESS)
		return r;
	if (!mig_compute_profile(&s.board, gi, profile_id, &compute))
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned int ci = 0; ci < MIG_CI_MAX; ci++)
		if (gi->ci[ci].used && gi->ci[ci].profile_id == profile_id)
			computes[n++] =
				handle_of_compute_instance(WIRE_DEVICE_MIG(s.gpu, gi->id, ci));
	*count = n;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned int id,
						   nvmlComputeInstance_t *compute)
{
	struct instances s;
	const struct mig_gi *gi;
	nvmlReturn_t r = instance_enter(instance, __func__, compute, &s, &gi);

	if (r != NVML_SUCCESS)
		return r;
	if (id >= MIG_CI_MAX || !gi->ci[id].used)
		return NVML_ERROR_NOT_FOUND;
	*compute = handle_of_compute_instance(WIRE_DEVICE_MIG(s.gpu, gi->id, id));
	return NVML_SUCCESS;
}

static nvmlReturn_t compute_info(nvmlComputeInstance_t compute, const char *call, bool mig_handle,
				 nvmlComputeInstanceInfo_t *info)
{
	struct instances s;
	const struct mig_gi *gi;
	const struct mig_ci *ci;
	wire_device id;
	nvmlReturn_t r = compute_enter(compute, call, info, &s, &gi, &id);

	if (r != NVML_SUCCESS)
		return r;
	ci = &gi->ci[wire_device_ci(id)];
	*info = (nvmlComputeInstanceInfo_t){
		.device = handle_of_device(mig_handle ? id : s.gpu),
		.gpuInstance =
			handle_of_gpu_instance(WIRE_DEVICE_MIG(s.gpu, gi->id, WIRE_NO_INSTANCE)),
		.id = wire_device_ci(id),
		.profileId = ci->profile_id,
		.placement = {ci->start, ci->size},
	};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlComputeInstanceGetInfo(nvmlComputeInstance_t compute,
					nvmlComputeInstanceInfo_t *info)
{
	return compute_info(compute, __func__, false, info);
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t compute,
					   nvmlComputeInstanceInfo_t *info)
{
	return compute_info(compute, __func__, true, info);
}
