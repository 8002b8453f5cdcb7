#include "integrations/kubernetes/pod/pod_fields.h"

#include <stdio.h>
#include <string.h>

#include "base/macros.h"

enum place {
	OF_POD = 1 << 0,
	OF_CONTAINER = 1 << 1,
	OF_CHART = 1 << 2, /* in the chart's overrides it is the container's */
	OF_EPHEMERAL = 1 << 3,
};

static const struct {
	const char *name;
	unsigned places; /* enum place */
} fields[] = {
	{"activeDeadlineSeconds", OF_POD},
	{"affinity", OF_POD},
	{"args", OF_CONTAINER | OF_CHART},
	{"automountServiceAccountToken", OF_POD},
	{"command", OF_CONTAINER | OF_CHART},
	{"containers", OF_POD},
	{"dnsConfig", OF_POD},
	{"dnsPolicy", OF_POD},
	{"enableServiceLinks", OF_POD},
	{"env", OF_CONTAINER | OF_CHART},
	{"envFrom", OF_CONTAINER | OF_CHART},
	{"ephemeralContainers", OF_POD},
	{"hostAliases", OF_POD},
	{"hostIPC", OF_POD},
	{"hostNetwork", OF_POD},
	{"hostPID", OF_POD},
	{"hostUsers", OF_POD},
	{"hostname", OF_POD},
	{"hostnameOverride", OF_POD},
	{"image", OF_CONTAINER | OF_CHART},
	{"imagePullPolicy", OF_CONTAINER | OF_CHART},
	{"imagePullSecrets", OF_POD},
	{"initContainers", OF_POD},
	{"lifecycle", OF_CONTAINER | OF_CHART},
	{"livenessProbe", OF_CONTAINER | OF_CHART},
	{"name", OF_CONTAINER},
	{"nodeName", OF_POD},
	{"nodeSelector", OF_POD},
	{"os", OF_POD},
	{"overhead", OF_POD},
	{"ports", OF_CONTAINER | OF_CHART},
	{"preemptionPolicy", OF_POD},
	{"priority", OF_POD},
	{"priorityClassName", OF_POD},
	{"readinessGates", OF_POD},
	{"readinessProbe", OF_CONTAINER | OF_CHART},
	{"resizePolicy", OF_CONTAINER | OF_CHART},
	{"resourceClaims", OF_POD},
	{"resources", OF_POD | OF_CONTAINER | OF_CHART},
	{"restartPolicy", OF_POD | OF_CONTAINER},
	{"restartPolicyRules", OF_CONTAINER | OF_CHART},
	{"runtimeClassName", OF_POD},
	{"schedulerName", OF_POD},
	{"schedulingGates", OF_POD},
	{"schedulingGroup", OF_POD},
	{"securityContext", OF_POD | OF_CONTAINER},
	{"serviceAccount", OF_POD},
	{"serviceAccountName", OF_POD},
	{"setHostnameAsFQDN", OF_POD},
	{"shareProcessNamespace", OF_POD},
	{"startupProbe", OF_CONTAINER | OF_CHART},
	{"stdin", OF_CONTAINER | OF_CHART},
	{"stdinOnce", OF_CONTAINER | OF_CHART},
	{"subdomain", OF_POD},
	{"targetContainerName", OF_EPHEMERAL},
	{"terminationGracePeriodSeconds", OF_POD},
	{"terminationMessagePath", OF_CONTAINER | OF_CHART},
	{"terminationMessagePolicy", OF_CONTAINER | OF_CHART},
	{"tolerations", OF_POD},
	{"topologySpreadConstraints", OF_POD},
	{"tty", OF_CONTAINER | OF_CHART},
	{"volumeDevices", OF_CONTAINER | OF_CHART},
	{"volumeMounts", OF_CONTAINER | OF_CHART},
	{"volumes", OF_POD},
	{"workingDir", OF_CONTAINER | OF_CHART},
	{"workloadRef", OF_POD}, /* 1.35 alone */
};

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

void pod_fields_unknown(const json_t *pod, json_t *to)
{
	static const struct {
		const char *key;
		unsigned places;
	} lists[] = {{"containers", OF_CONTAINER},
		     {"initContainers", OF_CONTAINER},
		     {"ephemeralContainers", OF_CONTAINER | OF_EPHEMERAL}};
	const json_t *spec = json_object_get(pod, "spec"), *container;
	char where[80];
	size_t i;

	unknown_add(spec, "spec", OF_POD, to);
	for (size_t list = 0; list < ARRAY_SIZE(lists); list++) {
		json_array_foreach(json_object_get(spec, lists[list].key), i, container)
		{
			snprintf(where, sizeof(where), "spec.%s[%zu]", lists[list].key, i);
			unknown_add(container, where, lists[list].places, to);
		}
	}
}
