/* Figures that the driver keeps by process beside memory: accounting, and sessions of the encoder
 * and of frame-buffer capture. Only the slice's living processes are told of. */
#include <stddef.h>

#include "base/macros.h"
#include "front/nvml/hooks.h"
#include "front/nvml/slice.h"

/* ---- accounting --------------------------------------------------------------------------- */

static const struct slice_entry accounted = {.size = sizeof(unsigned int)};

nvmlReturn_t hook_nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count,
					      unsigned int *pids)
{
	return slice_list((slice_list_call *)real_nvmlDeviceGetAccountingPids, device, count, pids,
			  &accounted);
}

nvmlReturn_t hook_nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid,
					       nvmlAccountingStats_t *stats)
{
	struct process *p = process_get();
	nvmlAccountingStats_t found;
	nvmlReturn_t result = real_nvmlDeviceGetAccountingStats(device, pid, stats ? &found : NULL);

	if (result != NVML_SUCCESS || !stats)
		return result;
	if (!p || !slice_has_process(p, pid))
		return NVML_ERROR_NOT_FOUND;
	*stats = found;
	return NVML_SUCCESS;
}

/* ---- sessions ----------------------------------------------------------------------------- */

static const struct slice_entry encoder = {
	.size = sizeof(nvmlEncoderSessionInfo_t),
	.pid_at = offsetof(nvmlEncoderSessionInfo_t, pid),
	.length_is_no_error = true,
};
static const struct slice_entry capture = {
	.size = sizeof(nvmlFBCSessionInfo_t),
	.pid_at = offsetof(nvmlFBCSessionInfo_t, pid),
	.length_is_no_error = true,
};

nvmlReturn_t hook_nvmlDeviceGetEncoderSessions(nvmlDevice_t device, unsigned int *count,
					       nvmlEncoderSessionInfo_t *infos)
{
	return slice_list((slice_list_call *)real_nvmlDeviceGetEncoderSessions, device, count,
			  infos, &encoder);
}

nvmlReturn_t hook_nvmlDeviceGetFBCSessions(nvmlDevice_t device, unsigned int *count,
					   nvmlFBCSessionInfo_t *infos)
{
	return slice_list((slice_list_call *)real_nvmlDeviceGetFBCSessions, device, count, infos,
			  &capture);
}

/* With more sessions than these their number is told, and no averages. */
#define SESSIONS_MAX 64u

nvmlReturn_t hook_nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned int *sessions,
					    unsigned int *fps, unsigned int *latency)
{
	nvmlReturn_t result = real_nvmlDeviceGetEncoderStats(device, sessions, fps, latency);
	nvmlEncoderSessionInfo_t own[SESSIONS_MAX];
	unsigned int count = SESSIONS_MAX;
	uint64_t frames = 0, delays = 0;

	if (result != NVML_SUCCESS)
		return result;
	nvmlReturn_t listed = hook_nvmlDeviceGetEncoderSessions(device, &count, own);
	*sessions = listed == NVML_SUCCESS || listed == NVML_ERROR_INSUFFICIENT_SIZE ? count : 0;
	count = listed == NVML_SUCCESS ? count : 0;
	for (unsigned int i = 0; i < count; i++) {
		frames += own[i].averageFps;
		delays += own[i].averageLatency;
	}
	*fps = count ? (unsigned int)(frames / count) : 0;
	*latency = count ? (unsigned int)(delays / count) : 0;
	return NVML_SUCCESS;
}

nvmlReturn_t hook_nvmlDeviceGetFBCStats(nvmlDevice_t device, nvmlFBCStats_t *stats)
{
	nvmlReturn_t result = real_nvmlDeviceGetFBCStats(device, stats);
	nvmlFBCSessionInfo_t own[SESSIONS_MAX];
	unsigned int count = SESSIONS_MAX;
	uint64_t frames = 0, delays = 0;

	if (result != NVML_SUCCESS)
		return result;
	nvmlReturn_t listed = hook_nvmlDeviceGetFBCSessions(device, &count, own);
	*stats = (nvmlFBCStats_t){0};
	if (listed == NVML_SUCCESS || listed == NVML_ERROR_INSUFFICIENT_SIZE)
		stats->sessionsCount = count;
	count = listed == NVML_SUCCESS ? count : 0;
	for (unsigned int i = 0; i < count; i++) {
		frames += own[i].averageFPS;
		delays += own[i].averageLatency;
	}
	stats->averageFPS = count ? (unsigned int)(frames / count) : 0;
	stats->averageLatency = count ? (unsigned int)(delays / count) : 0;
	return NVML_SUCCESS;
}
