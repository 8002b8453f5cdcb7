/* Events: those of the slice's devices. A program can register none but those; a MIG instance's are
 * told with its GPU, and with the instance's number. */
#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "front/nvml/hooks.h"
#include "front/nvml/slice.h"

/* The instance of an event that concerns all of a GPU. */
#define INSTANCE_NONE UINT_MAX

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static bool own_event(struct process *p, const nvmlEventData_t *event, bool with_instance)
{
	if (!p || !slice_gpus(p, event->device))
		return false;
	return !with_instance || event->gpuInstanceId == INSTANCE_NONE ||
	       slice_has_whole(p, event->device) ||
	       slice_has_instance(p, event->device, event->gpuInstanceId);
}

typedef nvmlReturn_t wait_call(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms);

/* Others' events are passed over, within the time that the caller gave. */
static nvmlReturn_t wait_own(wait_call *real, size_t size, nvmlEventSet_t set,
			     nvmlEventData_t *data, unsigned int timeout_ms)
{
	uint64_t end = now_ms() + timeout_ms;
	unsigned int left = timeout_ms;
	nvmlEventData_t event = {0};
	nvmlReturn_t result;

	while ((result = real(set, data ? &event : NULL, left)) == NVML_SUCCESS) {
		uint64_t now;

		if (!data || own_event(process_get(), &event, size == sizeof(event))) {
			if (data)
				memcpy(data, &event, size);
			return NVML_SUCCESS;
		}
		now = now_ms();
		if (now >= end && timeout_ms)
			return NVML_ERROR_TIMEOUT;
		left = timeout_ms ? (unsigned int)(end - now) : 0;
	}
	return result;
}

nvmlReturn_t hook_nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data,
				      unsigned int timeout_ms)
{
	return wait_own(real_nvmlEventSetWait_v2, sizeof(*data), set, data, timeout_ms);
}

/* The first version's structure ends before the instances. */
nvmlReturn_t hook_nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data,
				   unsigned int timeout_ms)
{
	return wait_own(real_nvmlEventSetWait, offsetof(nvmlEventData_t, gpuInstanceId), set, data,
			timeout_ms);
}
