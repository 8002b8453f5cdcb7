#include "integrations/kubernetes/pod/pod_template.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "core/queue_spec.h"
#include "integrations/kubernetes/object/yaml_json.h"
#include "integrations/kubernetes/pod/pod_fields.h"
#include "integrations/kubernetes/pod/pod_sizes.h"

#define MAX_PODS_MAX 100000

/* Keys of the chart's that a pod has under another name. */
static const struct {
	const char *key, *name;
	bool container;
} renamed[] = {
	{"podSecurityContext", "securityContext", false},
	{"containerSecurityContext", "securityContext", true},
};

/* Texts of a pod's spec that the chart has empty where nothing is meant, and the API server
 * refuses. */
static const char *const empty_unset[] = {"priorityClassName", "runtimeClassName", "schedulerName"};

/* The chart makes a Secret of these; carve makes none. */
#define FILE_MOUNTS "fileMounts"

static int refuse(struct error *err, const char *what, const char *why)
{
	error_set(err, EXIT_CODE_USAGE, "%.80s %s", what, why);
	return -EXIT_CODE_USAGE;
}

/* ---- merging ------------------------------------------------------------------------------ */

static const char *name_of(const json_t *item)
{
	return json_string_value(json_object_get(item, "name"));
}

static void value_merge(json_t *to, const char *key, json_t *value);

/* Lists of named things (containers, env, volumes) are merged by name; other lists are added to. */
static void list_merge(json_t *to, const json_t *from)
{
	size_t i, j;
	json_t *item, *old;

	json_array_foreach(from, i, item)
	{
		json_t *same = NULL;
		const char *name = name_of(item);

		json_array_foreach(to, j, old)
		{
			if (name && name_of(old) && !strcmp(name, name_of(old)))
				same = old;
		}
		const char *key;
		json_t *value;

		if (!same)
			json_array_append_new(to, json_deep_copy(item));
		else
			json_object_foreach(item, key, value) value_merge(same, key, value);
	}
}

/* null takes away. */
static void value_merge(json_t *to, const char *key, json_t *value)
{
	json_t *old = json_object_get(to, key), *inner;
	const char *name;

	if (json_is_null(value))
		json_object_del(to, key);
	else if (json_is_object(old) && json_is_object(value))
		json_object_foreach(value, name, inner) value_merge(old, name, inner);
	else if (json_is_array(old) && json_is_array(value))
		list_merge(old, value);
	else
		json_object_set_new(to, key, json_deep_copy(value));
}

static void object_merge(json_t *to, const json_t *from)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)from, key, value) value_merge(to, key, value);
}

/* ---- an override -------------------------------------------------------------------------- */

static json_t *child(json_t *parent, const char *key)
{
	if (!json_is_object(json_object_get(parent, key)))
		json_object_set_new(parent, key, json_object());
	return json_object_get(parent, key);
}

static json_t *container_of(json_t *pod)
{
	json_t *spec = child(pod, "spec"), *list = json_object_get(spec, "containers");

	if (!json_array_size(list))
		json_object_set_new(spec, "containers", json_pack("[{s:s}]", "name", "main"));
	return json_array_get(json_object_get(spec, "containers"), 0);
}

/* Applies one of the chart's keys that a pod has under another name. False: it is none. */
static bool renamed_apply(json_t *pod, const char *key, json_t *value)
{
	for (size_t i = 0; i < ARRAY_SIZE(renamed); i++)
		if (!strcmp(key, renamed[i].key)) {
			value_merge(renamed[i].container ? container_of(pod) : child(pod, "spec"),
				    renamed[i].name, value);
			return true;
		}
	return false;
}

static int key_refuse(struct error *err, const char *what, const char *key)
{
	char why[128];

	snprintf(why, sizeof(why), "has %.64s, which no pod has", key);
	(void)refuse(err, what, why);
	error_hint(err, "a field newer than Kubernetes " POD_FIELDS_VERSION " goes below spec");
	return -EXIT_CODE_USAGE;
}

