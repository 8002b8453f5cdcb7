/* Event sets: what a caller is told when it waits is how the host's page differs from what it was
 * told last. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/macros.h"
#include "nvml/library.h"

enum {
	POLL_NS = 5000000,
	XID_DOUBLE_BIT_ECC = 48,
	XID_OFF_THE_BUS = 79,
};

/* The last events told of a GPU. */
struct watch {
	unsigned long long types;
	uint32_t mig_generation;
	uint64_t ecc_errors;
	bool lost;
};

struct nvmlEventSet_st {
	pthread_mutex_t lock;
	struct watch watches[WIRE_GPUS_MAX];
};

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
	struct client *c;
	nvmlReturn_t r = library_enter(__func__, set, &c);
	nvmlEventSet_t fresh;

	if (r != NVML_SUCCESS)
		return r;
	fresh = calloc(1, sizeof(*fresh));
	if (!fresh)
		return NVML_ERROR_MEMORY;
	pthread_mutex_init(&fresh->lock, NULL);
	*set = fresh;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
	struct client *c;
	nvmlReturn_t r = library_enter(__func__, set, &c);

	if (r != NVML_SUCCESS)
		return r;
	pthread_mutex_destroy(&set->lock);
	free(set);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, types, &d);

	if (r != NVML_SUCCESS)
		return r;
	*types = NVML_EVENT_TYPE_XID_CRITICAL_ERROR;
	if (d.model->ecc)
		*types |= NVML_EVENT_TYPE_DOUBLE_BIT_ECC_ERROR;
	if (d.model->mig_class)
		*types |= NVML_EVENT_TYPE_MIG_CONFIG_CHANGE;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
				      nvmlEventSet_t set)
{
	struct device d;
	unsigned long long supported = 0;
	nvmlReturn_t r = gpu_enter(device, __func__, set, &d);
	struct watch *w;

	if (r == NVML_SUCCESS)
		r = nvmlDeviceGetSupportedEventTypes(device, &supported);
	if (r != NVML_SUCCESS)
		return r;
	if (types & ~supported)
		return NVML_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&set->lock);
	w = &set->watches[d.index];
	if (!w->types)
		*w = (struct watch){.mig_generation = d.gpu->mig_generation,
				    .ecc_errors = d.gpu->ecc_errors};
	w->types |= types;
	pthread_mutex_unlock(&set->lock);
	return NVML_SUCCESS;
}

/* One thing that is new on the GPU; false: nothing is. */
static bool watch_next(struct watch *w, const struct wire_gpu *gpu, nvmlEventData_t *event)
{
	bool lost = gpu->flags & WIRE_GPU_LOST;

	if ((w->types & NVML_EVENT_TYPE_MIG_CONFIG_CHANGE) &&
	    w->mig_generation != gpu->mig_generation) {
		w->mig_generation = gpu->mig_generation;
		event->eventType = NVML_EVENT_TYPE_MIG_CONFIG_CHANGE;
		return true;
	}
	if (w->ecc_errors != gpu->ecc_errors) {
		w->ecc_errors = gpu->ecc_errors;
		event->eventType = w->types & NVML_EVENT_TYPE_DOUBLE_BIT_ECC_ERROR
					   ? NVML_EVENT_TYPE_DOUBLE_BIT_ECC_ERROR
					   : NVML_EVENT_TYPE_XID_CRITICAL_ERROR;
		event->eventData = XID_DOUBLE_BIT_ECC;
		return w->types & event->eventType;
	}
	if (lost != w->lost) {
		w->lost = lost;
		event->eventType = NVML_EVENT_TYPE_XID_CRITICAL_ERROR;
		event->eventData = XID_OFF_THE_BUS;
		return lost && (w->types & event->eventType);
	}
	return false;
}

static bool set_next(nvmlEventSet_t set, const struct wire_host *host, nvmlEventData_t *event)
{
	bool found = false;

	pthread_mutex_lock(&set->lock);
	for (uint32_t i = 0; i < host->gpu_count && !found; i++) {
		*event = (nvmlEventData_t){.device = handle_of_device(i),
					   .gpuInstanceId = NVML_NO_INSTANCE,
					   .computeInstanceId = NVML_NO_INSTANCE};
		found = set->watches[i].types && watch_next(&set->watches[i], &host->gpu[i], event);
	}
	pthread_mutex_unlock(&set->lock);
	return found;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
	struct client *c;
	nvmlReturn_t r = library_enter(__func__, set && data ? set : NULL, &c);
	uint64_t end = client_now() + (uint64_t)timeout_ms * 1000000;
	nvmlEventData_t event;

	if (r != NVML_SUCCESS)
		return r;
	while (!set_next(set, client_host(c), &event)) {
		uint64_t now = client_now();
		struct timespec nap = {.tv_nsec = (long)MIN(end - now, POLL_NS)};

		if (now >= end)
			return NVML_ERROR_TIMEOUT;
		int status = client_check(c);
		if (status < 0)
			return library_error(status);
		nanosleep(&nap, NULL);
	}
	*data = event;
	return NVML_SUCCESS;
}

/* The first version's structure ends before the instances. */
nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
	nvmlEventData_t event;
	nvmlReturn_t r = nvmlEventSetWait_v2(set, data ? &event : NULL, timeout_ms);

	if (r == NVML_SUCCESS)
		memcpy(data, &event, offsetof(nvmlEventData_t, gpuInstanceId));
	return r;
}
