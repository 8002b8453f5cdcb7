#include "integrations/kubernetes/pod/pod_fields.h"

#include <stdio.h>
#include <string.h>

#include "base/macros.h"

enum place {
	OF_POD = 1 << 0,
	OF_CONTAINER = 1 << 1,
	OF_CHART = 1 << 2, /* in the chart's overrides it is the container's */
	OF_EPHEMERAL = 1 << 3,
	OF_METADATA = 1 << 4,
};

enum type { TEXT, TRUTH, INTEGER, LIST, OBJECT };

static const char *const type_names[] = {
	[TEXT] = "text", [TRUTH] = "true or false", [INTEGER] = "number",
	[LIST] = "list", [OBJECT] = "object",
};

static const struct {
	const char *name;
	unsigned places; /* enum place */
	enum type type;
} fields[] = {
	{"activeDeadlineSeconds", OF_POD, INTEGER},
	{"affinity", OF_POD, OBJECT},
	{"annotations", OF_METADATA, OBJECT},
	{"args", OF_CONTAINER | OF_CHART, LIST},
	{"automountServiceAccountToken", OF_POD, TRUTH},
	{"command", OF_CONTAINER | OF_CHART, LIST},
	{"containers", OF_POD, LIST},
	{"creationTimestamp", OF_METADATA, TEXT},
	{"dnsConfig", OF_POD, OBJECT},
	{"dnsPolicy", OF_POD, TEXT},
	{"enableServiceLinks", OF_POD, TRUTH},
	{"env", OF_CONTAINER | OF_CHART, LIST},
	{"envFrom", OF_CONTAINER | OF_CHART, LIST},
	{"ephemeralContainers", OF_POD, LIST},
	{"finalizers", OF_METADATA, LIST},
	{"generateName", OF_METADATA, TEXT},
	{"hostAliases", OF_POD, LIST},
	{"hostIPC", OF_POD, TRUTH},
	{"hostNetwork", OF_POD, TRUTH},
	{"hostPID", OF_POD, TRUTH},
	{"hostUsers", OF_POD, TRUTH},
	{"hostname", OF_POD, TEXT},
	{"hostnameOverride", OF_POD, TEXT},
	{"image", OF_CONTAINER | OF_CHART, TEXT},
	{"imagePullPolicy", OF_CONTAINER | OF_CHART, TEXT},
	{"imagePullSecrets", OF_POD, LIST},
	{"initContainers", OF_POD, LIST},
	{"labels", OF_METADATA, OBJECT},
	{"lifecycle", OF_CONTAINER | OF_CHART, OBJECT},
	{"livenessProbe", OF_CONTAINER | OF_CHART, OBJECT},
	{"name", OF_CONTAINER | OF_METADATA, TEXT},
	{"managedFields", OF_METADATA, LIST},
	{"namespace", OF_METADATA, TEXT},
	{"nodeName", OF_POD, TEXT},
	{"nodeSelector", OF_POD, OBJECT},
	{"os", OF_POD, OBJECT},
	{"overhead", OF_POD, OBJECT},
	{"ownerReferences", OF_METADATA, LIST},
	{"ports", OF_CONTAINER | OF_CHART, LIST},
	{"preemptionPolicy", OF_POD, TEXT},
	{"priority", OF_POD, INTEGER},
	{"priorityClassName", OF_POD, TEXT},
	{"readinessGates", OF_POD, LIST},
	{"readinessProbe", OF_CONTAINER | OF_CHART, OBJECT},
	{"resizePolicy", OF_CONTAINER | OF_CHART, LIST},
	{"resourceClaims", OF_POD, LIST},
	{"resourceVersion", OF_METADATA, TEXT},
	{"resources", OF_POD | OF_CONTAINER | OF_CHART, OBJECT},
	{"restartPolicy", OF_POD | OF_CONTAINER, TEXT},
	{"restartPolicyRules", OF_CONTAINER | OF_CHART, LIST},
	{"runtimeClassName", OF_POD, TEXT},
	{"schedulerName", OF_POD, TEXT},
	{"schedulingGates", OF_POD, LIST},
	{"schedulingGroup", OF_POD, OBJECT},
	{"securityContext", OF_POD | OF_CONTAINER, OBJECT},
	{"serviceAccount", OF_POD, TEXT},
	{"serviceAccountName", OF_POD, TEXT},
	{"setHostnameAsFQDN", OF_POD, TRUTH},
	{"shareProcessNamespace", OF_POD, TRUTH},
	{"startupProbe", OF_CONTAINER | OF_CHART, OBJECT},
	{"stdin", OF_CONTAINER | OF_CHART, TRUTH},
	{"stdinOnce", OF_CONTAINER | OF_CHART, TRUTH},
	{"subdomain", OF_POD, TEXT},
	{"targetContainerName", OF_EPHEMERAL, TEXT},
	{"terminationGracePeriodSeconds", OF_POD, INTEGER},
	{"terminationMessagePath", OF_CONTAINER | OF_CHART, TEXT},
	{"terminationMessagePolicy", OF_CONTAINER | OF_CHART, TEXT},
	{"tolerations", OF_POD, LIST},
	{"topologySpreadConstraints", OF_POD, LIST},
	{"tty", OF_CONTAINER | OF_CHART, TRUTH},
	{"uid", OF_METADATA, TEXT},
	{"volumeDevices", OF_CONTAINER | OF_CHART, LIST},
	{"volumeMounts", OF_CONTAINER | OF_CHART, LIST},
	{"volumes", OF_POD, LIST},
	{"workingDir", OF_CONTAINER | OF_CHART, TEXT},
	{"workloadRef", OF_POD, OBJECT}, /* 1.35 alone */
};

