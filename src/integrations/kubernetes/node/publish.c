#include "integrations/kubernetes/node/publish.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "client/client.h"
#include "daemon/host/log.h"
#include "integrations/kubernetes/object/slices.h"

#define TIMEOUT_MS 15000L
#define SLICES "/apis/resource.k8s.io/v1/resourceslices"
#define PATH_SIZE 1024

/* A call whose answer has to be 2xx. */
static int call_done(struct publish *publish, const struct api_call *call, json_t **ret,
		     struct error *err)
{
	cleanup_json json_t *answer = NULL;
	long status;
	int rc = api_call(publish->api, call, &status, &answer, err);

	if (rc < 0)
		return rc;
	if (status < 200 || status > 299 || !answer)
		return api_status_error(call, status, answer, err);
	if (ret) {
		*ret = answer;
		answer = NULL;
	}
	return 0;
}

static const char *name_of(const json_t *object)
{
	const char *name =
		json_string_value(json_object_get(json_object_get(object, "metadata"), "name"));

	return name ? name : "";
}

static int node_uid_read(struct publish *publish, struct error *err)
{
	char path[PATH_SIZE];
	struct api_call call = {.method = "GET", .path = path, .timeout_ms = TIMEOUT_MS};
	cleanup_json json_t *node = NULL;

	snprintf(path, sizeof(path), "/api/v1/nodes/%s", publish->node);
	int rc = call_done(publish, &call, &node, err);
	const char *uid =
		json_string_value(json_object_get(json_object_get(node, "metadata"), "uid"));
	if (rc == 0 && (!uid || strlen(uid) >= sizeof(publish->node_uid)))
		rc = error_set(err, EXIT_CODE_FAILED, "node %.200s has no UID", publish->node);
	if (rc == 0)
		snprintf(publish->node_uid, sizeof(publish->node_uid), "%s", uid);
	return rc;
}

static int slices_list(struct publish *publish, json_t **ret, struct error *err)
{
	char path[PATH_SIZE];
	struct api_call call = {.method = "GET", .path = path, .timeout_ms = TIMEOUT_MS};

	snprintf(path, sizeof(path),
		 SLICES "?fieldSelector=spec.nodeName%%3D%s%%2Cspec.driver%%3D%s", publish->node,
		 publish->driver);
	return call_done(publish, &call, ret, err);
}

static json_t *find_by_name(const json_t *items, const char *name)
{
	json_t *item;
	size_t i;

	json_array_foreach((json_t *)items, i, item)
	{
		if (!strcmp(name_of(item), name))
			return item;
	}
	return NULL;
}

static json_t *pool_of(const json_t *slice)
{
	return json_object_get(json_object_get(slice, "spec"), "pool");
}

static int slice_delete(struct publish *publish, const char *name, struct error *err)
{
	char path[PATH_SIZE];
	struct api_call call = {.method = "DELETE", .path = path, .timeout_ms = TIMEOUT_MS};

	snprintf(path, sizeof(path), SLICES "/%s", name);
	return call_done(publish, &call, NULL, err);
}

/* Writes one slice over what is there, if anything, and looks at what the API server made of it. */
static int slice_write(struct publish *publish, json_t *wanted, const json_t *there,
		       struct error *err)
{
	char path[PATH_SIZE] = SLICES, field[256];
	struct api_call call = {.method = there ? "PUT" : "POST",
				.path = path,
				.body = wanted,
				.timeout_ms = TIMEOUT_MS};
	json_t *version = json_object_get(json_object_get(there, "metadata"), "resourceVersion");
	cleanup_json json_t *got = NULL;

