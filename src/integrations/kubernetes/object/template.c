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

/* Cuts the text at `mark`, and returns what stands behind it; NULL: there is no mark. */
static char *cut(char *text, const char *mark)
{
	char *at = strstr(text, mark);

	if (!at)
		return NULL;
	*at = '\0';
	return at + strlen(mark);
}

/* Words of products: they stand in an expression. False: some are none. */
static bool words_take(const char *words, char to[static TEMPLATE_NAME_SIZE])
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-.";
	size_t length = words ? strlen(words) : 0;

	snprintf(to, TEMPLATE_NAME_SIZE, "%s", words ? words : "");
	return !words || (length && strspn(words, allowed) == length && *words != '.' &&
			  words[length - 1] != '.' && !strstr(words, ".."));
}

int template_parse(const char *name, struct template_size *ret)
{
	char text[TEMPLATE_NAME_SIZE];
	struct template_size size = {0};
	struct error ignored;
	uint64_t count = 1, memory = 0, cores = 0;
	uint32_t share = 0;
	int rc = -EINVAL;

	if ((size_t)snprintf(text, sizeof(text), "%s", name) >= sizeof(text))
		return -EINVAL;
	const char *avoid = cut(text, ".not."), *use = cut(text, ".use."), *times = cut(text, "-x"),
		   *time = cut(text, "-c");
	if (!words_take(use, size.use) || !words_take(avoid, size.avoid) ||
	    (times && units_parse_count(times, "x", 1, DEVICES_MAX, &count, &ignored) < 0) ||
	    (time && units_parse_count(time, "c", 1, 100, &cores, &ignored) < 0))
		return -EINVAL;
	if (!strncmp(text, FRACTION, strlen(FRACTION)))
		rc = share_parse(text + strlen(FRACTION), &share);
	else if (!strncmp(text, MEMORY, strlen(MEMORY)))
		rc = units_parse_count(text + strlen(MEMORY), "memory", 1, SLICE_BYTES_MAX >> 20,
				       &memory, &ignored);
	if (rc < 0)
		return -EINVAL;
	size.share = share;
	size.memory = memory;
	size.gpu_count = (uint32_t)count;
	size.time_ppm = cores ? (uint32_t)cores * (SHARE_ONE / 100) : share;
	*ret = size;
	return 0;
}

/* Adds to a CEL expression that a device's product has one of the words in its name. */
static void product_add(char *to, size_t room, const char *driver, const char *words, bool not )
{
	size_t used = strlen(to);

	if (*words)
		used += (size_t)snprintf(to + used, room - used, "%s%s(", used ? " && " : "",
					 not ? "!" : "");
	for (const char *at = words; *at; at += strcspn(at, ".") + (at[strcspn(at, ".")] == '.'))
		used += (size_t)snprintf(
			to + used, room - used,
			"%sdevice.attributes['%s'].productName.lowerAscii().replace(' ', "
			"'').contains('%.*s')",
			at == words ? "" : " || ", driver, (int)strcspn(at, "."), at);
	if (*words)
		snprintf(to + used, room - used, ")");
}

/* The expression of a request: `own` ("" for none), and the products of the size. */
static void selectors_set(json_t *request, const char *driver, const struct template_size *size,
			  const char *own)
{
	/* A name has 31 words at most, each of which takes less than 200 bytes. */
	char expression[8192];

	snprintf(expression, sizeof(expression), "%s", own);
	product_add(expression, sizeof(expression), driver, size->use, false);
	product_add(expression, sizeof(expression), driver, size->avoid, true);
	if (request && *expression)
		json_object_set_new(request, "selectors",
				    json_pack("[{s:{s:s}}]", "cel", "expression", expression));
}

/* The request for a part of a GPU; `own` selects the GPUs, "" for any. */
static json_t *request_json(const char *driver, const char *name, uint64_t mib,
			    const struct template_size *size, const char *own)
{
	char memory[32], cores[CLAIM_CORES_SIZE];

	snprintf(memory, sizeof(memory), "%" PRIu64 "Mi", mib);
	claim_cores_format(size->time_ppm, cores);
	json_t *request = json_pack("{s:s, s:s, s:i, s:{s:{s:s}}}", "deviceClassName", driver,
				    "allocationMode", "ExactCount", "count", (int)size->gpu_count,
				    "capacity", "requests", "memory", memory);
	if (request && name)
		json_object_set_new(request, "name", json_string(name));
	if (request && size->time_ppm)
		json_object_set_new(
			json_object_get(json_object_get(request, "capacity"), "requests"), "cores",
			json_string(cores));
	selectors_set(request, driver, size, own);
	return request;
}

/* A share of a GPU of that size: the request for it, for such GPUs only. */
static json_t *alternative_json(const char *driver, const struct template_size *size, uint64_t mib)
{
	char name[32], expression[160];

	snprintf(name, sizeof(name), "m%" PRIu64, mib);
	snprintf(expression, sizeof(expression), "device.attributes['%s'].memoryMiB == %" PRIu64,
		 driver, mib);
	return request_json(driver, name, mib * size->share / SHARE_ONE, size, expression);
}

/* A MIG instance with memory of [mib, mib + 1). Profiles with a `+` take an engine of which there
 * is one, and are for those who name them. */
static json_t *instance_json(const char *driver, const struct template_size *size, uint64_t mib)
{
	char name[32], expression[512];

	snprintf(name, sizeof(name), "mig%" PRIu64, mib);
	snprintf(expression, sizeof(expression),
		 "device.capacity['%s'].memory.compareTo(quantity('%" PRIu64 "Mi')) >= 0 && "
		 "device.capacity['%s'].memory.compareTo(quantity('%" PRIu64 "Mi')) < 0 && "
		 "!device.attributes['%s'].profile.contains('+')",
		 driver, mib, driver, mib + 1, driver);
	json_t *request = json_pack("{s:s, s:s, s:s, s:i}", "name", name, "deviceClassName",
				    TEMPLATE_MIG_CLASS, "allocationMode", "ExactCount", "count", 1);
	selectors_set(request, driver, size, expression);
	return request;
}

/* The share, which wastes nothing, before instances. */
static json_t *memory_json(const char *driver, const struct template_size *size,
			   const struct template_sizes *sizes)
{
	json_t *alternatives = json_array();

	json_array_append_new(alternatives, request_json(driver, "share", size->memory, size, ""));
	for (size_t i = 0; i < sizes->instances; i++)
		if (sizes->instance[i] >= size->memory &&
		    json_array_size(alternatives) < TEMPLATE_SIZES_MAX)
			json_array_append_new(alternatives,
					      instance_json(driver, size, sizes->instance[i]));
	return alternatives;
}

static json_t *requests_json(const char *driver, const struct template_size *size,
			     const struct template_sizes *sizes)
{
	json_t *alternatives;

	/* Instances have no attribute by which two of them are known to be of two GPUs, and they
	 * have the part of the time that they have. */
	if (size->memory && (!sizes->instances || size->gpu_count > 1 || size->time_ppm))
		return json_pack("[{s:s, s:o}]", "name", "gpu", "exactly",
				 request_json(driver, NULL, size->memory, size, ""));
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
