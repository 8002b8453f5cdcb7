/* Utilization, clocks, power, heat. Utilization is the host's own measure of the last second. The
 * rest follows from it by a plain model. An idle GPU draws its idle power at 32 degrees and the
 * lowest clock. A busy one goes up to its limit at 75 degrees and its highest clock. */
#include "base/macros.h"
#include "nvml/library.h"

enum {
	CLOCK_IDLE_MHZ = 345,
	TEMPERATURE_IDLE = 32,
	TEMPERATURE_BUSY = 75,
	TEMPERATURE_SHUTDOWN = 95,
	TEMPERATURE_SLOWDOWN = 92,
	TEMPERATURE_GPU_MAX = 85,
	TEMPERATURE_MEM_MAX = 95,
	TEMPERATURE_V_SINCE = 580, /* as functions.txt says */
	SAMPLING_PERIOD_US = 167000,
};

static nvmlReturn_t busy_permille(const struct device *d, unsigned int *ret)
{
	struct wire_utilization u;
	int r = client_utilization(d->client, d->index, &u);

	*ret = r < 0 ? 0 : MIN(u.gpu_permille, 1000);
	return library_error(r);
}

/* A GPU and how busy it is. */
static nvmlReturn_t busy_enter(nvmlDevice_t device, const char *call, const void *out,
			       struct device *d, unsigned int *permille)
{
	nvmlReturn_t r = gpu_enter(device, call, out, d);

	*permille = 0;
	return r == NVML_SUCCESS ? busy_permille(d, permille) : r;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
	struct device d;
	struct wire_utilization u;
	nvmlReturn_t r = gpu_enter(device, __func__, rates, &d);

	if (r != NVML_SUCCESS)
		return r;
	/* With MIG on there is no figure for the GPU as a whole. */
	if (device_mig_mode(&d))
		return NVML_ERROR_NOT_SUPPORTED;
	r = library_error(client_utilization(d.client, d.id, &u));
	if (r != NVML_SUCCESS)
		return r;
	rates->gpu = MIN(u.gpu_permille, 1000) / 10;
	rates->memory = MIN(u.memory_permille, 1000) / 10;
	return NVML_SUCCESS;
}

/* Samples: the newest alone, which is as new as the call. */
nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type,
				  unsigned long long last_seen, nvmlValueType_t *value_type,
				  unsigned int *count, nvmlSample_t *samples)
{
	unsigned long long now = library_timestamp_us();
	nvmlUtilization_t rates = {0};
	unsigned int value = 0;
	nvmlReturn_t r;

	if (!value_type || !count)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (type == NVML_TOTAL_POWER_SAMPLES)
		r = nvmlDeviceGetPowerUsage(device, &value);
	else if (type == NVML_GPU_UTILIZATION_SAMPLES || type == NVML_MEMORY_UTILIZATION_SAMPLES)
		r = nvmlDeviceGetUtilizationRates(device, &rates);
	else
		return NVML_ERROR_NOT_SUPPORTED;
	if (r != NVML_SUCCESS)
		return r;
	if (last_seen >= now)
		return NVML_ERROR_NOT_FOUND;
	if (type != NVML_TOTAL_POWER_SAMPLES)
		value = type == NVML_GPU_UTILIZATION_SAMPLES ? rates.gpu : rates.memory;
	*value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
	if (samples && *count == 0)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	*count = 1;
	if (samples)
		*samples = (nvmlSample_t){.timeStamp = now, .sampleValue.uiVal = value};
	return NVML_SUCCESS;
}

/* The engines for video and images, which nothing here uses. */
static nvmlReturn_t idle_engine(nvmlDevice_t device, const char *call, unsigned int *utilization,
				unsigned int *period_us)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, call, utilization && period_us ? utilization : NULL, &d);

	if (r != NVML_SUCCESS)
		return r;
	if (device_mig_mode(&d))
		return NVML_ERROR_NOT_SUPPORTED;
	*utilization = 0;
	*period_us = SAMPLING_PERIOD_US;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *utilization,
					     unsigned int *period_us)
{
	return idle_engine(device, __func__, utilization, period_us);
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *utilization,
					     unsigned int *period_us)
{
	return idle_engine(device, __func__, utilization, period_us);
}

nvmlReturn_t nvmlDeviceGetJpgUtilization(nvmlDevice_t device, unsigned int *utilization,
					 unsigned int *period_us)
{
	return idle_engine(device, __func__, utilization, period_us);
}

nvmlReturn_t nvmlDeviceGetOfaUtilization(nvmlDevice_t device, unsigned int *utilization,
					 unsigned int *period_us)
{
	return idle_engine(device, __func__, utilization, period_us);
}

nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned int *sessions,
				       unsigned int *fps, unsigned int *latency)
{
	struct device d;
	nvmlReturn_t r =
		gpu_enter(device, __func__, sessions && fps && latency ? sessions : NULL, &d);

	if (r == NVML_SUCCESS)
		*sessions = *fps = *latency = 0;
	return r;
}