/* The lists of containers in a pod's spec. */
static const struct {
	const char *key;
	unsigned places;
} lists[] = {{"containers", OF_CONTAINER},
	     {"initContainers", OF_CONTAINER},
	     {"ephemeralContainers", OF_CONTAINER | OF_EPHEMERAL}};

static bool is_in(const char *name, unsigned places)
{
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		if (!strcmp(fields[i].name, name))
			return (fields[i].places & places) != 0;
	return false;
}

bool pod_field_known(const char *name)
{
	return is_in(name, OF_POD);
}

bool pod_field_of_chart_container(const char *name)
{
	return is_in(name, OF_CHART);
}

static void unknown_add(const json_t *object, const char *where, unsigned places, json_t *to)
{
	const char *key;
	json_t *value;
	char path[192];

	json_object_foreach((json_t *)object, key, value)
	{
		if (is_in(key, places))
			continue;
		snprintf(path, sizeof(path), "%s.%.96s", where, key);
		json_object_set_new_nocheck(to, path, json_true());
	}
}

static bool is_of_type(const json_t *value, enum type type)
{
	switch (type) {
	case TEXT:
		return json_is_string(value);
	case TRUTH:
		return json_is_boolean(value);
	case INTEGER:
		return json_is_integer(value);
	case LIST:
		return json_is_array(value);
	case OBJECT:
		return json_is_object(value);
	}
	return false;
}

/* Finds a field of another type than Kubernetes has it. null is as good as none. */
static const char *wrong_type(const json_t *object, unsigned places, const char **ret_type)
{
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		const json_t *value =
			fields[i].places & places ? json_object_get(object, fields[i].name) : NULL;

		if (!value || json_is_null(value) || is_of_type(value, fields[i].type))
			continue;
		*ret_type = type_names[fields[i].type];
		return fields[i].name;
	}
	return NULL;
}

bool pod_fields_wrong(const json_t *pod, char ret[static POD_FIELDS_WRONG_SIZE])
{
	const json_t *spec = json_object_get(pod, "spec"), *container;
	const char *name, *type;
	size_t i;

	for (size_t list = 0; list < ARRAY_SIZE(lists); list++)
		json_array_foreach(json_object_get(spec, lists[list].key), i, container)
		{
			name = wrong_type(container, lists[list].places, &type);
			if (!name)
				continue;
			snprintf(ret, POD_FIELDS_WRONG_SIZE, "spec.%s[%zu].%s is no %s",
				 lists[list].key, i, name, type);
			return true;
		}
	name = wrong_type(spec, OF_POD, &type);
	if (name)
		snprintf(ret, POD_FIELDS_WRONG_SIZE, "spec.%s is no %s", name, type);
	return name != NULL;
}

void pod_fields_unknown(const json_t *pod, json_t *to)
{
	const json_t *spec = json_object_get(pod, "spec"), *container;
	char where[80];
	size_t i;

	unknown_add(json_object_get(pod, "metadata"), "metadata", OF_METADATA, to);
	unknown_add(spec, "spec", OF_POD, to);
	for (size_t list = 0; list < ARRAY_SIZE(lists); list++) {
		json_array_foreach(json_object_get(spec, lists[list].key), i, container)
		{
			snprintf(where, sizeof(where), "spec.%s[%zu]", lists[list].key, i);
			unknown_add(container, where, lists[list].places, to);
		}
	}
}