/* A templateOverrides of clearml-agent's chart into a pod; `what` names it in a refusal. */
static int override_apply(json_t *pod, const json_t *override, const char *what, struct error *err)
{
	const char *key;
	json_t *value;

	if (json_array_size(json_object_get(override, FILE_MOUNTS)) ||
	    json_object_size(json_object_get(override, FILE_MOUNTS)))
		return refuse(err, what,
			      "has " FILE_MOUNTS
			      ": make a Secret of these files, and mount it by volumes "
			      "and volumeMounts");

	json_object_foreach((json_t *) override, key, value)
	{
		if (!strcmp(key, FILE_MOUNTS) || renamed_apply(pod, key, value))
			continue;
		if (!strcmp(key, "labels") || !strcmp(key, "annotations"))
			value_merge(child(pod, "metadata"), key, value);
		else if (!strcmp(key, "metadata") || !strcmp(key, "spec"))
			object_merge(child(pod, key), value);
		else if (pod_field_of_chart_container(key))
			value_merge(container_of(pod), key, value);
		else if (pod_field_known(key))
			value_merge(child(pod, "spec"), key, value);
		else
			return key_refuse(err, what, key);
	}
	for (size_t i = 0; i < ARRAY_SIZE(empty_unset); i++) {
		json_t *spec = json_object_get(pod, "spec");
		const char *text = json_string_value(json_object_get(spec, empty_unset[i]));

		if (text && !*text)
			json_object_del(spec, empty_unset[i]);
	}
	return 0;
}

/* ---- the file ----------------------------------------------------------------------------- */

/* Texts, as the API server has them; a number among them is a frequent mistake. */
static int texts_check(const json_t *pod, const char *key, struct error *err)
{
	const json_t *object = json_object_get(json_object_get(pod, "metadata"), key);
	const char *name;
	char what[96];
	json_t *value;

	if (object && !json_is_object(object))
		return refuse(err, key, "are no object");
	json_object_foreach((json_t *)object, name, value)
	{
		if (json_is_string(value))
			continue;
		snprintf(what, sizeof(what), "%s: %.60s", key, name);
		return refuse(err, what, "is no text; write it in quotes: \"0.5\"");
	}
	return 0;
}

static int pod_check(const json_t *pod, struct error *err)
{
	const json_t *metadata = json_object_get(pod, "metadata");
	const json_t *spec = json_object_get(pod, "spec"), *list, *item;
	size_t i;

	if ((metadata && !json_is_object(metadata)) || (spec && !json_is_object(spec)))
		return refuse(err, metadata && !json_is_object(metadata) ? "metadata" : "spec",
			      "is no object");
	list = json_object_get(spec, "containers");
	if (list && !json_array_size(list))
		return refuse(err, "spec.containers", "is no list of containers");
	json_array_foreach(list, i, item)
	{
		if (!json_is_object(item) || !name_of(item))
			return refuse(err, "spec.containers", "has a container without a name");
	}
	char wrong[POD_FIELDS_WRONG_SIZE];
	if (pod_fields_wrong(pod, wrong))
		return error_set(err, EXIT_CODE_USAGE, "%s", wrong);
	int rc = texts_check(pod, "labels", err);
	if (rc == 0)
		rc = texts_check(pod, "annotations", err);
	return rc < 0 ? rc : pod_sizes_check(metadata, err);
}

/* Keys of the values that carve reads: a key that is one letter off is a mistake, and no key of a
 * newer chart. */
static const char *const keys_read[] = {"agentk8sglue",     "basePodTemplate",
					"queues",           "defaultContainerImage",
					"imageCredentials", "nodeSelector"};
