#include "integrations/kubernetes/object/claim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"
#include "integrations/kubernetes/object/quantity.h"
#include "integrations/kubernetes/object/template.h"

/* A millionth of a GPU is a ten-thousandth of a per cent. */
#define CORES_DECIMALS 4
#define CORES_UNIT (SHARE_ONE / 100)

const char *claim_cores_format(uint32_t share_ppm, char ret[static CLAIM_CORES_SIZE])
{
	int length = snprintf(ret, CLAIM_CORES_SIZE, "%u.%0*u", share_ppm / CORES_UNIT,
			      CORES_DECIMALS, share_ppm % CORES_UNIT);

	while (ret[length - 1] == '0')
		ret[--length] = '\0';
	if (ret[length - 1] == '.')
		ret[--length] = '\0';
	return ret;
}

bool claim_label_valid(const char *text)
{
	static const char allowed[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-";
	size_t length = strlen(text);

	return length > 0 && length < CLAIM_LABEL_SIZE && strspn(text, allowed) == length;
}

/* A text of the object into a field of `size`. 0, or negative where it is missing or too long. */
static int text_take(const json_t *object, const char *key, char *to, size_t size)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text && (size_t)snprintf(to, size, "%s", text) < size ? 0 : -EINVAL;
}

static int label_take(const json_t *object, const char *key, char to[static CLAIM_LABEL_SIZE])
{
	int rc = text_take(object, key, to, CLAIM_LABEL_SIZE);

	return rc == 0 && claim_label_valid(to) ? 0 : -EINVAL;
}

/* "gpu/h100-80gb" is the request "gpu", of which that alternative was chosen. */
static int request_take(const json_t *result, char to[static CLAIM_LABEL_SIZE])
{
	char text[2 * CLAIM_LABEL_SIZE];
	int rc = text_take(result, "request", text, sizeof(text));

	if (rc < 0)
		return rc;
	text[strcspn(text, "/")] = '\0';
	if (!claim_label_valid(text))
		return -EINVAL;
	snprintf(to, CLAIM_LABEL_SIZE, "%s", text);
	return 0;
}

static int capacity_take(const json_t *result, const char *name, int decimals, uint64_t *ret)
{
	const json_t *value = json_object_get(json_object_get(result, "consumedCapacity"), name);

	*ret = 0;
	if (!value || json_is_null(value))
		return 0;
	return json_is_string(value)
		       ? quantity_parse_scaled(json_string_value(value), decimals, ret)
		       : -EINVAL;
}

static int device_take(const json_t *result, struct claim_device *to, struct error *err)
{
	uint64_t share;

	if (request_take(result, to->request) < 0 ||
	    text_take(result, "pool", to->pool, sizeof(to->pool)) < 0 ||
	    label_take(result, "device", to->name) < 0)
		return error_set(err, EXIT_CODE_FAILED,
				 "the claim's allocation names no request, pool or device");
	to->share[0] = '\0';
	if (json_object_get(result, "shareID") && label_take(result, "shareID", to->share) < 0)
		return error_set(err, EXIT_CODE_FAILED, "the claim's allocation has a bad shareID");
	if (capacity_take(result, "memory", 0, &to->memory) < 0 ||
	    capacity_take(result, "cores", CORES_DECIMALS, &share) < 0 || share > SHARE_ONE)
		return error_set(err, EXIT_CODE_FAILED,
				 "the claim's consumedCapacity for device %s makes no sense",
				 to->name);
	to->share_ppm = (uint32_t)share;
	return 0;
}

static int compare(const void *a, const void *b)
{
	const struct claim_device *x = a, *y = b;
	int order = strcmp(x->request, y->request);

	return order ? order : strcmp(x->name, y->name);
}

/* A claim for a size that a pod names is made of a template. A template of that name that somebody
 * else made has any size. Kubernetes names the pod's entry in the claim, and copies the template's
 * annotations to it. */
static int template_check(const json_t *json, struct error *err)
{
	const json_t *metadata = json_object_get(json, "metadata");
	const json_t *annotations = json_object_get(metadata, "annotations");
	const char *entry = json_string_value(
		json_object_get(annotations, "resource.kubernetes.io/pod-claim-name"));

	if (!entry || strcmp(entry, TEMPLATE_ENTRY) != 0 ||
	    json_is_string(json_object_get(annotations, TEMPLATE_LABEL)))
		return 0;
	error_set(err, EXIT_CODE_FAILED,
		  "the claim's size is that of a template that carve did not make");
	error_hint(err, "delete the template that the pod's claim " TEMPLATE_ENTRY
			" names, and make the pod again");
	return -EXIT_CODE_FAILED;
}

int claim_parse(const json_t *json, const char *driver, struct claim *ret, struct error *err)
{
	const json_t *allocation = json_object_get(json_object_get(json, "status"), "allocation");
	const json_t *results = json_object_get(json_object_get(allocation, "devices"), "results"),
		     *result;
	size_t i;

	ret->count = 0;
	if (label_take(json_object_get(json, "metadata"), "uid", ret->uid) < 0)
		return error_set(err, EXIT_CODE_FAILED,
				 "the API server sent something that is no claim");
	if (!json_is_object(allocation))
		return error_set(err, EXIT_CODE_FAILED, "the claim is not allocated");
	int rc = template_check(json, err);
	if (rc < 0)
		return rc;
	json_array_foreach((json_t *)results, i, result)
	{
		const char *its = json_string_value(json_object_get(result, "driver"));

		if (!its || strcmp(its, driver) != 0)
			continue;
		if (ret->count == CLAIM_DEVICES_MAX)
			return error_set(err, EXIT_CODE_FAILED, "the claim has over %d devices",
					 CLAIM_DEVICES_MAX);
		rc = device_take(result, &ret->device[ret->count], err);
		if (rc < 0)
			return rc;
		ret->count++;
	}
	if (!ret->count)
		return error_set(err, EXIT_CODE_FAILED, "the claim has no device of %s", driver);
	qsort(ret->device, ret->count, sizeof(ret->device[0]), compare);
	return 0;
}

int claim_slice_end(const struct claim *claim, size_t first, size_t *ret_end, struct error *err)
{
	const struct claim_device *device = claim->device;
	size_t end = first + 1;

	for (; end < claim->count && !strcmp(device[end].request, device[first].request); end++) {
		if (device[end].memory != device[first].memory ||
		    device[end].share_ppm != device[first].share_ppm)
			return error_set(err, EXIT_CODE_FAILED,
					 "request %s has devices of different sizes",
					 device[first].request);
		if (!strcmp(device[end].name, device[end - 1].name))
			return error_set(err, EXIT_CODE_FAILED, "request %s has device %s twice",
					 device[first].request, device[end].name);
	}
	*ret_end = end;
	return 0;
}
