#include "backend/gpm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backend/gpus_private.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/nvml_functions.h"

/* NVML asks for this much between two samples. */
#define LEAST_NS 100000000ull
/* The GPU itself, and its instances. */
#define WATCHED_MAX (MIG_INSTANCES_MAX + 1)

/* The sampled metric. The driver gives an instance's number to the next one: whoever has it now is
 * told by all of the rest. */
struct watched {
	char uuid_text[INSTANCE_UUID_SIZE];
	struct instance_place place;
	uint8_t number;     /* the driver's plus 1; 0: the GPU itself */
	bool seen;          /* by this look */
	nvmlGpmSample_t at; /* taken at the last look; NULL: there is none */
	uint64_t at_ns;
	int8_t busy;
};

struct gpm_gpu {
	struct watched watched[WATCHED_MAX];
	uint32_t count;
};

struct gpm {
	const struct gpus *gpus;
	__typeof__(nvmlGpmQueryDeviceSupport) *support;
	__typeof__(nvmlGpmSampleAlloc) *alloc;
	__typeof__(nvmlGpmSampleFree) *free;
	__typeof__(nvmlGpmSampleGet) *sample;
	__typeof__(nvmlGpmMigSampleGet) *sample_instance;
	__typeof__(nvmlGpmMetricsGet) *metrics;
	struct gpm_gpu gpu[GPUS_MAX];
};

static const struct {
	const char *name;
	size_t offset;
} functions[] = {
#define FUNCTION(name, member)                      \
	{                                           \
#name, offsetof(struct gpm, member) \
	}
	FUNCTION(nvmlGpmQueryDeviceSupport, support),
	FUNCTION(nvmlGpmSampleAlloc, alloc),
	FUNCTION(nvmlGpmSampleFree, free),
	FUNCTION(nvmlGpmSampleGet, sample),
	FUNCTION(nvmlGpmMigSampleGet, sample_instance),
	FUNCTION(nvmlGpmMetricsGet, metrics),
};

int gpm_open(const struct gpus *gpus, struct gpm **ret)
{
	struct gpm *gpm = calloc(1, sizeof(*gpm));

	if (!gpm)
		return -ENOMEM;
	gpm->gpus = gpus;
	for (size_t i = 0; i < ARRAY_SIZE(functions); i++) {
		void **slot = (void **)((char *)gpm + functions[i].offset);

		*slot = gpus_function(gpus, functions[i].name);
		if (!*slot) {
			free(gpm);
			return -ENOTSUP;
		}
	}
	*ret = gpm;
	return 0;
}

static void watched_end(const struct gpm *gpm, struct watched *w)
{
	if (w->at)
		(void)gpm->free(w->at);
	w->at = NULL;
}

void gpm_close(struct gpm *gpm)
{
	for (uint32_t gpu = 0; gpm && gpu < GPUS_MAX; gpu++)
		for (uint32_t i = 0; i < gpm->gpu[gpu].count; i++)
			watched_end(gpm, &gpm->gpu[gpu].watched[i]);
	free(gpm);
}

static bool is_same(const struct watched *w, const struct instance *instance)
{
	return w->number == instance->gpu_instance &&
	       w->place.profile_id == instance->place.profile_id &&
	       w->place.start == instance->place.start && w->place.size == instance->place.size &&
	       strcmp(w->uuid_text, instance->uuid_text) == 0;
}

/* NULL: there are too many. */
static struct watched *watched_get(struct gpm_gpu *g, const struct instance *instance)
{
	for (uint32_t i = 0; i < g->count; i++)
		if (is_same(&g->watched[i], instance))
			return &g->watched[i];
	if (g->count == WATCHED_MAX)
		return NULL;
	struct watched *w = &g->watched[g->count++];
	*w = (struct watched){
		.number = instance->gpu_instance, .place = instance->place, .busy = GPM_UNKNOWN};
	memcpy(w->uuid_text, instance->uuid_text, sizeof(w->uuid_text));
	return w;
}

