#include "integrations/kubernetes/claim/claim_pod.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "integrations/kubernetes/api/api.h"
#include "integrations/kubernetes/claim/prepare.h"

#define TIMEOUT_MS 2000L

/* Names of the API server: small letters, digits, '-' and '.'. */
static bool name_valid(const char *name, size_t most)
{
	return name && *name && strlen(name) <= most &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-.") == strlen(name);
}

static const char *text_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

void claim_pod_read(const json_t *claim, char ret[static CLAIM_POD_SIZE])
{
	const json_t *consumers = json_object_get(json_object_get(claim, "status"), "reservedFor"),
		     *consumer;
	const char *namespace = text_of(json_object_get(claim, "metadata"), "namespace");
	size_t i;

	*ret = '\0';
	json_array_foreach((json_t *)consumers, i, consumer)
	{
		const char *resource = text_of(consumer, "resource"),
			   *name = text_of(consumer, "name");

		if (*ret || !resource || strcmp(resource, "pods") != 0 ||
		    !name_valid(namespace, 63) || !name_valid(name, 253))
			continue;
		snprintf(ret, CLAIM_POD_SIZE, "%s/%s", namespace, name);
	}
}

/* The name by which the pod calls the claim: that of a template has a name that the API server made
 * up. NULL: it does not have the claim. */
static const char *pod_name_of_claim(const json_t *pod, const char *claim)
{
	const json_t *spec = json_object_get(json_object_get(pod, "spec"), "resourceClaims"),
		     *status = json_object_get(json_object_get(pod, "status"),
					       "resourceClaimStatuses"),
		     *entry;
	size_t i;

	json_array_foreach((json_t *)spec, i, entry)
	{
		const char *name = text_of(entry, "resourceClaimName");

		if (name && !strcmp(name, claim))
			return text_of(entry, "name");
	}
	json_array_foreach((json_t *)status, i, entry)
	{
		const char *name = text_of(entry, "resourceClaimName");

		if (name && !strcmp(name, claim))
			return text_of(entry, "name");
	}
	return NULL;
}

static bool container_uses(const json_t *container, const char *name)
{
	const json_t *claims = json_object_get(json_object_get(container, "resources"), "claims"),
		     *entry;
	size_t i;

	json_array_foreach((json_t *)claims, i, entry)
	{
		const char *used = text_of(entry, "name");

		if (used && !strcmp(used, name))
			return true;
	}
	return false;
}

const char *claim_pod_container(const json_t *pod, const char *claim)
{
	static const char *const lists[] = {"containers", "initContainers"};
	const char *name = pod_name_of_claim(pod, claim);
	const json_t *entry;
	size_t i;

	for (size_t k = 0; name && k < ARRAY_SIZE(lists); k++) {
		const json_t *list = json_object_get(json_object_get(pod, "spec"), lists[k]);

		json_array_foreach((json_t *)list, i, entry)
		{
			const char *container = text_of(entry, "name");

			if (container_uses(entry, name) && name_valid(container, 63))
				return container;
		}
	}
	return NULL;
}

void claim_pod_find_container(struct prepare *prepare, const char *claim,
			      char pod[static CLAIM_POD_SIZE])
{
	char path[CLAIM_POD_SIZE + 64];
	struct api_call call = {.method = "GET", .path = path, .timeout_ms = TIMEOUT_MS};
	cleanup_json json_t *json = NULL;
	struct error ignored = {0};
	const char *slash = strchr(pod, '/');
	size_t size = strlen(pod);
	long status;

	if (!slash || __atomic_load_n(&prepare->pods_denied, __ATOMIC_RELAXED))
		return;
	snprintf(path, sizeof(path), "/api/v1/namespaces/%.*s/pods/%s", (int)(slash - pod), pod,
		 slash + 1);
	if (api_call(prepare->api, &call, &status, &json, &ignored) < 0)
		return;
	if (status == 403)
		__atomic_store_n(&prepare->pods_denied, true, __ATOMIC_RELAXED);
	const char *container = status == 200 ? claim_pod_container(json, claim) : NULL;
	if (container)
		snprintf(pod + size, CLAIM_POD_SIZE - size, "/%s", container);
}