/* No simulated process encodes or captures. */
nvmlReturn_t nvmlDeviceGetEncoderSessions(nvmlDevice_t device, unsigned int *count,
					  nvmlEncoderSessionInfo_t *infos)
{
	(void)infos;
	return gpu_list_none(device, __func__, count);
}

nvmlReturn_t nvmlDeviceGetFBCSessions(nvmlDevice_t device, unsigned int *count,
				      nvmlFBCSessionInfo_t *infos)
{
	(void)infos;
	return gpu_list_none(device, __func__, count);
}

nvmlReturn_t nvmlDeviceGetFBCStats(nvmlDevice_t device, nvmlFBCStats_t *stats)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, stats, &d);

	if (r == NVML_SUCCESS)
		*stats = (nvmlFBCStats_t){0};
	return r;
}

static unsigned int clock_max(const struct sim_model *model, nvmlClockType_t type)
{
	switch (type) {
	case NVML_CLOCK_MEM:
		return model->clock_mem_mhz;
	case NVML_CLOCK_VIDEO:
		return model->clock_video_mhz;
	default:
		return model->clock_sm_mhz;
	}
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, mhz, &d);

	if (r != NVML_SUCCESS)
		return r;
	if ((unsigned int)type >= NVML_CLOCK_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	*mhz = clock_max(d.model, type);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz)
{
	struct device d;
	unsigned int busy;
	nvmlReturn_t r = busy_enter(device, __func__, mhz, &d, &busy);

	if (r != NVML_SUCCESS)
		return r;
	if ((unsigned int)type >= NVML_CLOCK_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	/* HBM keeps its clock; graphics clocks follow the load. */
	if (type == NVML_CLOCK_MEM || busy > 0)
		*mhz = clock_max(d.model, type);
	else
		*mhz = CLOCK_IDLE_MHZ;
	return NVML_SUCCESS;
}

/* Application clocks stand at their default, the maximum; boards for desktops have none. */
nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, nvmlClockType_t type,
					    unsigned int *mhz)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, mhz, &d);

	if (r != NVML_SUCCESS)
		return r;
	if ((unsigned int)type >= NVML_CLOCK_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!d.model->ecc || type == NVML_CLOCK_VIDEO)
		return NVML_ERROR_NOT_SUPPORTED;
	*mhz = clock_max(d.model, type);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t device, nvmlClockType_t type,
						   unsigned int *mhz)
{
	return nvmlDeviceGetApplicationsClock(device, type, mhz);
}

nvmlReturn_t nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t device, nvmlClockType_t type,
						unsigned int *mhz)
{
	return nvmlDeviceGetApplicationsClock(device, type, mhz);
}

nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t type, nvmlClockId_t id,
				unsigned int *mhz)
{
	if ((unsigned int)id >= NVML_CLOCK_ID_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (id == NVML_CLOCK_ID_CURRENT)
		return nvmlDeviceGetClockInfo(device, type, mhz);
	return nvmlDeviceGetApplicationsClock(device, type, mhz);
}

nvmlReturn_t nvmlDeviceGetAutoBoostedClocksEnabled(nvmlDevice_t device,
						   nvmlEnableState_t *is_enabled,
						   nvmlEnableState_t *default_enabled)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, is_enabled, &d);

	/* Only Kepler and Maxwell boards have the switch. */
	return r == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : r;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device,
						    unsigned long long *reasons)
{
	struct device d;
	unsigned int busy;
	nvmlReturn_t r = busy_enter(device, __func__, reasons, &d, &busy);

	if (r == NVML_SUCCESS)
		*reasons = busy ? NVML_CLOCKS_EVENT_REASON_NONE : NVML_CLOCKS_EVENT_REASON_GPU_IDLE;
	return r;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device,
						       unsigned long long *reasons)
{
	return nvmlDeviceGetCurrentClocksEventReasons(device, reasons);
}

nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t device,
						      unsigned long long *reasons)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, reasons, &d);

	if (r == NVML_SUCCESS)
		*reasons = NVML_CLOCKS_EVENT_REASON_ALL;
	return r;
}

nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t device,
							 unsigned long long *reasons)
{
	return nvmlDeviceGetSupportedClocksEventReasons(device, reasons);
}

/* Data-centre boards stay in P0; others go to P8 when idle. */
nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t *state)
{
	struct device d;
	unsigned int busy;
	nvmlReturn_t r = busy_enter(device, __func__, state, &d, &busy);

	if (r == NVML_SUCCESS)
		*state = d.model->ecc || busy ? NVML_PSTATE_0 : NVML_PSTATE_8;
	return r;
}

nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t device, nvmlPstates_t *state)
{
	return nvmlDeviceGetPerformanceState(device, state);
}

