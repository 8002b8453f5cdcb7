/* MIG, but for creating and destroying: mode, profiles, placements, and MIG devices. Profiles and
 * placements are computed here from the host's state by the same rules that it applies itself. */
#include "nvml/mig.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/macros.h"

/* MIG devices. */
bool mig_device_get(const struct device *d, struct mig_device *ret)
{
	struct mig_device devices[MIG_DEVICES_MAX];
	int n = mig_client_devices(d->client, d->index, devices);

	for (int i = 0; i < n; i++) {
		if (devices[i].id != d->id)
			continue;
		*ret = devices[i];
		return true;
	}
	return false;
}

unsigned int mig_device_index(const struct device *d)
{
	struct mig_device devices[MIG_DEVICES_MAX];
	int n = mig_client_devices(d->client, d->index, devices);

	for (int i = 0; i < n; i++)
		if (devices[i].id == d->id)
			return (unsigned int)i;
	return 0;
}

nvmlReturn_t mig_find_uuid(struct client *c, const char *call, const char *uuid,
			   nvmlDevice_t *device)
{
	nvmlReturn_t r;

	for (uint32_t gpu = 0; gpu < client_host(c)->gpu_count; gpu++) {
		struct mig_device devices[MIG_DEVICES_MAX];
		int n = mig_client_devices(c, gpu, devices);

		for (int i = 0; i < n; i++) {
			if (strcasecmp(devices[i].uuid, uuid) != 0)
				continue;
			if ((r = library_fault(c, devices[i].id, call)) == NVML_SUCCESS)
				*device = handle_of_device(devices[i].id);
			return r;
		}
	}
	r = library_fault(c, WIRE_NO_DEVICE, call);
	return r == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : r;
}

/* A GPU with MIG; with `on`, one whose MIG mode is on. */
static nvmlReturn_t board_enter(nvmlDevice_t device, const char *call, const void *out, bool on,
				struct device *d, struct mig_board *board)
{
	nvmlReturn_t r = gpu_enter(device, call, out, d);
	int error;

	if (r != NVML_SUCCESS)
		return r;
	if (!mig_board_find(d->model, client_host(d->client)->driver_branch, board) ||
	    (on && !device_mig_mode(d)))
		return NVML_ERROR_NOT_SUPPORTED;
	return client_fault(d->client, WIRE_FAULT_VGPU, d->id, call, &error)
		       ? NVML_ERROR_NOT_SUPPORTED
		       : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
	struct device d;
	struct mig_board board;
	nvmlReturn_t r = board_enter(device, __func__, current && pending ? current : NULL, false,
				     &d, &board);
	uint32_t flags;

	if (r != NVML_SUCCESS)
		return r;
	flags = d.gpu->flags;
	*current = flags & WIRE_GPU_MIG ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
	*pending = flags & WIRE_GPU_MIG_PENDING ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
	return NVML_SUCCESS;
}

/* Succeeds also where the mode is only pending: *activation then says why. With GPU instances it
 * cannot even be pending. */
nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode, nvmlReturn_t *activation)
{
	struct device d;
	struct mig_board board;
	nvmlReturn_t r = board_enter(device, __func__, activation, false, &d, &board);
	bool enable = mode == NVML_DEVICE_MIG_ENABLE;

	if (r != NVML_SUCCESS)
		return r;
	if (mode > NVML_DEVICE_MIG_ENABLE)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = library_error(mig_client_set_mode(d.client, d.index, enable));
	if ((r == NVML_ERROR_IN_USE || r == NVML_ERROR_RESET_REQUIRED) &&
	    !(d.gpu->flags & WIRE_GPU_MIG_PENDING) == !enable) {
		*activation = r;
		return NVML_SUCCESS;
	}
	if (r == NVML_SUCCESS)
		*activation = NVML_SUCCESS;
	return r;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig)
{
	struct device d;
	nvmlReturn_t r = device_enter(device, __func__, is_mig, &d);

	if (r == NVML_SUCCESS)
		*is_mig = device_is_mig(&d);
	return r;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
	struct device d;
	struct mig_board board;
	nvmlReturn_t r = gpu_enter(device, __func__, count, &d);

	if (r != NVML_SUCCESS)
		return r;
	*count = mig_board_find(d.model, client_host(d.client)->driver_branch, &board)
			 ? mig_device_max(&board)
			 : 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
						 nvmlDevice_t *mig)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, mig, &d);
	struct mig_device devices[MIG_DEVICES_MAX];
	int n;

	if (r != NVML_SUCCESS)
		return r;
	n = mig_client_devices(d.client, d.index, devices);
	if (n < 0)
		return library_error(n);
	if (index >= (unsigned int)n)
		return NVML_ERROR_NOT_FOUND;
	*mig = handle_of_device(devices[index].id);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device)
{
	struct device d;
	nvmlReturn_t r = device_enter(mig, __func__, device, &d);

	if (r != NVML_SUCCESS)
		return r;
	if (!device_is_mig(&d))
		return NVML_ERROR_INVALID_ARGUMENT;
	*device = handle_of_device(d.index);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
	struct device d;
	nvmlReturn_t r = device_enter(device, __func__, id, &d);

	if (r != NVML_SUCCESS)
		return r;
	if (!device_is_mig(&d))
		return NVML_ERROR_NOT_SUPPORTED;
	*id = wire_device_gi(d.id);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
	struct device d;
	nvmlReturn_t r = device_enter(device, __func__, id, &d);

	if (r != NVML_SUCCESS)
		return r;
	if (!device_is_mig(&d))
		return NVML_ERROR_NOT_SUPPORTED;
	*id = wire_device_ci(d.id);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
	struct device d;
	nvmlReturn_t r = device_enter(device, __func__, attributes, &d);
	struct wire_mig_state_reply reply;
	const struct mig_profile *p;
	const struct mig_gi *gi;
	struct mig_device mig;
	struct mig_board board;

	if (r != NVML_SUCCESS)
		return r;
	if (!device_is_mig(&d) ||
	    !mig_board_find(d.model, client_host(d.client)->driver_branch, &board))
		return NVML_ERROR_NOT_SUPPORTED;
	if (!mig_device_get(&d, &mig) || mig_client_state(d.client, d.index, &reply) < 0)
		return NVML_ERROR_NOT_FOUND;
	gi = mig_gi_find(&reply.state, (uint8_t)wire_device_gi(d.id));
	p = gi ? mig_profile_by_id(&board, gi->profile_id) : NULL;
	if (!p)
		return NVML_ERROR_NOT_FOUND;
	*attributes = (nvmlDeviceAttributes_t){
		.multiprocessorCount = mig.sm,
		.sharedCopyEngineCount = p->ce,
		.sharedDecoderCount = p->dec,
		.sharedEncoderCount = p->enc,
		.sharedJpegCount = p->jpeg,
		.sharedOfaCount = p->ofa,
		.gpuInstanceSliceCount = mig.gi_slices,
		.computeInstanceSliceCount = mig.ci_slices,
		.memorySizeMB = mig_gi_memory_mib(&board, gi),
	};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
	return nvmlDeviceGetAttributes_v2(device, attributes);
}

