#include "integrations/kubernetes/slices.h"

#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "integrations/kubernetes/quantity.h"

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

static json_t *cores_json(void)
{
	return json_pack("{s:s, s:{s:s, s:{s:s, s:s}}}", "value", "100", "requestPolicy", "default",
			 "0", "validRange", "min", "0", "step", "1");
}

static json_t *device_json(const struct device_gpu *gpu)
{
	json_t *attributes = json_pack("{s:{s:s}, s:{s:s}, s:{s:s}, s:{s:i}, s:{s:I}}", "type",
				       "string", "gpu", "uuid", "string", gpu->uuid, "productName",
				       "string", gpu->product, "index", "int", (int)gpu->index,
				       "memoryMiB", "int", (json_int_t)(gpu->total / MIB(1)));
	json_t *device = json_pack("{s:s, s:o, s:b, s:{s:o, s:o}}", "name", gpu->name, "attributes",
				   attributes, "allowMultipleAllocations", 1, "capacity", "memory",
				   memory_json(gpu), "cores", cores_json());

	if (device && !gpu->answers)
		json_object_set_new(device, "taints",
				    json_pack("[{s:s, s:s}]", "key", "carve.dev/driver-failed",
					      "effect", "NoExecute"));
	else if (device && !gpu->usable)
		json_object_set_new(device, "taints",
				    json_pack("[{s:s, s:s}]", "key", "carve.dev/no-slices",
					      "effect", "NoSchedule"));
	return device;
}

json_t *slices_build(const struct slices_owner *owner, const struct device_gpu *gpus, size_t count)
{
	json_t *devices = json_array();
	char name[512];

	for (size_t i = 0; i < count; i++)
		json_array_append_new(devices, device_json(&gpus[i]));
	snprintf(name, sizeof(name), "%s-%s-devices", owner->node, owner->driver);
	return json_pack("[{s:s, s:s, s:{s:s, s:[{s:s, s:s, s:s, s:s}]},"
			 "  s:{s:s, s:s, s:{s:s, s:i}, s:o}}]",
			 "apiVersion", "resource.k8s.io/v1", "kind", "ResourceSlice", "metadata",
			 "name", name, "ownerReferences", "apiVersion", "v1", "kind", "Node",
			 "name", owner->node, "uid", owner->node_uid, "spec", "driver",
			 owner->driver, "nodeName", owner->node, "pool", "name", owner->node,
			 "resourceSliceCount", 1, "devices", devices);
}

/* ---- comparing --------------------------------------------------------------------------- */

static bool texts_equal(const char *got, const char *wanted)
{
	uint64_t a, b;

	return !strcmp(got, wanted) ||
	       (quantity_parse(got, &a) == 0 && quantity_parse(wanted, &b) == 0 && a == b);
}

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
		return texts_equal(json_string_value(got), json_string_value(wanted));
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
