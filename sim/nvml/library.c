#include "nvml/library.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "nvml/mig.h"

/* Initialization and the connection. The last nvmlShutdown closes it: as with the real library, no
 * other call may be under way then. */
static pthread_mutex_t library_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned int library_users; /* under library_lock */
static _Atomic(struct client *) library_connection;
static atomic_bool library_initialized;

unsigned long long library_timestamp_us(void)
{
	return (unsigned long long)now_realtime_ns() / 1000;
}

static nvmlReturn_t library_connect(void)
{
	struct client *c = library_connection, *fresh;
	int r;

	if (c && client_check(c) == 0)
		return NVML_SUCCESS;
	r = client_connect(WIRE_ROLE_NVML, &fresh);
	if (r < 0)
		return r == -ENODEV   ? NVML_ERROR_DRIVER_NOT_LOADED
		       : r == -EACCES ? NVML_ERROR_NO_PERMISSION
				      : NVML_ERROR_UNKNOWN;
	/* The old one stays: it is the parent's after a fork, or in use by a thread that is about
	 * to learn that its host is gone. */
	library_connection = fresh;
	return NVML_SUCCESS;
}

struct client *library_client(void)
{
	struct client *c;

	if (!library_initialized)
		return NULL;
	c = library_connection;
	if (client_check(c) != -ECHILD)
		return c;
	pthread_mutex_lock(&library_lock);
	library_connect();
	c = library_connection;
	pthread_mutex_unlock(&library_lock);
	return c;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
	nvmlReturn_t r;

	if (flags & ~(unsigned int)(NVML_INIT_FLAG_NO_GPUS | NVML_INIT_FLAG_NO_ATTACH))
		return NVML_ERROR_INVALID_ARGUMENT;
	pthread_mutex_lock(&library_lock);
	r = library_connect();
	if (r == NVML_SUCCESS) {
		library_users++;
		library_initialized = true;
	}
	pthread_mutex_unlock(&library_lock);
	return r;
}

