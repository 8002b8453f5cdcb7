#include "integrations/kubernetes/claim/checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CHECKPOINT_VERSION 1
/* Millionths of a GPU's time in a per cent of "cores", which were whole per cents before. */
#define CORES_PPM 10000.0

static json_t *device_json(const struct claim_device *device)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:I, s:f}", "request", device->request, "pool",
			 device->pool, "device", device->name, "share", device->share,
			 "memory_bytes", (json_int_t)device->memory, "cores",
			 device->share_ppm / CORES_PPM);
}

json_t *checkpoint_claim_json(const struct stored_claim *stored)
{
	json_t *devices = json_array(), *slices = json_array();

	for (size_t i = 0; i < stored->claim.count; i++)
		json_array_append_new(devices, device_json(&stored->claim.device[i]));
	for (size_t i = 0; i < stored->slices; i++)
		json_array_append_new(slices, json_pack("{s:s, s:I, s:I}", "session",
							stored->slice[i].session, "first",
							(json_int_t)stored->slice[i].first, "end",
							(json_int_t)stored->slice[i].end));
	return json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:o, s:o}", "version", CHECKPOINT_VERSION,
			 "state", stored->state == STORED_PREPARED ? "prepared" : "preparing",
			 "namespace", stored->namespace, "name", stored->name, "pod", stored->pod,
			 "uid", stored->claim.uid, "devices", devices, "slices", slices);
}

static bool text_read(const json_t *object, const char *key, char *to, size_t size)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text && (size_t)snprintf(to, size, "%s", text) < size;
}

static bool device_read(const json_t *json, struct claim_device *to)
{
	json_int_t memory = json_integer_value(json_object_get(json, "memory_bytes"));
	double cores = json_number_value(json_object_get(json, "cores"));

	to->memory = (uint64_t)memory;
	to->share_ppm = cores >= 0 && cores <= 100 ? (uint32_t)(cores * CORES_PPM + 0.5) : 0;
	return text_read(json, "request", to->request, sizeof(to->request)) &&
	       text_read(json, "pool", to->pool, sizeof(to->pool)) &&
	       text_read(json, "device", to->name, sizeof(to->name)) &&
	       text_read(json, "share", to->share, sizeof(to->share)) &&
	       claim_label_valid(to->request) && claim_label_valid(to->name) && memory >= 0 &&
	       cores >= 0 && cores <= 100;
}

static bool slice_read(const json_t *json, size_t devices, struct stored_slice *to)
{
	json_int_t first = json_integer_value(json_object_get(json, "first"));
	json_int_t end = json_integer_value(json_object_get(json, "end"));

	to->first = (size_t)first;
	to->end = (size_t)end;
	return text_read(json, "session", to->session, sizeof(to->session)) &&
	       claim_label_valid(to->session) && first >= 0 && end > first &&
	       (size_t)end <= devices;
}

int checkpoint_claim_parse(const json_t *json, struct stored_claim *ret)
{
	const json_t *devices = json_object_get(json, "devices"),
		     *slices = json_object_get(json, "slices"), *entry;
	char state[16];
	size_t i;

	if (json_integer_value(json_object_get(json, "version")) != CHECKPOINT_VERSION ||
	    !text_read(json, "state", state, sizeof(state)) ||
	    !text_read(json, "namespace", ret->namespace, sizeof(ret->namespace)) ||
	    !text_read(json, "name", ret->name, sizeof(ret->name)) ||
	    !text_read(json, "uid", ret->claim.uid, sizeof(ret->claim.uid)) ||
	    !claim_label_valid(ret->claim.uid) || json_array_size(devices) > CLAIM_DEVICES_MAX ||
	    json_array_size(slices) > CLAIM_DEVICES_MAX)
		return -EINVAL;
	/* Versions before this one did not write it. */
	if (!text_read(json, "pod", ret->pod, sizeof(ret->pod)))
		*ret->pod = '\0';
	ret->state = !strcmp(state, "prepared") ? STORED_PREPARED : STORED_PREPARING;
	ret->claim.count = json_array_size(devices);
	ret->slices = json_array_size(slices);
	json_array_foreach((json_t *)devices, i, entry)
	{
		if (!device_read(entry, &ret->claim.device[i]))
			return -EINVAL;
	}
	json_array_foreach((json_t *)slices, i, entry)
	{
		if (!slice_read(entry, ret->claim.count, &ret->slice[i]))
			return -EINVAL;
	}
	return 0;
}