/* NULL: the driver gives none. */
static nvmlGpmSample_t sample_take(const struct gpm *gpm, nvmlDevice_t device, uint8_t number)
{
	nvmlGpmSample_t sample = NULL;

	if (gpm->alloc(&sample) != NVML_SUCCESS)
		return NULL;
	nvmlReturn_t status = number ? gpm->sample_instance(device, number - 1u, sample)
				     : gpm->sample(device, sample);
	if (status == NVML_SUCCESS)
		return sample;
	(void)gpm->free(sample);
	return NULL;
}

/* A figure that cannot be is none. */
static int8_t busy_between(const struct gpm *gpm, nvmlGpmSample_t from, nvmlGpmSample_t to)
{
	nvmlGpmMetricsGet_t get = {.version = NVML_GPM_METRICS_GET_VERSION,
				   .numMetrics = 1,
				   .sample1 = from,
				   .sample2 = to,
				   .metrics = {{.metricId = NVML_GPM_METRIC_GRAPHICS_UTIL}}};

	if (gpm->metrics(&get) != NVML_SUCCESS || get.metrics[0].nvmlReturn != NVML_SUCCESS ||
	    !(get.metrics[0].value >= 0 && get.metrics[0].value < 100.5))
		return GPM_UNKNOWN;
	/* An instance that computed at all is not idle. */
	if (get.metrics[0].value > 0 && get.metrics[0].value < 1)
		return 1;
	return (int8_t)(get.metrics[0].value + 0.5);
}

static int8_t watched_look(const struct gpm *gpm, nvmlDevice_t device, struct watched *w)
{
	uint64_t now = now_monotonic_ns();

	w->seen = true;
	if (w->at && now - w->at_ns < LEAST_NS)
		return w->busy;
	nvmlGpmSample_t sample = sample_take(gpm, device, w->number);
	w->busy = GPM_UNKNOWN;
	if (w->at && sample)
		w->busy = busy_between(gpm, w->at, sample);
	watched_end(gpm, w);
	w->at = sample;
	w->at_ns = now;
	return w->busy;
}

/* Those that are gone. */
static void unseen_end(const struct gpm *gpm, struct gpm_gpu *g)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < g->count; i++) {
		if (!g->watched[i].seen) {
			watched_end(gpm, &g->watched[i]);
			continue;
		}
		g->watched[left] = g->watched[i];
		g->watched[left++].seen = false;
	}
	g->count = left;
}

static bool is_supported(const struct gpm *gpm, uint32_t gpu, nvmlDevice_t *device)
{
	nvmlGpmSupport_t support = {.version = NVML_GPM_SUPPORT_VERSION};

	return gpus_device(gpm->gpus, gpu, device) == 0 &&
	       gpm->support(*device, &support) == NVML_SUCCESS && support.isSupportedDevice;
}

static int8_t one_look(struct gpm *gpm, uint32_t gpu, nvmlDevice_t device,
		       const struct instance *instance)
{
	struct watched *w = watched_get(&gpm->gpu[gpu], instance);

	return (int8_t)(w ? watched_look(gpm, device, w) : GPM_UNKNOWN);
}

void gpm_look(struct gpm *gpm, uint32_t gpu, const struct instance *list, size_t count,
	      int8_t *ret_gpu, int8_t *ret_instances)
{
	static const struct instance itself;
	nvmlDevice_t device;

	*ret_gpu = GPM_UNKNOWN;
	memset(ret_instances, GPM_UNKNOWN, count * sizeof(*ret_instances));
	if (!gpm || gpu >= GPUS_MAX)
		return;
	if (is_supported(gpm, gpu, &device)) {
		*ret_gpu = one_look(gpm, gpu, device, &itself);
		for (size_t i = 0; i < count; i++)
			if (list[i].gpu_instance)
				ret_instances[i] = one_look(gpm, gpu, device, &list[i]);
	}
	unseen_end(gpm, &gpm->gpu[gpu]);
}