nvmlReturn_t nvmlInit_v2(void)
{
	return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInit(void)
{
	return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void)
{
	nvmlReturn_t r = NVML_ERROR_UNINITIALIZED;

	pthread_mutex_lock(&library_lock);
	if (library_users > 0) {
		if (--library_users == 0) {
			library_initialized = false;
			client_disconnect(library_connection);
			library_connection = NULL;
		}
		r = NVML_SUCCESS;
	}
	pthread_mutex_unlock(&library_lock);
	return r;
}

/* Handles. */
struct nvmlDevice_st {
	char place;
};
struct nvmlGpuInstance_st {
	char place;
};
struct nvmlComputeInstance_st {
	char place;
};

enum {
	GI_IDS = 16, /* GPU instance IDs are below */
	CI_IDS = 8,
	INSTANCES = WIRE_GPUS_MAX * GI_IDS,
	COMPUTES = INSTANCES * CI_IDS,
};
static struct nvmlDevice_st handle_gpus[WIRE_GPUS_MAX];
static struct nvmlDevice_st handle_migs[COMPUTES];
static struct nvmlGpuInstance_st handle_instances[INSTANCES];
static struct nvmlComputeInstance_st handle_computes[COMPUTES];

static size_t instance_place(wire_device id)
{
	return wire_device_gpu(id) * GI_IDS + wire_device_gi(id);
}

static size_t compute_place(wire_device id)
{
	return instance_place(id) * CI_IDS + wire_device_ci(id);
}

static wire_device compute_id(size_t place)
{
	size_t instance = place / CI_IDS;

	return WIRE_DEVICE_MIG(instance / GI_IDS, instance % GI_IDS, place % CI_IDS);
}

/* Where in a table of `count` one-byte places the pointer is, or -1. */
static ptrdiff_t table_place(const void *table, size_t count, const void *handle)
{
	uintptr_t place = (uintptr_t)handle - (uintptr_t)table;

	return place < count ? (ptrdiff_t)place : -1;
}

nvmlDevice_t handle_of_device(wire_device id)
{
	return wire_device_is_mig(id) ? &handle_migs[compute_place(id)]
				      : &handle_gpus[wire_device_gpu(id)];
}

nvmlGpuInstance_t handle_of_gpu_instance(wire_device id)
{
	return &handle_instances[instance_place(id)];
}

nvmlComputeInstance_t handle_of_compute_instance(wire_device id)
{
	return &handle_computes[compute_place(id)];
}

bool handle_device(nvmlDevice_t handle, wire_device *ret)
{
	ptrdiff_t gpu = table_place(handle_gpus, ARRAY_SIZE(handle_gpus), handle);
	ptrdiff_t mig = table_place(handle_migs, ARRAY_SIZE(handle_migs), handle);

	if (gpu < 0 && mig < 0)
		return false;
	*ret = gpu >= 0 ? (wire_device)gpu : compute_id((size_t)mig);
	return true;
}

bool handle_gpu_instance(nvmlGpuInstance_t handle, wire_device *ret)
{
	ptrdiff_t place = table_place(handle_instances, ARRAY_SIZE(handle_instances), handle);

	if (place < 0)
		return false;
	*ret = WIRE_DEVICE_MIG(place / GI_IDS, place % GI_IDS, WIRE_NO_INSTANCE);
	return true;
}

bool handle_compute_instance(nvmlComputeInstance_t handle, wire_device *ret)
{
	ptrdiff_t place = table_place(handle_computes, ARRAY_SIZE(handle_computes), handle);

	if (place < 0)
		return false;
	*ret = compute_id((size_t)place);
	return true;
}

/* Entering. */
nvmlReturn_t library_fault(struct client *c, wire_device device, const char *call)
{
	int error = 0;

	if (client_fault(c, WIRE_FAULT_NVML, device, call, &error))
		return (nvmlReturn_t)error;
	return NVML_SUCCESS;
}

__attribute__((visibility("default"))) unsigned long long simgpuClockLag(unsigned int index,
									 unsigned long long now_ns)
{
	const struct client *c = library_client();

	if (!c || index >= client_host(c)->gpu_count)
		return 0;
	const struct wire_gpu *gpu = &client_host(c)->gpu[index];
	uint64_t still = atomic_load_explicit(&gpu->clock_still, memory_order_relaxed);
	uint64_t shift = atomic_load_explicit(&gpu->clock_shift, memory_order_relaxed);

	if (!still || still >= now_ns)
		return shift;
	return now_ns - still;
}

nvmlReturn_t device_enter_call(nvmlDevice_t handle, const char *call, struct device *ret)
{
	struct client *c = library_client();
	struct device d = {.client = c};

	if (!c)
		return NVML_ERROR_UNINITIALIZED;
	if (!handle_device(handle, &d.id))
		return NVML_ERROR_INVALID_ARGUMENT;
	d.index = wire_device_gpu(d.id);
	if (d.index >= client_host(c)->gpu_count)
		return NVML_ERROR_INVALID_ARGUMENT;
	d.gpu = &client_host(c)->gpu[d.index];
	d.model = sim_model_find(d.gpu->model);
	if (!d.model)
		return NVML_ERROR_UNKNOWN;
	if (d.gpu->flags & WIRE_GPU_LOST)
		return NVML_ERROR_GPU_IS_LOST;
	if (wire_device_is_mig(d.id) && !mig_device_get(&d, &(struct mig_device){0}))
		return NVML_ERROR_INVALID_ARGUMENT;
	*ret = d;
	return library_fault(c, d.id, call);
}

nvmlReturn_t library_error(int error)
{
	if (error <= WIRE_STATUS_NVML)
		return (nvmlReturn_t)(WIRE_STATUS_NVML - error);
	switch (error < 0 ? -error : 0) {
	case 0:
		return NVML_SUCCESS;
	case EINVAL:
		return NVML_ERROR_INVALID_ARGUMENT;
	case ENOTSUP:
		return NVML_ERROR_NOT_SUPPORTED;
	case EPERM:
	case EACCES:
		return NVML_ERROR_NO_PERMISSION;
	case ENOENT:
		return NVML_ERROR_NOT_FOUND;
	case EBUSY:
		return NVML_ERROR_IN_USE;
	case EAGAIN:
		return NVML_ERROR_RESET_REQUIRED;
	case ENOSPC:
		return NVML_ERROR_INSUFFICIENT_RESOURCES;
	case EIO:
		return NVML_ERROR_GPU_IS_LOST;
	default:
		return NVML_ERROR_UNKNOWN;
	}
}

nvmlReturn_t library_text(const char *text, char *buf, unsigned int length)
{
	size_t size = strlen(text) + 1;

	if (size > length)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(buf, text, size);
	return NVML_SUCCESS;
}

nvmlReturn_t library_unsupported(const char *call, unsigned int since)
{
	struct client *c = library_client();

	if (!c)
		return NVML_ERROR_UNINITIALIZED;
	client_unsupported(c, call);
	return client_host(c)->driver_branch < since ? NVML_ERROR_FUNCTION_NOT_FOUND
						     : NVML_ERROR_NOT_SUPPORTED;
}
