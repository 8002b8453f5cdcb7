#include "integrations/kubernetes/pod/run_pod.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "integrations/kubernetes/pod/run.h"

#define DEVICES_MAX 32
/* The digits behind the point that the admission policies take. */
#define FRACTION_DIGITS 6

/* The object at a key, made where there is none. */
static json_t *object_at(json_t *parent, const char *key)
{
	json_t *child = json_object_get(parent, key);

	if (!json_is_object(child)) {
		child = json_object();
		json_object_set_new(parent, key, child);
	}
	return child;
}

/* Takes the sizes out that the template names in any spelling: the policies refuse two in one pod.
 */
static void sizes_remove(json_t *metadata, json_t *spec)
{
	static const char *const annotations[] = {"gpu-fraction", "gpu-memory",
						  "gpu-fraction-num-devices"};
	static const char *const resources[] = {"clear.ml/fraction-1", "nvidia.com/gpu"};
	static const char *const kinds[] = {"limits", "requests"};
	json_t *container;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(annotations); i++)
		json_object_del(json_object_get(metadata, "annotations"), annotations[i]);
	json_object_del(json_object_get(metadata, "labels"), "clearml-injector/fraction");
	json_array_foreach(json_object_get(spec, "containers"), i, container)
	{
		json_t *its = json_object_get(container, "resources");

		for (size_t k = 0; k < ARRAY_SIZE(kinds); k++)
			for (size_t r = 0; r < ARRAY_SIZE(resources); r++)
				json_object_del(json_object_get(its, kinds[k]), resources[r]);
	}
}

/* A fraction, or a number of whole GPUs, as the annotations that the policies know. */
static int size_set(json_t *annotations, const char *text, struct error *err)
{
	char *end, number[16];
	double size = strtod(text, &end);
	bool plain = *text && strspn(text, "0123456789.") == strlen(text) && !*end;
	const char *point = strchr(text, '.');

	if (plain && size >= 0.001 && size < 1 && strlen(point) <= 1 + FRACTION_DIGITS) {
		json_object_set_new(annotations, "gpu-fraction", json_string(text));
		return 0;
	}
	if (!plain || size < 1 || size > DEVICES_MAX || size != (int)size) {
		error_set(err, EXIT_CODE_USAGE, "--fraction: '%.32s' is no size for a pod", text);
		error_hint(err,
			   "a fraction such as 0.5 with six digits at most, or a number of GPUs up "
			   "to %d",
			   DEVICES_MAX);
		return -EXIT_CODE_USAGE;
	}
	json_object_set_new(annotations, "gpu-fraction", json_string("1"));
	snprintf(number, sizeof(number), "%d", (int)size);
	if (size > 1)
		json_object_set_new(annotations, "gpu-fraction-num-devices", json_string(number));
	return 0;
}

/* MiB of each GPU, as the annotation that the policies know. */
static int memory_set(json_t *annotations, const char *text, struct error *err)
{
	size_t length = strlen(text);

	if (length && length < 9 && strspn(text, "0123456789") == length && *text != '0') {
		json_object_set_new(annotations, "gpu-memory", json_string(text));
		return 0;
	}
	error_set(err, EXIT_CODE_USAGE, "--gpu-memory: '%.32s' is no size for a pod", text);
	error_hint(err, "a number of MiB, such as 4096");
	return -EXIT_CODE_USAGE;
}

/* Names of the template's are replaced. */
static void env_set(json_t *container, const struct run_options *options)
{
	json_t *list = json_object_get(container, "env"), *item;
	size_t at;

	if (options->env_count && !json_is_array(list)) {
		list = json_array();
		json_object_set_new(container, "env", list);
	}
	for (size_t i = 0; i < options->env_count; i++) {
		const char *entry = options->env[i], *value = strchr(entry, '=');
		json_t *variable = json_pack("{s:s%, s:s}", "name", entry, (size_t)(value - entry),
					     "value", value + 1);
		const char *name = json_string_value(json_object_get(variable, "name"));

		for (at = 0; name && (item = json_array_get(list, at)); at++) {
			const char *its = json_string_value(json_object_get(item, "name"));

			if (its && !strcmp(its, name))
				json_array_remove(list, at--);
		}
		json_array_append_new(list, variable);
	}
}

static int container_set(json_t *spec, const struct run_options *options, struct error *err)
{
	json_t *list = json_object_get(spec, "containers"), *command = json_array();

	if (!json_array_size(list)) {
		list = json_pack("[{s:s}]", "name", "main");
		json_object_set_new(spec, "containers", list);
	}
	json_t *container = json_array_get(list, 0);
	if (options->image)
		json_object_set_new(container, "image", json_string(options->image));
	for (char *const *word = options->command; *word; word++)
		json_array_append_new(command, json_string(*word));
	if (json_array_size(command)) {
		json_object_set(container, "command", command);
		json_object_del(container, "args");
	}
	json_decref(command);
	env_set(container, options);
	const char *image = json_string_value(json_object_get(container, "image"));
	if (image && *image)
		return 0;
	error_set(err, EXIT_CODE_USAGE, "the pod has no image");
	error_hint(err, "name one with --image, or in the file of --pod-template");
	return -EXIT_CODE_USAGE;
}

