#include "backend/context.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/gpus_private.h"
#include "base/cuda_abi.h"
#include "base/macros.h"
#include "base/nvml_functions.h"

struct cuda {
	__typeof__(cuInit) *init;
	__typeof__(cuDeviceGetCount) *get_count;
	__typeof__(cuDeviceGet) *get;
	__typeof__(cuDeviceGetUuid) *get_uuid;
	__typeof__(cuCtxCreate_v2) *create;
	__typeof__(cuCtxDestroy_v2) *destroy;
	__typeof__(cuMemAllocManaged) *managed;
	__typeof__(cuMemsetD8_v2) *set;
	__typeof__(cuCtxSynchronize) *synchronize;
};

/* Much more than whatever else changes between two looks at a figure. */
#define MANAGED_BYTES MIB(64)

static bool is_instance(const char *uuid_text)
{
	return !strncmp(uuid_text, "MIG-", 4);
}

static int cuda_load(struct cuda *ret)
{
	static const struct {
		const char *name;
		size_t offset;
	} symbols[] = {
		{"cuInit", offsetof(struct cuda, init)},
		{"cuDeviceGetCount", offsetof(struct cuda, get_count)},
		{"cuDeviceGet", offsetof(struct cuda, get)},
		{"cuDeviceGetUuid", offsetof(struct cuda, get_uuid)},
		{"cuCtxCreate_v2", offsetof(struct cuda, create)},
		{"cuCtxDestroy_v2", offsetof(struct cuda, destroy)},
		{"cuMemAllocManaged", offsetof(struct cuda, managed)},
		{"cuMemsetD8_v2", offsetof(struct cuda, set)},
		{"cuCtxSynchronize", offsetof(struct cuda, synchronize)},
	};
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return -ENODEV;
	for (size_t i = 0; i < ARRAY_SIZE(symbols); i++) {
		void *address = dlsym(library, symbols[i].name);

		if (!address)
			return -ENODEV;
		*(void **)((char *)ret + symbols[i].offset) = address;
	}
	return ret->init(0) == CUDA_SUCCESS ? 0 : -ENODEV;
}

static int device_find(const struct cuda *cuda, const char *uuid_text, CUdevice *ret)
{
	uint8_t wanted[LEDGER_UUID_SIZE];
	int count = 0;

	if (gpu_uuid_parse(uuid_text, wanted) < 0 || cuda->get_count(&count) != CUDA_SUCCESS)
		return -ENODEV;
	/* An instance is the only one in sight; the call for UUIDs names its GPU. */
	if (is_instance(uuid_text))
		return count == 1 && cuda->get(ret, 0) == CUDA_SUCCESS ? 0 : -ENODEV;
	for (int i = 0; i < count; i++) {
		CUdevice device;
		CUuuid uuid;

		if (cuda->get(&device, i) == CUDA_SUCCESS &&
		    cuda->get_uuid(&uuid, device) == CUDA_SUCCESS &&
		    !memcmp(&uuid, wanted, sizeof(wanted))) {
			*ret = device;
			return 0;
		}
	}
	return -ENODEV;
}

/* The driver lets root alone see who is in an instance. Here it is nobody else. */
static int look_instance(struct gpus *gpus, const char *uuid_text, uint64_t *ret_used)
{
	__typeof__(nvmlDeviceGetHandleByUUID) *find;
	__typeof__(nvmlDeviceGetMemoryInfo) *memory;
	nvmlMemory_t info = {0};
	nvmlDevice_t device;

	*(void **)&find = gpus_function(gpus, "nvmlDeviceGetHandleByUUID");
	*(void **)&memory = gpus_function(gpus, "nvmlDeviceGetMemoryInfo");
	if (!find || !memory)
		return -ENOTSUP;
	nvmlReturn_t status = find(uuid_text, &device);
	if (status == NVML_SUCCESS)
		status = memory(device, &info);
	*ret_used = info.used;
	return gpus_errno(status);
}