/* The other keys that clearml-agent's chart has where carve reads these. */
static const char *const keys_of_chart[] = {"global",
					    "clearml",
					    "sessions",
					    "image",
					    "replicaCount",
					    "resources",
					    "initContainers",
					    "serviceAccountAnnotations",
					    "serviceExistingAccountName",
					    "clearmlcheckCertificate",
					    "apiServerUrlReference",
					    "fileServerUrlReference",
					    "webServerUrlReference",
					    "queue",
					    "createQueueIfNotExists",
					    "createQueues",
					    "labels",
					    "annotations",
					    "extraEnvs",
					    "podSecurityContext",
					    "containerSecurityContext",
					    "securityContext",
					    "additionalClusterRoleBindings",
					    "additionalRoleBindings",
					    "tolerations",
					    "affinity",
					    "volumes",
					    "volumeMounts",
					    "fileMounts",
					    "containerCustomBashScript",
					    "customBashScript",
					    "debugMode",
					    "taskAsJob",
					    "maxPods"};
static const char *const keys_of_queue[] = {"templateOverrides", "podTemplate", "queueSettings"};
static const char *const keys_of_settings[] = {"maxPods", "customWorkerIdTemplate", "multiNode",
					       "defaultImage", "useImageEntrypoint"};

static bool is_among(const char *key, const char *const *keys, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(key, keys[i]))
			return true;
	return false;
}

/* Whether a letter is missing, too many, another one or swapped with its neighbour; case does not
 * count. */
static bool is_near(const char *typed, const char *key)
{
	size_t length = strlen(typed), wanted = strlen(key), same = 0, tail = 0;

	while (same < length && same < wanted && !strncasecmp(typed + same, key + same, 1))
		same++;
	while (tail < length - same && tail < wanted - same &&
	       !strncasecmp(typed + length - tail - 1, key + wanted - tail - 1, 1))
		tail++;
	size_t left = length - same - tail, missing = wanted - same - tail;

	return (left <= 1 && missing <= 1) ||
	       (left == 2 && missing == 2 && !strncasecmp(typed + same, key + same + 1, 1) &&
		!strncasecmp(typed + same + 1, key + same, 1));
}

static int unknown_refuse(const char *where, const char *key, const char *right, struct error *err)
{
	return error_set(err, EXIT_CODE_USAGE, "%s%s%.64s is unknown: %s", where, *where ? "." : "",
			 key, right);
}

/* Below agentk8sglue a newer chart may have keys that are not known here: only what is nearly a key
 * that carve reads is refused there. */
static int keys_check(const json_t *values, const char *where, bool of_chart, struct error *err)
{
	const char *key;
	char right[80];
	json_t *value;

	json_object_foreach((json_t *)values, key, value)
	{
		if (is_among(key, keys_read, ARRAY_SIZE(keys_read)) ||
		    is_among(key, keys_of_chart, ARRAY_SIZE(keys_of_chart)))
			continue;
		for (size_t i = 0; i < ARRAY_SIZE(keys_read); i++)
			if (is_near(key, keys_read[i])) {
				snprintf(right, sizeof(right), "did you mean %s?", keys_read[i]);
				return unknown_refuse(where, key, right, err);
			}
		if (!of_chart)
			return unknown_refuse(where, key, "values have basePodTemplate and queues",
					      err);
	}
	return 0;
}

static int queue_keys_check(const char *name, const json_t *queue, struct error *err)
{
	const json_t *settings = json_object_get(queue, "queueSettings");
	char where[QUEUE_NAME_SIZE + 40];
	const char *key;
	json_t *value;

	snprintf(where, sizeof(where), "queues.%s", name);
	json_object_foreach((json_t *)queue, key, value)
	{
		if (!is_among(key, keys_of_queue, ARRAY_SIZE(keys_of_queue)))
			return unknown_refuse(
				where, key, "a queue has templateOverrides and queueSettings", err);
	}
	snprintf(where, sizeof(where), "queues.%s.queueSettings", name);
	if (settings && !json_is_object(settings) && !json_is_null(settings))
		return refuse(err, where, "is no object");
	json_object_foreach((json_t *)settings, key, value)
	{
		if (!is_among(key, keys_of_settings, ARRAY_SIZE(keys_of_settings)))
			return unknown_refuse(where, key, "carve reads maxPods there", err);
	}
	return 0;
}