static unsigned int power_mw(const struct sim_model *model, unsigned int busy)
{
	unsigned int idle = model->power_idle_w;

	return idle * 1000 + (model->power_limit_w - idle) * busy;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *mw)
{
	struct device d;
	unsigned int busy;
	nvmlReturn_t r = busy_enter(device, __func__, mw, &d, &busy);

	if (r == NVML_SUCCESS)
		*mw = power_mw(d.model, busy);
	return r;
}

/* Idle power for the whole time, and the rest for as long as kernels ran. */
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *mj)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, mj, &d);
	struct wire_utilization u;
	uint64_t idle_w, up_ms;

	if (r != NVML_SUCCESS)
		return r;
	r = library_error(client_utilization(d.client, d.id, &u));
	if (r != NVML_SUCCESS)
		return r;
	idle_w = d.model->power_idle_w;
	up_ms = (client_now() - client_host(d.client)->started) / 1000000;
	*mj = idle_w * up_ms + (d.model->power_limit_w - idle_w) * (u.busy_ns / 1000000);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, mode, &d);

	if (r == NVML_SUCCESS)
		*mode = NVML_FEATURE_ENABLED;
	return r;
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *mw)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, mw, &d);

	if (r == NVML_SUCCESS)
		*mw = d.model->power_limit_w * 1000;
	return r;
}

nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned int *mw)
{
	return nvmlDeviceGetPowerManagementLimit(device, mw);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *mw)
{
	return nvmlDeviceGetPowerManagementLimit(device, mw);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *min_mw,
							  unsigned int *max_mw)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, min_mw && max_mw ? min_mw : NULL, &d);

	if (r != NVML_SUCCESS)
		return r;
	*min_mw = d.model->power_min_w * 1000;
	*max_mw = d.model->power_limit_w * 1000;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerSource(nvmlDevice_t device, unsigned int *source)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, source, &d);

	if (r == NVML_SUCCESS)
		*source = NVML_POWER_SOURCE_AC;
	return r;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor,
				      unsigned int *celsius)
{
	struct device d;
	unsigned int busy;
	nvmlReturn_t r = busy_enter(device, __func__, celsius, &d, &busy);

	if (r != NVML_SUCCESS)
		return r;
	if ((unsigned int)sensor >= NVML_TEMPERATURE_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	*celsius = TEMPERATURE_IDLE + (TEMPERATURE_BUSY - TEMPERATURE_IDLE) * busy / 1000;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_v1_t *temperature)
{
	unsigned int celsius;
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, temperature, &d);

	if (r != NVML_SUCCESS)
		return r;
	if (client_host(d.client)->driver_branch < TEMPERATURE_V_SINCE)
		return NVML_ERROR_FUNCTION_NOT_FOUND;
	if (temperature->version != NVML_TEMPERATURE_V1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	r = nvmlDeviceGetTemperature(device, temperature->sensorType, &celsius);
	if (r == NVML_SUCCESS)
		temperature->temperature = (int)celsius;
	return r;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device,
					       nvmlTemperatureThresholds_t threshold,
					       unsigned int *celsius)
{
	static const unsigned int thresholds[NVML_TEMPERATURE_THRESHOLD_COUNT] = {
		[NVML_TEMPERATURE_THRESHOLD_SHUTDOWN] = TEMPERATURE_SHUTDOWN,
		[NVML_TEMPERATURE_THRESHOLD_SLOWDOWN] = TEMPERATURE_SLOWDOWN,
		[NVML_TEMPERATURE_THRESHOLD_MEM_MAX] = TEMPERATURE_MEM_MAX,
		[NVML_TEMPERATURE_THRESHOLD_GPU_MAX] = TEMPERATURE_GPU_MAX,
	};
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, celsius, &d);

	if (r != NVML_SUCCESS)
		return r;
	if ((unsigned int)threshold >= NVML_TEMPERATURE_THRESHOLD_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!thresholds[threshold])
		return NVML_ERROR_NOT_SUPPORTED;
	*celsius = thresholds[threshold];
	return NVML_SUCCESS;
}

/* Data-centre boards are cooled by their chassis. */
nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int *speed)
{
	struct device d;
	unsigned int busy;
	nvmlReturn_t r = busy_enter(device, __func__, speed, &d, &busy);

	if (r != NVML_SUCCESS)
		return r;
	if (!d.model->has_fan)
		return NVML_ERROR_NOT_SUPPORTED;
	*speed = 30 + 50 * busy / 1000;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan, unsigned int *speed)
{
	if (fan > 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	return nvmlDeviceGetFanSpeed(device, speed);
}

nvmlReturn_t nvmlDeviceGetNumFans(nvmlDevice_t device, unsigned int *count)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, count, &d);

	if (r == NVML_SUCCESS)
		*count = d.model->has_fan ? 1 : 0;
	return r;
}