/* GPU instance profiles: known with MIG mode off, too. */
static nvmlReturn_t profile_enter(nvmlDevice_t device, const char *call, const void *out,
				  unsigned int profile_enum, struct mig_board *board,
				  const struct mig_profile **ret)
{
	struct device d;
	nvmlReturn_t r = board_enter(device, call, out, false, &d, board);

	if (r != NVML_SUCCESS)
		return r;
	if (profile_enum >= NVML_GPU_INSTANCE_PROFILE_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	*ret = mig_profile_by_enum(board, profile_enum);
	return *ret ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int profile_enum,
						 nvmlGpuInstanceProfileInfo_t *info)
{
	struct mig_board board;
	const struct mig_profile *p;
	nvmlReturn_t r = profile_enter(device, __func__, info, profile_enum, &board, &p);

	if (r != NVML_SUCCESS)
		return r;
	*info = (nvmlGpuInstanceProfileInfo_t){
		.id = p->id,
		.isP2pSupported = 0,
		.sliceCount = p->compute_slices,
		.instanceCount = p->max_instances,
		.multiprocessorCount = mig_sm(&board, p),
		.copyEngineCount = p->ce,
		.decoderCount = p->dec,
		.encoderCount = p->enc,
		.jpegCount = p->jpeg,
		.ofaCount = p->ofa,
		.memorySizeMB = mig_memory_mib(&board, p),
	};
	return NVML_SUCCESS;
}

/* The version word tells which structure the caller has. */
nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int profile_enum,
						  nvmlGpuInstanceProfileInfo_v2_t *info)
{
	struct mig_board board;
	const struct mig_profile *p;
	nvmlGpuInstanceProfileInfo_t v1;
	nvmlReturn_t r = profile_enter(device, __func__, info, profile_enum, &board, &p);
	nvmlGpuInstanceProfileInfo_v3_t *v3 = (nvmlGpuInstanceProfileInfo_v3_t *)info;
	char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE];

	if (r == NVML_SUCCESS)
		r = nvmlDeviceGetGpuInstanceProfileInfo(device, profile_enum, &v1);
	if (r != NVML_SUCCESS)
		return r;
	snprintf(name, sizeof(name), "MIG %s", p->name);
	if (info->version == NVML_GPU_INSTANCE_PROFILE_INFO_V2) {
		*info = (nvmlGpuInstanceProfileInfo_v2_t){
			info->version,      v1.id,
			v1.isP2pSupported,  v1.sliceCount,
			v1.instanceCount,   v1.multiprocessorCount,
			v1.copyEngineCount, v1.decoderCount,
			v1.encoderCount,    v1.jpegCount,
			v1.ofaCount,        v1.memorySizeMB,
		};
		memcpy(info->name, name, sizeof(name));
		return NVML_SUCCESS;
	}
	if (info->version != NVML_GPU_INSTANCE_PROFILE_INFO_V3)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	*v3 = (nvmlGpuInstanceProfileInfo_v3_t){
		info->version,          v1.id,
		v1.sliceCount,          v1.instanceCount,
		v1.multiprocessorCount, v1.copyEngineCount,
		v1.decoderCount,        v1.encoderCount,
		v1.jpegCount,           v1.ofaCount,
		v1.memorySizeMB,
	};
	memcpy(v3->name, name, sizeof(name));
	v3->capabilities = strstr(p->name, "+gfx") ? NVML_GPU_INSTANCE_PROFILE_CAPS_GFX : 0;
	return NVML_SUCCESS;
}

static nvmlReturn_t profile_id_enter(nvmlDevice_t device, const char *call, const void *out,
				     unsigned int profile_id, bool on, struct device *d,
				     struct mig_board *board, const struct mig_profile **ret)
{
	nvmlReturn_t r = board_enter(device, call, out, on, d, board);

	if (r != NVML_SUCCESS)
		return r;
	*ret = mig_profile_by_id(board, profile_id);
	return *ret ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

/* All legal places, taken or not. With no array the count alone is told. */
nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device,
							   unsigned int profile_id,
							   nvmlGpuInstancePlacement_t *placements,
							   unsigned int *count)
{
	struct device d;
	struct mig_board board;
	const struct mig_profile *p;
	const struct mig_legal *legal;
	nvmlReturn_t r =
		profile_id_enter(device, __func__, count, profile_id, true, &d, &board, &p);
	unsigned int room;

	if (r != NVML_SUCCESS)
		return r;
	legal = mig_legal(&board, p);
	room = *count;
	*count = legal->count;
	if (!placements)
		return NVML_SUCCESS;
	if (room < legal->count)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned int i = 0; i < legal->count; i++)
		placements[i] = (nvmlGpuInstancePlacement_t){legal->starts[i], legal->size};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements(nvmlDevice_t device,
							unsigned int profile_id,
							nvmlGpuInstancePlacement_t *placements,
							unsigned int *count)
{
	return nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, profile_id, placements, count);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int profile_id,
						       unsigned int *count)
{
	struct device d;
	struct mig_board board;
	const struct mig_profile *p;
	struct wire_mig_state_reply reply;
	int error;
	nvmlReturn_t r =
		profile_id_enter(device, __func__, count, profile_id, true, &d, &board, &p);

	if (r == NVML_SUCCESS)
		r = library_error(mig_client_state(d.client, d.index, &reply));
	if (r != NVML_SUCCESS)
		return r;
	*count = mig_gi_remaining(&board, &reply.state, p);
	if (client_fault(d.client, WIRE_FAULT_MIG_CAPACITY, d.id, __func__, &error))
		*count = p->max_instances;
	return NVML_SUCCESS;
}
