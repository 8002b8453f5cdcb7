#include "integrations/kubernetes/object/slices.h"

#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "client/client.h"
#include "integrations/kubernetes/object/quantity.h"

/* ---- devices ----------------------------------------------------------------------------- */

static json_t *memory_json(const struct device_gpu *gpu)
{
	char value[QUANTITY_TEXT_SIZE], least[QUANTITY_TEXT_SIZE];

	quantity_format_bytes(MAX(gpu->offered, gpu->least), value);
	quantity_format_bytes(gpu->least, least);
	/* A claim that names no size gets the whole GPU. */
	return json_pack("{s:s, s:{s:s, s:{s:s, s:s}}}", "value", value, "requestPolicy", "default",
			 value, "validRange", "min", least, "step", "1Mi");
}

/* Without a step the scheduler takes a request as it is, with its decimals. With a step it rounds
 * the request up to whole numbers first, whatever the step is. */
static json_t *cores_json(void)
{
	return json_pack("{s:s, s:{s:s, s:{s:s}}}", "value", "100", "requestPolicy", "default", "0",
			 "validRange", "min", "0");
}

/* Every claim takes one, so that no GPU has more. */
static json_t *parts_json(unsigned replicas)
{
	char value[16];

	snprintf(value, sizeof(value), "%u", replicas);
	return json_pack("{s:s, s:{s:s, s:{s:s, s:s}}}", "value", value, "requestPolicy", "default",
			 "1", "validRange", "min", "1", "step", "1");
}

static void taint_set(json_t *device, const char *key, const char *effect)
{
	json_object_set_new(device, "taints",
			    json_pack("[{s:s, s:s}]", "key", key, "effect", effect));
}

/* The reason that keeps all of a GPU's devices from pods. False: there is none. */
static bool taint_of_gpu(json_t *device, const struct device_gpu *gpu)
{
	if (!gpu->answers)
		taint_set(device, "carve.dev/driver-failed", "NoExecute");
	/* Pods that have slices there go on, and pods that were bound to it wait until it is
	 * resumed. */
	else if (gpu->drained)
		taint_set(device, "carve.dev/drained", "NoSchedule");
	else if (device_mode_problem(gpu))
		taint_set(device, "carve.dev/compute-mode", "NoSchedule");
	/* A pod that the scheduler bound to it never starts: it is evicted, and finds another GPU.
	 */
	else if (gpu->given_away)
		taint_set(device, "carve.dev/given-away",
			  gpu->claimed ? "NoSchedule" : "NoExecute");
	else
		return false;
	return true;
}

void slices_text_take(const char *text, char ret[static SLICES_TEXT_SIZE])
{
	size_t size = 0;

	for (; text[size] && size < SLICES_TEXT_SIZE - 1; size++)
		ret[size] = (char)(text[size] >= ' ' && text[size] <= '~' ? text[size] : '?');
	ret[size] = '\0';
}

static json_t *device_json(const struct device_gpu *gpu, const struct slices_owner *owner)
{
	json_t *attributes = json_pack("{s:{s:s}, s:{s:s}, s:{s:s}, s:{s:i}, s:{s:I}}", "type",
				       "string", "gpu", "uuid", "string", gpu->uuid, "productName",
				       "string", gpu->product, "index", "int", (int)gpu->index,
				       "memoryMiB", "int", (json_int_t)(gpu->total / MIB(1)));
	json_t *device = json_pack("{s:s, s:o, s:b, s:{s:o, s:o}}", "name", gpu->name, "attributes",
				   attributes, "allowMultipleAllocations", 1, "capacity", "memory",
				   memory_json(gpu), "cores", cores_json());

	if (device && owner->replicas)
		json_object_set_new(json_object_get(device, "capacity"), "slices",
				    parts_json(owner->replicas));
	if (device && owner->settings_problem && *owner->settings_problem)
		json_object_set_new(attributes, SLICES_SETTINGS,
				    json_pack("{s:s}", "string", owner->settings_problem));
	if (device && !taint_of_gpu(device, gpu) && !gpu->usable)
		taint_set(device, "carve.dev/no-slices", "NoSchedule");
	return device;
}

/* ---- MIG instances ----------------------------------------------------------------------- */

/* Each memory unit is a counter, so that no two instances overlap; so are the compute slices, and
 * each limit that is smaller than the number of placements. */