int run_pod_make(const json_t *template, const struct run_options *options, const char *name,
		 json_t **ret, struct error *err)
{
	json_t *from = template ? json_deep_copy(template) : json_object(), *pod = json_object();
	json_t *metadata = object_at(pod, "metadata"), *its = object_at(from, "metadata");
	int rc = 0;

	/* Users may choose only these labels and annotations of a pod's metadata. */
	json_object_set(metadata, "labels", object_at(its, "labels"));
	json_object_set(metadata, "annotations", object_at(its, "annotations"));
	json_object_set_new(metadata, "name", json_string(name));
	json_object_set_new(json_object_get(metadata, "labels"), "app.kubernetes.io/managed-by",
			    json_string("carve"));
	if (options->job && *options->job && strlen(options->job) < 32 &&
	    strspn(options->job, "0123456789_") == strlen(options->job))
		json_object_set_new(json_object_get(metadata, "labels"), "carve.dev/job",
				    json_string(options->job));
	json_object_set_new(json_object_get(metadata, "labels"), RUN_POD_LABEL, json_string(name));
	json_object_set_new(pod, "apiVersion", json_string("v1"));
	json_object_set_new(pod, "kind", json_string("Pod"));
	json_object_set(pod, "spec", object_at(from, "spec"));
	/* The queue counts retries, not the kubelet. */
	json_object_set_new(json_object_get(pod, "spec"), "restartPolicy", json_string("Never"));
	if (options->fraction || options->gpu_memory)
		sizes_remove(metadata, json_object_get(pod, "spec"));
	if (options->fraction)
		rc = size_set(json_object_get(metadata, "annotations"), options->fraction, err);
	if (rc == 0 && options->gpu_memory)
		rc = memory_set(json_object_get(metadata, "annotations"), options->gpu_memory, err);
	if (rc == 0)
		rc = container_set(json_object_get(pod, "spec"), options, err);
	json_decref(from);
	if (rc < 0) {
		json_decref(pod);
		return rc;
	}
	*ret = pod;
	return 0;
}

/* ---- its status -------------------------------------------------------------------------- */

const char *run_pod_container(const json_t *pod)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
	const json_t *first =
		json_array_get(json_object_get(json_object_get(pod, "spec"), "containers"), 0);
	const char *name = json_string_value(json_object_get(first, "name"));

	return name && strlen(name) < 64 && strspn(name, allowed) == strlen(name) ? name : "";
}

/* How the first container ended; NULL: it has not. */
static const json_t *first_terminated(const json_t *pod)
{
	const json_t *first =
		json_array_get(json_object_get(json_object_get(pod, "spec"), "containers"), 0);
	const char *name = json_string_value(json_object_get(first, "name"));
	json_t *container;
	size_t i;

	/* They are listed in any order. */
	json_array_foreach(json_object_get(json_object_get(pod, "status"), "containerStatuses"), i,
			   container)
	{
		const char *its = json_string_value(json_object_get(container, "name"));

		if (name && its && !strcmp(name, its))
			return json_object_get(json_object_get(container, "state"), "terminated");
	}
	return NULL;
}

enum run_phase run_pod_phase(const json_t *pod, int *ret_code)
{
	const json_t *status = json_object_get(pod, "status");
	const char *phase = json_string_value(json_object_get(status, "phase"));
	const json_t *code = json_object_get(first_terminated(pod), "exitCode");

	*ret_code = json_is_integer(code) ? (int)(json_integer_value(code) & 0xff) : -1;
	if (*ret_code >= 0 || (phase && (!strcmp(phase, "Succeeded") || !strcmp(phase, "Failed"))))
		return RUN_ENDED;
	return phase && !strcmp(phase, "Running") ? RUN_STARTED : RUN_WAITS;
}

const char *run_pod_unstarted(const json_t *pod)
{
	const json_t *terminated = first_terminated(pod);
	const char *reason = json_string_value(json_object_get(terminated, "reason"));
	const char *text = json_string_value(json_object_get(terminated, "message"));

	if (!reason ||
	    (strcmp(reason, "StartError") != 0 && strcmp(reason, "ContainerCannotRun") != 0))
		return NULL;
	return text ? text : reason;
}

const char *run_pod_reason(const json_t *pod)
{
	const json_t *status = json_object_get(pod, "status");
	const char *text = json_string_value(json_object_get(status, "message"));
	json_t *item;
	size_t i;

	json_array_foreach(json_object_get(status, "conditions"), i, item)
	{
		const char *is = json_string_value(json_object_get(item, "status"));

		if (!text && is && !strcmp(is, "False"))
			text = json_string_value(json_object_get(item, "message"));
	}
	json_array_foreach(json_object_get(status, "containerStatuses"), i, item)
	{
		const json_t *waits = json_object_get(json_object_get(item, "state"), "waiting");

		if (json_is_object(waits) && json_object_get(waits, "message"))
			text = json_string_value(json_object_get(waits, "message"));
	}
	return text ? text : "";
}
