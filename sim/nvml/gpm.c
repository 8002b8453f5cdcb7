/* GPU performance monitoring (GPM): Hopper and newer. A sample is what an engine had done by then;
 * a figure is what it did between two of them. The only figure here, among the many, is how much of
 * the time something computed. For a GPU with instances, and for an instance with parts, it is
 * their sum, each with its share of the multiprocessors. */
#include <stdlib.h>

#include "base/macros.h"
#include "nvml/mig.h"

/* CUDA's compute capability of Hopper. */
#define GPM_SINCE_CC 9u

struct nvmlGpmSample_st {
	wire_device of;
	uint32_t sms;     /* the SMs of all of it; 0: nothing was sampled */
	uint64_t at;      /* ns */
	uint64_t busy_ns; /* times multiprocessors */
};

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, support, &d);

	if (r != NVML_SUCCESS)
		return r;
	if (support->version != NVML_GPM_SUPPORT_VERSION)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	support->isSupportedDevice = d.model->cc_major >= GPM_SINCE_CC;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample)
{
	struct client *c;
	nvmlReturn_t r = library_enter(__func__, sample, &c);

	if (r != NVML_SUCCESS)
		return r;
	*sample = calloc(1, sizeof(**sample));
	return *sample ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample)
{
	if (!sample)
		return NVML_ERROR_INVALID_ARGUMENT;
	free(sample);
	return NVML_SUCCESS;
}

static nvmlReturn_t gpm_enter(nvmlDevice_t device, const char *call, nvmlGpmSample_t sample,
			      struct device *d)
{
	nvmlReturn_t r = gpu_enter(device, call, sample, d);

	return r == NVML_SUCCESS && d->model->cc_major < GPM_SINCE_CC ? NVML_ERROR_NOT_SUPPORTED
								      : r;
}

static nvmlReturn_t busy_add(const struct device *d, wire_device of, uint32_t sms,
			     struct nvmlGpmSample_st *to)
{
	struct wire_utilization u;
	int r = client_utilization(d->client, of, &u);

	if (r == 0)
		to->busy_ns += u.busy_ns * sms;
	return library_error(r);
}

/* The devices of one GPU instance, or with WIRE_NO_INSTANCE of all. */
static nvmlReturn_t devices_add(const struct device *d, uint32_t gpu_instance,
				struct nvmlGpmSample_st *to)
{
	struct mig_device devices[MIG_DEVICES_MAX];
	int n = mig_client_devices(d->client, d->index, devices);
	nvmlReturn_t r = n < 0 ? library_error(n) : NVML_SUCCESS;

	for (int i = 0; i < n && r == NVML_SUCCESS; i++)
		if (gpu_instance == WIRE_NO_INSTANCE ||
		    wire_device_gi(devices[i].id) == gpu_instance)
			r = busy_add(d, devices[i].id, devices[i].sm, to);
	return r;
}

nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample)
{
	struct device d;
	nvmlReturn_t r = gpm_enter(device, __func__, sample, &d);
	struct nvmlGpmSample_st taken;

	if (r != NVML_SUCCESS)
		return r;
	taken = (struct nvmlGpmSample_st){.of = d.id, .sms = d.model->sm_count, .at = client_now()};
	r = device_mig_mode(&d) ? devices_add(&d, WIRE_NO_INSTANCE, &taken)
				: busy_add(&d, d.id, taken.sms, &taken);
	if (r == NVML_SUCCESS)
		*sample = taken;
	return r;
}

nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int gpu_instance,
				 nvmlGpmSample_t sample)
{
	struct device d;
	struct mig_board board;
	struct wire_mig_state_reply reply;
	const struct mig_gi *gi;
	nvmlReturn_t r = gpm_enter(device, __func__, sample, &d);
	struct nvmlGpmSample_st taken;

	if (r != NVML_SUCCESS)
		return r;
	if (!device_mig_mode(&d) ||
	    !mig_board_find(d.model, client_host(d.client)->driver_branch, &board))
		return NVML_ERROR_NOT_SUPPORTED;
	r = library_error(mig_client_state(d.client, d.index, &reply));
	if (r != NVML_SUCCESS)
		return r;
	gi = gpu_instance < WIRE_NO_INSTANCE ? mig_gi_find(&reply.state, (uint8_t)gpu_instance)
					     : NULL;
	if (!gi)
		return NVML_ERROR_INVALID_ARGUMENT;
	taken = (struct nvmlGpmSample_st){
		.of = WIRE_DEVICE_MIG(d.index, gpu_instance, WIRE_NO_INSTANCE),
		.sms = mig_sm(&board, mig_profile_by_id(&board, gi->profile_id)),
		.at = client_now()};
	r = devices_add(&d, gpu_instance, &taken);
	if (r == NVML_SUCCESS)
		*sample = taken;
	return r;
}

/* Per cent. The work of an instance that is gone is in the older sample alone. */
static double busy_between(const struct nvmlGpmSample_st *from, const struct nvmlGpmSample_st *to)
{
	double all = (double)(to->at - from->at) * to->sms;
	double busy = to->busy_ns > from->busy_ns ? (double)(to->busy_ns - from->busy_ns) : 0;

	return MIN(100 * busy / all, 100.0);
}

nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *metrics)
{
	struct client *c;
	nvmlReturn_t r = library_enter(__func__, metrics, &c);
	const struct nvmlGpmSample_st *from, *to;

	if (r != NVML_SUCCESS)
		return r;
	if (metrics->version != NVML_GPM_METRICS_GET_VERSION)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	from = metrics->sample1;
	to = metrics->sample2;
	if (!from || !to || !from->sms || from->of != to->of || from->at >= to->at)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned int i = 0; i < metrics->numMetrics; i++) {
		nvmlGpmMetric_t *m = &metrics->metrics[i];

		m->nvmlReturn = m->metricId == NVML_GPM_METRIC_GRAPHICS_UTIL
					? NVML_SUCCESS
					: NVML_ERROR_NOT_SUPPORTED;
		if (m->nvmlReturn == NVML_SUCCESS)
			m->value = busy_between(from, to);
	}
	return NVML_SUCCESS;
}