static void counter_add(json_t *counters, const char *name, unsigned value)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", value);
	json_object_set_new(counters, name, json_pack("{s:s}", "value", text));
}

static void unit_counters_add(json_t *counters, uint32_t units)
{
	char name[16];

	for (; units; units &= units - 1) {
		snprintf(name, sizeof(name), "unit-%d", __builtin_ctz(units));
		counter_add(counters, name, 1);
	}
}

/* Whether there may be fewer of the profile than there are places; then its counter's name. */
static bool limit_name(const struct device_gpu *gpu, const struct device_profile *profile,
		       char buf[static 32])
{
	snprintf(buf, 32, "profile-%d", (int)(profile - gpu->profile));
	return profile->limit && profile->limit < __builtin_popcount(profile->starts);
}

static uint32_t units_of(const struct device_profile *profile, unsigned start)
{
	return (uint32_t)(((1ull << profile->size) - 1) << start);
}

static json_t *counter_set_json(const struct device_gpu *gpu)
{
	json_t *counters = json_object();
	uint32_t units = 0;
	unsigned slices = 0;
	char name[32];

	for (size_t i = 0; i < gpu->profiles; i++) {
		const struct device_profile *profile = &gpu->profile[i];

		for (uint32_t rest = profile->starts; rest; rest &= rest - 1)
			units |= units_of(profile, (unsigned)__builtin_ctz(rest));
		slices = MAX(slices, profile->slices);
		if (limit_name(gpu, profile, name))
			counter_add(counters, name, profile->limit);
	}
	unit_counters_add(counters, units);
	counter_add(counters, "compute", slices);
	return json_pack("{s:s, s:o}", "name", gpu->name, "counters", counters);
}

static json_t *instance_json(const struct device_gpu *gpu, const struct device_profile *profile,
			     unsigned start, const char *name)
{
	char limit[32], memory[QUANTITY_TEXT_SIZE];
	json_t *counters = json_object();

	unit_counters_add(counters, units_of(profile, start));
	counter_add(counters, "compute", profile->slices);
	if (limit_name(gpu, profile, limit))
		counter_add(counters, limit, 1);
	quantity_format_bytes(profile->memory, memory);
	json_t *device = json_pack(
		"{s:s, s:{s:{s:s}, s:{s:s}, s:{s:s}, s:{s:s}, s:{s:i}, s:{s:i}}, s:{s:{s:s}}, "
		"s:[{s:s, s:o}]}",
		"name", name, "attributes", "type", "string", "mig", "profile", "string",
		profile->name, "parentUUID", "string", gpu->uuid, "productName", "string",
		gpu->product, "index", "int", (int)gpu->index, "start", "int", (int)start,
		"capacity", "memory", "value", memory, "consumesCounters", "counterSet", gpu->name,
		"counters", counters);

	if (!device || taint_of_gpu(device, gpu))
		return device;
	if (gpu->taken & units_of(profile, start))
		taint_set(device, "carve.dev/no-slices", "NoSchedule");
	else if (profile->refused >> start & 1)
		taint_set(device, "carve.dev/place-refused", "NoSchedule");
	return device;
}

static void instances_add(json_t *devices, const struct device_gpu *gpu)
{
	for (size_t i = 0; i < gpu->profiles; i++) {
		const struct device_profile *profile = &gpu->profile[i];

		for (uint32_t rest = profile->starts; rest; rest &= rest - 1) {
			unsigned start = (unsigned)__builtin_ctz(rest);
			char name[DEVICE_NAME_SIZE];

			if (device_instance_name(gpu, profile, start, name))
				json_array_append_new(devices,
						      instance_json(gpu, profile, start, name));
		}
	}
}

/* ---- slices ------------------------------------------------------------------------------ */

static json_t *slice_json(const struct slices_owner *owner, const char *what, size_t number,
			  const char *field, json_t *list)
{
	char name[512], suffix[24] = "";

	if (number)
		snprintf(suffix, sizeof(suffix), "-%zu", number);
	snprintf(name, sizeof(name), "%s-%s-%s%s", owner->node, owner->driver, what, suffix);
	return json_pack("{s:s, s:s, s:{s:s, s:[{s:s, s:s, s:s, s:s}]},"
			 "  s:{s:s, s:s, s:{s:s}, s:o}}",
			 "apiVersion", "resource.k8s.io/v1", "kind", "ResourceSlice", "metadata",
			 "name", name, "ownerReferences", "apiVersion", "v1", "kind", "Node",
			 "name", owner->node, "uid", owner->node_uid, "spec", "driver",
			 owner->driver, "nodeName", owner->node, "pool", "name", owner->node, field,
			 list);
}