static int queue_take(json_t *to, const json_t *base, const char *name, const json_t *queue,
		      struct error *err)
{
	const json_t *override = json_object_get(queue, "templateOverrides");
	const json_t *max = json_object_get(json_object_get(queue, "queueSettings"), "maxPods");
	char what[QUEUE_NAME_SIZE + 40];
	int rc = queue_name_check(name, err);

	if (rc < 0)
		return rc;
	if (!override)
		override = json_object_get(queue, "podTemplate");
	snprintf(what, sizeof(what), "queues.%s.templateOverrides", name);
	if (!json_is_object(queue) || (override && !json_is_object(override)))
		return refuse(err, what, "is no object");
	rc = queue_keys_check(name, queue, err);
	if (rc < 0)
		return rc;
	snprintf(what, sizeof(what), "queues.%s.queueSettings.maxPods", name);
	if (max && (!json_is_integer(max) || json_integer_value(max) < 1 ||
		    json_integer_value(max) > MAX_PODS_MAX))
		return refuse(err, what, "is no number from 1 on");
	json_t *pod = json_deep_copy(base), *entry = json_pack("{s:o}", "pod", pod);
	snprintf(what, sizeof(what), "queues.%s.templateOverrides", name);
	rc = override_apply(pod, override, what, err);
	if (max)
		json_object_set(entry, "max_pods", (json_t *)max);
	json_object_set_new(to, name, entry);
	return rc < 0 ? rc : pod_check(pod, err);
}

/* The image of a pod whose template names none. */
static int image_apply(json_t *pod, const json_t *file, struct error *err)
{
	json_t *image = json_object_get(file, "defaultContainerImage");

	if (!image || json_is_null(image))
		return 0;
	if (!json_is_string(image))
		return refuse(err, "defaultContainerImage", "is no text");
	json_t *container = container_of(pod);
	if (*json_string_value(image) && json_is_object(container) &&
	    !json_object_get(container, "image"))
		json_object_set(container, "image", image);
	return 0;
}

/* The chart's own secret for images, beside agentk8sglue. */
static int credentials_apply(json_t *pod, const json_t *values, struct error *err)
{
	const json_t *credentials = json_object_get(values, "imageCredentials");
	json_t *secret = json_object_get(credentials, "existingSecret");
	json_t *spec = child(pod, "spec");

	if (!json_is_true(json_object_get(credentials, "enabled")) ||
	    json_object_get(spec, "imagePullSecrets"))
		return 0;
	if (!json_is_string(secret) || !*json_string_value(secret))
		return refuse(
			err, "imageCredentials",
			"has no existingSecret: carve makes no Secret, so make one and name it");
	json_object_set_new(spec, "imagePullSecrets", json_pack("[{s:O}]", "name", secret));
	return 0;
}

/* `values`: all of the file; `file`: its part that is about agents and their pods. */
static int values_take(json_t *to, const json_t *values, const json_t *file, struct error *err)
{
	json_t *base = json_object_get(to, "pod"), *queues = json_object_get(to, "queues"), *queue;
	const json_t *named = json_object_get(file, "queues");
	const json_t *of_base = json_object_get(file, "basePodTemplate");
	const char *name;

	int rc = keys_check(file, values == file ? "" : "agentk8sglue", values != file, err);
	if (rc == 0 && values != file)
		rc = keys_check(values, "", true, err);
	if (rc < 0)
		return rc;
	if (of_base && !json_is_object(of_base))
		return refuse(err, "basePodTemplate", "is no object");
	if (named && !json_is_object(named))
		return refuse(err, "queues", "is no object");
	/* ClearML's documentation selects the nodes of jobs beside basePodTemplate, too. */
	const json_t *nodes = json_object_get(file, "nodeSelector");
	if (nodes && !json_is_object(nodes))
		return refuse(err, "nodeSelector", "is no object");
	if (nodes && !json_object_get(of_base, "nodeSelector"))
		value_merge(child(base, "spec"), "nodeSelector", (json_t *)nodes);
	rc = override_apply(base, of_base, "basePodTemplate", err);
	if (rc == 0)
		rc = pod_check(base, err);
	if (rc == 0)
		rc = image_apply(base, file, err);
	if (rc == 0)
		rc = credentials_apply(base, values, err);
	json_object_foreach((json_t *)named, name, queue)
	{
		if (rc == 0)
			rc = queue_take(queues, base, name, queue, err);
	}
	return rc;
}