/* One look at the GPU: its use, and this process's. */
static int look(struct gpus *gpus, const char *uuid_text, uint64_t *ret_used, uint64_t *ret_own)
{
	static struct gpu_info list[GPUS_MAX];
	struct gpu_sample sample;
	size_t count = 0;

	if (is_instance(uuid_text))
		return look_instance(gpus, uuid_text, ret_used);
	int rc = gpus_list(gpus, list, GPUS_MAX, &count);
	for (size_t i = 0; rc == 0 && i < count; i++) {
		if (strcmp(list[i].uuid_text, uuid_text) != 0)
			continue;
		gpus_sample(gpus, list[i].index, true, GPU_UNLISTED_ANY, false, &sample);
		rc = sample.error;
		*ret_used = sample.used;
		*ret_own = gpu_sample_process_bytes(&sample, getpid());
		gpu_sample_clear(&sample);
		return rc;
	}
	return rc < 0 ? rc : -ENODEV;
}

/* In the current context. Others may take and give memory meanwhile. */
static enum managed_shows managed_look(const struct cuda *cuda, struct gpus *gpus,
				       const char *uuid_text)
{
	uint64_t before = 0, after = 0, own_before = 0, own = 0;
	CUdeviceptr at;

	if (look(gpus, uuid_text, &before, &own_before) < 0)
		return MANAGED_UNKNOWN;
	if (!own_before)
		return MANAGED_IN_FIGURES;
	CUresult result = cuda->managed(&at, MANAGED_BYTES, CU_MEM_ATTACH_GLOBAL);
	if (result != CUDA_SUCCESS)
		return result == CUDA_ERROR_OUT_OF_MEMORY ? MANAGED_UNKNOWN : MANAGED_IN_FIGURES;
	/* Zeroes: a simulated GPU needs none of the host's memory for them. */
	if (cuda->set(at, 0, MANAGED_BYTES) != CUDA_SUCCESS ||
	    cuda->synchronize() != CUDA_SUCCESS || look(gpus, uuid_text, &after, &own) < 0)
		return MANAGED_UNKNOWN;
	if (own >= own_before + MANAGED_BYTES / 2)
		return MANAGED_IN_FIGURES;
	return after >= before + MANAGED_BYTES / 2 ? MANAGED_APART : MANAGED_UNKNOWN;
}

/* From now on the driver shows this instance alone; a GPU needs nothing. */
static int instance_show(const char *uuid_text)
{
	if (!is_instance(uuid_text))
		return 0;
	// NOLINTNEXTLINE(concurrency-mt-unsafe): no thread of this process reads it meanwhile
	return setenv("CUDA_VISIBLE_DEVICES", uuid_text, 1) < 0 ? -ENOMEM : 0;
}

int context_measure(const char *uuid_text, uint64_t *ret_bytes, enum managed_shows *ret_managed)
{
	struct cuda cuda;
	struct gpus *gpus = NULL;
	CUdevice device;
	CUcontext context;
	uint64_t before = 0, after = 0, own = 0;
	enum managed_shows managed = MANAGED_UNKNOWN;
	int rc = instance_show(uuid_text);

	if (rc == 0)
		rc = cuda_load(&cuda);
	if (rc == 0)
		rc = device_find(&cuda, uuid_text, &device);
	if (rc == 0)
		rc = gpus_open(&gpus, NULL);
	if (rc == 0)
		rc = look(gpus, uuid_text, &before, &own);
	if (rc == 0 && cuda.create(&context, 0, device) != CUDA_SUCCESS)
		rc = -EIO;
	if (rc == 0) {
		rc = look(gpus, uuid_text, &after, &own);
		if (rc == 0 && !is_instance(uuid_text))
			managed = managed_look(&cuda, gpus, uuid_text);
		/* Nobody should see its memory when this process has just ended. */
		(void)cuda.destroy(context);
	}
	gpus_close(gpus);
	if (rc < 0)
		return rc;
	*ret_bytes = own ? own : after > before ? after - before : 0;
	*ret_managed = managed;
	return 0;
}
