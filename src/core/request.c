#include "core/request.h"

#include "base/error.h"
#include "base/units.h"

static int vram_put(const char *text, struct place_request *to, struct error *err)
{
	return units_parse_vram(text, &to->bytes, err);
}

static int gpu_memory_put(const char *text, struct place_request *to, struct error *err)
{
	return units_parse_gpu_memory(text, &to->bytes, err);
}

static int gpu_put(const char *text, struct place_request *to, struct error *err)
{
	uint32_t share, whole;
	int rc = units_parse_gpu(text, &share, &whole, err);

	if (rc < 0)
		return rc;
	if (whole > PLACE_GPUS_MAX)
		return error_set(err, EXIT_CODE_USAGE, "gpu: '%.64s' is more than %u GPUs", text,
				 PLACE_GPUS_MAX);
	to->kind = whole ? PLACE_WHOLE : PLACE_FRACTION;
	to->share = share;
	if (whole > 1)
		to->count = whole;
	if (!to->compute)
		to->compute = share;
	return 0;
}

static int (*const put[REQUEST_SIZES])(const char *, struct place_request *, struct error *) = {
	[REQUEST_VRAM] = vram_put,
	[REQUEST_GPU_MEMORY] = gpu_memory_put,
	[REQUEST_GPU] = gpu_put,
};

int request_size_put(enum request_size size, const char *text, struct place_request *to,
		     struct error *err)
{
	return put[size](text, to, err);
}