static int pod_take(json_t *to, const json_t *file, struct error *err)
{
	static const char *const known[] = {"apiVersion", "kind", "metadata", "spec", "status"};
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)file, key, value)
	{
		bool found = false;

		for (size_t i = 0; i < ARRAY_SIZE(known); i++)
			found |= !strcmp(key, known[i]);
		if (!found)
			return refuse(err, key,
				      "is unknown: a pod has metadata and spec, values have "
				      "basePodTemplate and queues");
	}
	if (json_object_get(file, "kind") && !json_object_get(file, "spec"))
		return refuse(err, "spec", "is missing: a pod has its containers there");
	json_t *pod = json_object_get(to, "pod");
	for (size_t i = 2; i < 4; i++)
		if (json_object_get(file, known[i]))
			json_object_set_new(pod, known[i],
					    json_deep_copy(json_object_get(file, known[i])));
	return pod_check(pod, err);
}

int pod_template_parse(const json_t *file, json_t **ret, struct error *err)
{
	const json_t *glue = json_object_get(file, "agentk8sglue");
	const json_t *inner = json_object_get(file, "template");
	const json_t *from = json_is_object(glue) ? glue : json_is_object(inner) ? inner : file;
	const json_t *said = json_object_get(file, "kind");
	const char *kind = said && !json_is_string(said) ? "?" : json_string_value(said);

	*ret = NULL;
	/* The pods of others, such as a Deployment's, are not where a pod has its containers. */
	if (kind && strcmp(kind, "Pod") != 0 && strcmp(kind, "PodTemplate") != 0)
		return refuse(err, "kind", "is neither Pod nor PodTemplate");
	json_t *to = json_pack("{s:{}, s:{}}", "pod", "queues");

	bool values = json_is_object(glue) || json_object_get(from, "queues") ||
		      json_object_get(from, "basePodTemplate");
	int rc = !json_is_object(from) ? refuse(err, "it", "is no object")
		 : values              ? values_take(to, file, from, err)
				       : pod_take(to, from, err);
	if (rc < 0)
		json_decref(to);
	else
		*ret = to;
	return rc;
}

static ssize_t all_read(const char *path, char *buf, size_t size)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t used = 0;
	ssize_t n = fd < 0 ? -1 : 1;

	while (n > 0 && used < size && (n = read(fd, buf + used, size - used)) > 0)
		used += (size_t)n;
	return n < 0 ? -errno : (ssize_t)used;
}

int pod_template_read(const char *path, json_t **ret, struct error *err)
{
	cleanup_free char *text = malloc(YAML_SIZE_MAX + 1);
	ssize_t n = text ? all_read(path, text, YAML_SIZE_MAX + 1) : -ENOMEM;
	struct error inner = {0};
	json_t *file = NULL;

	*ret = NULL;
	// NOLINTNEXTLINE(clang-analyzer-unix.Malloc): freed by its cleanup
	int rc = n < 0 ? error_set(&inner, EXIT_CODE_USAGE, "%s", strerrordesc_np((int)-n))
		       : yaml_json_load(text, (size_t)n, &file, &inner);
	if (rc == 0)
		rc = pod_template_parse(file, ret, &inner);
	json_decref(file);
	if (rc == 0)
		return 0;
	error_set(err, EXIT_CODE_USAGE, "--pod-template %.120s: %.200s", path, inner.message);
	error_hint(err, "%s",
		   *inner.hint ? inner.hint
			       : "a pod as `kubectl create --dry-run=client -o yaml` prints it");
	return -EXIT_CODE_USAGE;
}

const json_t *pod_template_of(const json_t *template, const char *queue)
{
	const json_t *entry =
		json_object_get(json_object_get(template, "queues"), queue ? queue : "");
	const json_t *pod = json_object_get(entry, "pod");

	return pod ? pod : json_object_get(template, "pod");
}