	if (there)
		snprintf(path, sizeof(path), SLICES "/%s", name_of(wanted));
	if (version)
		json_object_set(json_object_get(wanted, "metadata"), "resourceVersion", version);
	int rc = call_done(publish, &call, &got, err);
	json_object_del(json_object_get(wanted, "metadata"), "resourceVersion");
	if (rc < 0 || slices_contain(json_object_get(got, "spec"), json_object_get(wanted, "spec"),
				     field, sizeof(field)))
		return rc;
	struct error ignored = {0};
	(void)slice_delete(publish, name_of(wanted), &ignored);
	error_set(err, EXIT_CODE_FAILED, "the API server dropped spec.%.120s of a ResourceSlice",
		  field);
	error_hint(err, "carve needs Kubernetes 1.36 with DRAConsumableCapacity, "
			"DRAPartitionableDevices and DRADeviceTaints on; carve kubernetes check");
	return -EXIT_CODE_FAILED;
}

static const char *owner_of(const json_t *slice)
{
	const json_t *owners =
		json_object_get(json_object_get(slice, "metadata"), "ownerReferences");
	const char *uid = json_string_value(json_object_get(json_array_get(owners, 0), "uid"));

	return uid ? uid : "";
}

/* Whether what is there is what is wanted: nothing more, nothing less, all of one generation. */
static bool is_current(const json_t *items, const json_t *wanted, json_int_t generation)
{
	const json_t *slice;
	char field[256];
	size_t i;

	json_array_foreach((json_t *)wanted, i, slice)
	{
		const json_t *there = find_by_name(items, name_of(slice));

		/* Kubernetes removes those of a node that was deleted and made again. */
		if (!there || strcmp(owner_of(there), owner_of(slice)) != 0 ||
		    json_integer_value(json_object_get(pool_of(there), "generation")) !=
			    generation ||
		    !slices_contain(json_object_get(there, "spec"), json_object_get(slice, "spec"),
				    field, sizeof(field)) ||
		    slices_have_more(json_object_get(there, "spec"),
				     json_object_get(slice, "spec")))
			return false;
	}
	return json_array_size(items) == json_array_size(wanted);
}

static json_int_t newest_generation(const json_t *items)
{
	json_int_t newest = 0;
	const json_t *item;
	size_t i;

	json_array_foreach((json_t *)items, i, item)
	{
		json_int_t its = json_integer_value(json_object_get(pool_of(item), "generation"));

		newest = its > newest ? its : newest;
	}
	return newest;
}

static int slices_write(struct publish *publish, json_t *wanted, const json_t *items,
			struct error *err)
{
	json_int_t generation = newest_generation(items);
	json_t *slice;
	int rc = 0;
	size_t i;

	if (is_current(items, wanted, generation))
		return 0;
	json_array_foreach(wanted, i, slice)
	{
		json_object_set_new(pool_of(slice), "generation", json_integer(generation + 1));
		rc = rc < 0 ? rc
			    : slice_write(publish, slice, find_by_name(items, name_of(slice)), err);
		json_object_del(pool_of(slice), "generation");
	}
	json_array_foreach((json_t *)items, i, slice)
	{
		if (rc == 0 && !find_by_name(wanted, name_of(slice)))
			rc = slice_delete(publish, name_of(slice), err);
	}
	if (rc == 0)
		log_event(LOG_INFO, "slices.published generation=%lld", (long long)generation + 1);
	return rc;
}

int publish_slices(struct publish *publish, const struct device_gpu *gpus, size_t count, bool look,
		   struct error *err)
{
	/* A node that was deleted and made again has another UID. */
	int rc = *publish->node_uid && !look ? 0 : node_uid_read(publish, err);
	cleanup_json json_t *wanted = NULL, *list = NULL;

	if (rc < 0)
		return rc;
	wanted = slices_build(&(struct slices_owner){.driver = publish->driver,
						     .node = publish->node,
						     .node_uid = publish->node_uid,
						     .replicas = publish->replicas,
						     .settings_problem = publish->settings_problem},
			      gpus, count);
	if (!wanted)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	if (!look && publish->published && json_equal(publish->published, wanted))
		return 0;
	json_free(&publish->published);
	publish->published = NULL;
	rc = slices_list(publish, &list, err);
	if (rc == 0)
		rc = slices_write(publish, wanted, json_object_get(list, "items"), err);
	if (rc == 0) {
		publish->published = wanted;
		wanted = NULL;
	}
	return rc;
}