/* As many slices as the list takes, `most` entries each. */
static void split_add(json_t *slices, const struct slices_owner *owner, const char *what,
		      const char *field, const json_t *list, size_t most)
{
	for (size_t from = 0; from < json_array_size(list); from += most) {
		json_t *part = json_array();

		for (size_t i = from; i < MIN(from + most, json_array_size(list)); i++)
			json_array_append(part, json_array_get(list, i));
		json_array_append_new(slices, slice_json(owner, what, from / most, field, part));
	}
}

json_t *slices_build(const struct slices_owner *owner, const struct device_gpu *gpus, size_t count)
{
	cleanup_json json_t *instances = json_array(), *counters = json_array();
	json_t *devices = json_array(), *slices = json_array(), *slice;
	size_t i;

	for (i = 0; i < count; i++) {
		json_array_append_new(devices, device_json(&gpus[i], owner));
		if (!gpus[i].profiles)
			continue;
		json_array_append_new(counters, counter_set_json(&gpus[i]));
		instances_add(instances, &gpus[i]);
	}
	json_array_append_new(slices, slice_json(owner, "devices", 0, "devices", devices));
	split_add(slices, owner, "counters", "sharedCounters", counters, SLICES_COUNTERS_MAX);
	split_add(slices, owner, "instances", "devices", instances, SLICES_DEVICES_MAX);
	json_array_foreach(slices, i, slice) json_object_set_new(
		json_object_get(json_object_get(slice, "spec"), "pool"), "resourceSliceCount",
		json_integer((json_int_t)json_array_size(slices)));
	return slices;
}

/* ---- comparing --------------------------------------------------------------------------- */

/* Adds to the path from the inside out. */
static bool differs(char *path, size_t size, const char *key, bool index)
{
	char rest[256];

	snprintf(rest, sizeof(rest), "%s", path);
	snprintf(path, size, index ? "[%s]%s%s" : "%s%s%s", key, *rest && *rest != '[' ? "." : "",
		 rest);
	return false;
}

static bool contain(const json_t *got, const json_t *wanted, char *path, size_t size)
{
	const json_t *value;
	const char *key;
	size_t i;

	if (json_is_string(got) && json_is_string(wanted))
		return !strcmp(json_string_value(got), json_string_value(wanted)) ||
		       quantity_equal(json_string_value(got), json_string_value(wanted));
	if (json_is_object(wanted) && json_is_object(got)) {
		json_object_foreach((json_t *)wanted, key, value)
		{
			if (!contain(json_object_get(got, key), value, path, size))
				return differs(path, size, key, false);
		}
		return true;
	}
	if (!json_is_array(wanted) || !json_is_array(got))
		return got && json_equal(got, wanted);
	json_array_foreach((json_t *)wanted, i, value)
	{
		char number[24];

		snprintf(number, sizeof(number), "%zu", i);
		if (!contain(json_array_get(got, i), value, path, size))
			return differs(path, size, number, true);
	}
	return json_array_size(got) == json_array_size(wanted);
}

bool slices_contain(const json_t *got, const json_t *wanted, char *path, size_t size)
{
	*path = '\0';
	return contain(got, wanted, path, size);
}

/* The API server itself adds fields within lists only, such as a taint's time. */
static bool has_more(const json_t *got, const json_t *wanted)
{
	const json_t *value;
	const char *key;

	json_object_foreach((json_t *)got, key, value)
	{
		const json_t *its = json_object_get(wanted, key);

		if (!its || (json_is_object(value) && has_more(value, its)))
			return true;
	}
	return false;
}

bool slices_have_more(const json_t *got, const json_t *wanted)
{
	const json_t *devices = json_object_get(wanted, "devices"), *device;
	size_t i;

	json_array_foreach(json_object_get(got, "devices"), i, device)
	{
		if (has_more(device, json_array_get(devices, i)))
			return true;
	}
	return false;
}
