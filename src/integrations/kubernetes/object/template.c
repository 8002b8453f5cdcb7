#include "integrations/kubernetes/object/template.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"

#define FRACTION "carve-fraction-"
#define MEMORY "carve-memory-"
#define DEVICES_MAX 32

static int share_parse(const char *text, uint32_t *ret)
{
	uint32_t whole;
	struct error ignored;

	return units_parse_gpu(text, ret, &whole, &ignored) < 0 || whole > 1 ? -EINVAL : 0;
}

int template_parse(const char *name, struct template_size *ret)
{
	char text[TEMPLATE_NAME_SIZE];
	struct error ignored;
	uint64_t count = 1, memory = 0;
	uint32_t share = 0;
	int rc = -EINVAL;

	if ((size_t)snprintf(text, sizeof(text), "%s", name) >= sizeof(text))
		return -EINVAL;
	char *times = strstr(text, "-x");
	if (times && units_parse_count(times + 2, "x", 1, DEVICES_MAX, &count, &ignored) < 0)
		return -EINVAL;
	if (times)
		*times = '\0';
	if (!strncmp(text, FRACTION, strlen(FRACTION)))
		rc = share_parse(text + strlen(FRACTION), &share);
	else if (!strncmp(text, MEMORY, strlen(MEMORY)))
		rc = units_parse_count(text + strlen(MEMORY), "memory", 1, SLICE_BYTES_MAX >> 20,
				       &memory, &ignored);
	if (rc < 0)
		return -EINVAL;
	*ret = (struct template_size){
		.share = share, .memory = memory, .gpu_count = (uint32_t)count};
	return 0;
}

/* The part that every request has, whichever GPU it gets. */
static json_t *request_json(const char *driver, const char *name, uint64_t mib, uint32_t share,
			    uint32_t count)
{
	char memory[32], cores[CLAIM_CORES_SIZE];

	snprintf(memory, sizeof(memory), "%" PRIu64 "Mi", mib);
	claim_cores_format(share, cores);
	json_t *request = json_pack("{s:s, s:s, s:i, s:{s:{s:s}}}", "deviceClassName", driver,
				    "allocationMode", "ExactCount", "count", (int)count, "capacity",
				    "requests", "memory", memory);
	if (request && name)
		json_object_set_new(request, "name", json_string(name));
	if (request && share)
		json_object_set_new(
			json_object_get(json_object_get(request, "capacity"), "requests"), "cores",
			json_string(cores));
	return request;
}

/* A share of a GPU of that size: the request for it, for such GPUs only. */
static json_t *alternative_json(const char *driver, const struct template_size *size, uint64_t mib)
{
	char name[32], expression[160];

	snprintf(name, sizeof(name), "m%" PRIu64, mib);
	snprintf(expression, sizeof(expression), "device.attributes['%s'].memoryMiB == %" PRIu64,
		 driver, mib);
	json_t *request = request_json(driver, name, mib * size->share / SHARE_ONE, size->share,
				       size->gpu_count);
	if (request)
		json_object_set_new(request, "selectors",
				    json_pack("[{s:{s:s}}]", "cel", "expression", expression));
	return request;
}

/* A MIG instance with memory of [mib, mib + 1). Profiles with a `+` take an engine of which there
 * is one, and are for those who name them. */
static json_t *instance_json(const char *driver, uint64_t mib)
{
	char name[32], expression[512];

	snprintf(name, sizeof(name), "mig%" PRIu64, mib);
	snprintf(expression, sizeof(expression),
		 "device.capacity['%s'].memory.compareTo(quantity('%" PRIu64 "Mi')) >= 0 && "
		 "device.capacity['%s'].memory.compareTo(quantity('%" PRIu64 "Mi')) < 0 && "
		 "!device.attributes['%s'].profile.contains('+')",
		 driver, mib, driver, mib + 1, driver);
	return json_pack("{s:s, s:s, s:s, s:i, s:[{s:{s:s}}]}", "name", name, "deviceClassName",
			 TEMPLATE_MIG_CLASS, "allocationMode", "ExactCount", "count", 1,
			 "selectors", "cel", "expression", expression);
}

/* The share, which wastes nothing, before instances. */
static json_t *memory_json(const char *driver, const struct template_size *size,
			   const struct template_sizes *sizes)
{
	json_t *alternatives = json_array();

	json_array_append_new(alternatives,
			      request_json(driver, "share", size->memory, 0, size->gpu_count));
	for (size_t i = 0; i < sizes->instances; i++)
		if (sizes->instance[i] >= size->memory &&
		    json_array_size(alternatives) < TEMPLATE_SIZES_MAX)
			json_array_append_new(alternatives,
					      instance_json(driver, sizes->instance[i]));
	return alternatives;
}

static json_t *requests_json(const char *driver, const struct template_size *size,
			     const struct template_sizes *sizes)
{
	json_t *alternatives;

	/* Instances have no attribute by which two of them are known to be of two GPUs. */
	if (size->memory && (!sizes->instances || size->gpu_count > 1))
		return json_pack("[{s:s, s:o}]", "name", "gpu", "exactly",
				 request_json(driver, NULL, size->memory, 0, size->gpu_count));
	alternatives = size->memory ? memory_json(driver, size, sizes) : json_array();
	for (size_t i = 0; !size->memory && i < sizes->gpus; i++)
		json_array_append_new(alternatives, alternative_json(driver, size, sizes->gpu[i]));
	return json_pack("[{s:s, s:o}]", "name", "gpu", "firstAvailable", alternatives);
}

json_t *template_build(const char *driver, const char *namespace, const char *name,
		       const struct template_size *size, const struct template_sizes *sizes)
{
	char attribute[96];
	json_t *devices;

	if (!size->memory && !sizes->gpus)
		return NULL;
	devices = json_pack("{s:o}", "requests", requests_json(driver, size, sizes));
	/* Shares of one device could be given twice to one request. */
	snprintf(attribute, sizeof(attribute), "%s/uuid", driver);
	if (devices && size->gpu_count > 1)
		json_object_set_new(devices, "constraints",
				    json_pack("[{s:s, s:[s]}]", "distinctAttribute", attribute,
					      "requests", "gpu"));
	return json_pack("{s:s, s:s, s:{s:s, s:s, s:{s:s}}, s:{s:{s:{s:s}}, s:{s:o}}}",
			 "apiVersion", "resource.k8s.io/v1", "kind", "ResourceClaimTemplate",
			 "metadata", "name", name, "namespace", namespace, "labels",
			 TEMPLATE_OWNER_LABEL, TEMPLATE_OWNER, "spec", "metadata", "annotations",
			 TEMPLATE_LABEL, name, "spec", "devices", devices);
}

bool template_key(const json_t *object, const char *name, char ret[static TEMPLATE_KEY_SIZE])
{
	const char *namespace = json_string_value(
		json_object_get(json_object_get(object, "metadata"), "namespace"));
	struct template_size ignored;

	if (!namespace || !name || !claim_label_valid(namespace) ||
	    template_parse(name, &ignored) < 0)
		return false;
	snprintf(ret, TEMPLATE_KEY_SIZE, "%s/%s", namespace, name);
	return true;
}

bool template_is_ours(const json_t *template)
{
	const json_t *labels = json_object_get(json_object_get(template, "metadata"), "labels");
	const char *owner = json_string_value(json_object_get(labels, TEMPLATE_OWNER_LABEL));

	return owner && !strcmp(owner, TEMPLATE_OWNER);
}
