#include "integrations/kubernetes/object/device.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "integrations/kubernetes/object/claim.h"

/* Memory that others hold changes all the time. It is told in such steps, so that the API server
 * does not hear of each. */
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

/* The part of a GPU that claims have already. */
static uint64_t claimed(const json_t *sessions, uint32_t index)
{
	const json_t *session, *gpu;
	uint64_t sum = 0;
	size_t i, j;

	json_array_foreach((json_t *)sessions, i, session)
	{
		const char *name = json_string_value(json_object_get(session, "name"));
		const char *state = json_string_value(json_object_get(session, "state"));

		if (!name ||
		    strncmp(name, DEVICE_SESSION_PREFIX, strlen(DEVICE_SESSION_PREFIX)) != 0 ||
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

/* A list of memory units where something of this size starts, as bits. 0 or -1. */
static int starts_take(const json_t *list, uint64_t size, uint32_t *ret)
{
	const json_t *start;
	size_t i;

	json_array_foreach((json_t *)list, i, start)
	{
		json_int_t at = json_integer_value(start);

		if (!json_is_integer(start) || at < 0 || at + (json_int_t)size > DEVICE_UNITS_MAX)
			return -1;
		*ret |= 1u << at;
	}
	return 0;
}

static int profile_take(const json_t *json, struct device_profile *to)
{
	const char *name = json_string_value(json_object_get(json, "profile"));
	uint64_t size = number(json, "size"), slices = number(json, "slices"),
		 limit = number(json, "limit");

	if (!name || !*name || strlen(name) >= sizeof(to->name) || !size ||
	    size > DEVICE_UNITS_MAX || slices > UINT8_MAX)
		return -1;
	*to = (struct device_profile){.memory = number(json, "memory_bytes"),
				      .size = (uint8_t)size,
				      .slices = (uint8_t)slices,
				      .limit = (uint8_t)MIN(limit, UINT8_MAX)};
	snprintf(to->name, sizeof(to->name), "%s", name);
	int rc = starts_take(json_object_get(json, "starts"), size, &to->starts);
	return rc < 0 ? rc : starts_take(json_object_get(json, "refused"), size, &to->refused);
}

/* 0, or negative: there are none yet, as a daemon that has just started did not look; or they make
 * no sense. */
static int profiles_take(const json_t *gpu, struct device_gpu *to)
{
	const char *backend = json_string_value(json_object_get(gpu, "backend"));
	const json_t *profiles = json_object_get(gpu, "mig_profiles"), *profile;
	size_t i;

	to->instances = backend && !strcmp(backend, "mig");
	if (!to->instances)
		return 0;
	if (!json_array_size(profiles) && json_is_null(json_object_get(gpu, "mig_problem")))
		return -1;
	json_array_foreach((json_t *)profiles, i, profile)
	{
		if (to->profiles == DEVICE_PROFILES_MAX ||
		    profile_take(profile, &to->profile[to->profiles++]) < 0)
			return -1;
	}
	return 0;
}

/* A daemon that cannot tell says null; then nothing is known against it. */
static enum device_mode mode_take(const json_t *gpu)
{
	const char *mode = json_string_value(json_object_get(gpu, "driver_mode"));

	if (mode && !strcmp(mode, "exclusive"))
		return DEVICE_MODE_EXCLUSIVE;
	return mode && !strcmp(mode, "prohibited") ? DEVICE_MODE_PROHIBITED : DEVICE_MODE_SHARED;
}

const char *device_mode_problem(const struct device_gpu *gpu)
{
	switch (gpu->mode) {
	case DEVICE_MODE_EXCLUSIVE:
		return "exclusive: one process at a time may use it";
	case DEVICE_MODE_PROHIBITED:
		return "prohibited: no program may use it";
	default:
		return NULL;
	}
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
	to->drained = json_is_object(json_object_get(gpu, "drain"));
	to->answers = !json_is_null(json_object_get(gpu, "used_bytes"));
	to->mode = mode_take(gpu);
	memory_take(gpu, sessions, to);
	if (profiles_take(gpu, to) < 0)
		return -1;
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

/* ---- instances --------------------------------------------------------------------------- */

static bool session_is_claims(const json_t *sessions, const char *id)
{
	const json_t *session;
	size_t i;

	json_array_foreach((json_t *)sessions, i, session)
	{
		const char *its = json_string_value(json_object_get(session, "id"));
		const char *name = json_string_value(json_object_get(session, "name"));

		if (its && !strcmp(its, id))
			return name &&
			       !strncmp(name, DEVICE_SESSION_PREFIX, strlen(DEVICE_SESSION_PREFIX));
	}
	return false;
}

/* Idle instances make room for a claim, and those that change are carved's affair. */
static bool is_others(const json_t *instance, const json_t *sessions)
{
	const char *state = json_string_value(json_object_get(instance, "state"));
	const char *session = json_string_value(json_object_get(instance, "session"));

	if (!state || strcmp(state, "busy") != 0)
		return state && !strcmp(state, "foreign");
	return session && !session_is_claims(sessions, session);
}

void device_instances_take(const json_t *instances, const json_t *sessions, struct device_gpu *gpus,
			   size_t count)
{
	const json_t *instance;
	size_t i;

	json_array_foreach((json_t *)instances, i, instance)
	{
		uint64_t index = number(instance, "gpu"), start = number(instance, "start"),
			 size = number(instance, "size");

		if (start + size > DEVICE_UNITS_MAX || !is_others(instance, sessions))
			continue;
		for (size_t g = 0; g < count; g++)
			if (gpus[g].index == index)
				gpus[g].taken |= (uint32_t)(((1ull << size) - 1) << start);
	}
}

/* A label of DNS takes neither '.' nor '+'. "+me" and "-me" are different profiles. */
const char *device_instance_name(const struct device_gpu *gpu, const struct device_profile *profile,
				 unsigned start, char buf[static DEVICE_NAME_SIZE])
{
	char label[3 * sizeof(profile->name)] = "";
	size_t used = 0;

	for (const char *at = profile->name; *at; at++) {
		char letter[2] = {(char)tolower((unsigned char)*at), 0};
		const char *text = *at == '+' ? "-plus-" : *at == '.' ? "-" : letter;

		used += (size_t)snprintf(label + used, sizeof(label) - used, "%s", text);
		if (used >= sizeof(label))
			break;
	}
	int length = snprintf(buf, DEVICE_NAME_SIZE, "%s-%s-%u", gpu->name, label, start);
	return length < DEVICE_NAME_SIZE && claim_label_valid(buf) ? buf : NULL;
}

const struct device_gpu *device_instance_find(const struct device_gpu *gpus, size_t count,
					      const char *name,
					      const struct device_profile **ret_profile,
					      unsigned *ret_start)
{
	char its[DEVICE_NAME_SIZE];

	for (size_t i = 0; i < count; i++)
		for (size_t p = 0; p < gpus[i].profiles; p++)
			for (uint32_t rest = gpus[i].profile[p].starts; rest; rest &= rest - 1) {
				*ret_profile = &gpus[i].profile[p];
				*ret_start = (unsigned)__builtin_ctz(rest);
				if (device_instance_name(&gpus[i], *ret_profile, *ret_start, its) &&
				    !strcmp(its, name))
					return &gpus[i];
			}
	return NULL;
}

const struct device_gpu *device_find(const struct device_gpu *gpus, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(gpus[i].name, name))
			return &gpus[i];
	return NULL;
}

const struct device_gpu *device_owner(const char *name, const struct device_gpu *gpus, size_t count)
{
	const struct device_gpu *gpu = device_find(gpus, count, name);
	const struct device_profile *profile;
	unsigned start;

	return gpu ? gpu : device_instance_find(gpus, count, name, &profile, &start);
}
