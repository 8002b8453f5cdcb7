#include "integrations/kubernetes/device.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "integrations/kubernetes/claim.h"

/* What others hold changes all the time. It is told in such steps, so that the API server does not
 * hear of each. */
#define OFFERED_STEP MIB(64)

static uint64_t number(const json_t *object, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(object, key));

	return value > 0 ? (uint64_t)value : 0;
}

static uint64_t minus(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* What claims have of a GPU already. */
static uint64_t claimed(const json_t *sessions, uint32_t index)
{
	const json_t *session, *gpu;
	uint64_t sum = 0;
	size_t i, j;

	json_array_foreach((json_t *)sessions, i, session)
	{
		const char *name = json_string_value(json_object_get(session, "name"));
		const char *state = json_string_value(json_object_get(session, "state"));

		if (!name || strncmp(name, DEVICE_SESSION_PREFIX, strlen(DEVICE_SESSION_PREFIX)) ||
		    !state || !strcmp(state, "waiting") || !strcmp(state, "ended"))
			continue;
		json_array_foreach(json_object_get(session, "gpus"), j, gpu)
		{
			if (json_integer_value(json_object_get(gpu, "index")) == index)
				sum += number(gpu, "vram_bytes");
		}
	}
	return sum;
}

static void memory_take(const json_t *gpu, const json_t *sessions, struct device_gpu *to)
{
	uint64_t total = minus(number(gpu, "memory_bytes"), number(gpu, "reserved_bytes"));
	uint64_t others = number(gpu, "outside_bytes") +
			  minus(number(gpu, "promised_bytes"), claimed(sessions, to->index));

	to->total = total / MIB(1) * MIB(1);
	to->offered = others ? minus(total, others) / OFFERED_STEP * OFFERED_STEP : to->total;
	to->least = ALIGN_UP(MAX(number(gpu, "context_bytes"), SLICE_BYTES_MIN), MIB(1));
	to->least = MAX(to->least, MIB(128));
	to->usable = to->usable && to->offered >= to->least;
}

static int gpu_take(const json_t *gpu, const json_t *sessions, struct device_gpu *to)
{
	const char *uuid = json_string_value(json_object_get(gpu, "uuid"));
	const char *product = json_string_value(json_object_get(gpu, "name"));
	const json_t *index = json_object_get(gpu, "index");

	if (!uuid || !product || !json_is_integer(index) || strlen(uuid) >= sizeof(to->uuid))
		return -1;
	*to = (struct device_gpu){.index = (uint32_t)json_integer_value(index)};
	snprintf(to->uuid, sizeof(to->uuid), "%s", uuid);
	snprintf(to->product, sizeof(to->product), "%s", product);
	for (size_t i = 0; uuid[i]; i++)
		to->name[i] = (char)tolower((unsigned char)uuid[i]);
	to->usable = !json_is_true(json_object_get(gpu, "mig")) &&
		     !json_is_object(json_object_get(gpu, "held_by"));
	to->answers = !json_is_null(json_object_get(gpu, "used_bytes"));
	memory_take(gpu, sessions, to);
	return claim_label_valid(to->name) ? 0 : -1;
}

int device_gpus_parse(const json_t *gpus, const json_t *sessions, struct device_gpu *ret,
		      size_t *ret_count, struct error *err)
{
	const json_t *gpu;
	size_t i;

	if (!json_is_array(gpus) || !json_is_array(sessions) ||
	    json_array_size(gpus) > DEVICE_GPUS_MAX)
		return error_set(err, EXIT_CODE_FAILED, "carved's list of GPUs makes no sense");
	json_array_foreach((json_t *)gpus, i, gpu)
	{
		if (gpu_take(gpu, sessions, &ret[i]) < 0)
			return error_set(err, EXIT_CODE_FAILED,
					 "carved's entry for GPU %zu makes no sense", i);
	}
	*ret_count = json_array_size(gpus);
	return 0;
}

const struct device_gpu *device_find(const struct device_gpu *gpus, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(gpus[i].name, name))
			return &gpus[i];
	return NULL;
}
