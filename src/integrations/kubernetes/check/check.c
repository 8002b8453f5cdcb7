#include "integrations/kubernetes/check/check.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "client/client.h"
#include "client/text.h"
#include "integrations/kubernetes/api/api.h"
#include "integrations/kubernetes/object/node_labels.h"
#include "integrations/kubernetes/object/slices.h"
#include "integrations/kubernetes/object/template.h"

#define TIMEOUT_MS 15000L
/* Earlier patch releases of this minor release could give one partition of a GPU to two pods
 * (kubernetes/kubernetes#139034). */
#define MINOR_MIN 36
#define PATCH_MIN 2
/* Room for the error text of kubectl. */
#define WORDS_SIZE 256
#define RESERVE "--reserve-namespace"
#define REPLICAS "--replicas"
#define HOOK_DIR "--hook-dir"
#define SLICES "/apis/resource.k8s.io/v1/resourceslices"
#define CLASSES "/apis/resource.k8s.io/v1/deviceclasses"

/* The server that is asked, and the findings. */
struct check {
	struct api api;
	bool kubectl;
	const char *driver;
	json_t *found; /* [{name, ok, message, hint}] */
	bool failed;
};

static void found(struct check *check, const char *name, bool ok, const char *message,
		  const char *hint)
{
	json_array_append_new(check->found,
			      json_pack("{s:s, s:b, s:s, s:s}", "name", name, "ok", ok, "message",
					message, "hint", ok ? "" : hint));
	check->failed |= !ok;
}

/* ---- asking ------------------------------------------------------------------------------ */

/* In the child: `body` comes on its standard input. */
_Noreturn static void kubectl_exec(const char *path, const FILE *const files[3], bool create)
{
	static const char timeout[] = "--request-timeout=15s";

	for (int fd = 0; fd < 3; fd++)
		dup2(fileno((FILE *)files[fd]), fd);
	if (create)
		execlp("kubectl", "kubectl", "create", "--raw", path, "-f", "-", timeout,
		       (char *)NULL);
	else
		execlp("kubectl", "kubectl", "get", "--raw", path, timeout, (char *)NULL);
	_exit(EXIT_CODE_NOT_FOUND);
}

/* The first line that says something. */
static void first_words(FILE *from, char *buf, int size)
{
	rewind(from);
	do {
		if (!fgets(buf, size, from))
			*buf = '\0';
		buf[strcspn(buf, "\r\n")] = '\0';
	} while (!*buf && !feof(from) && !ferror(from));
}

/* Words what kubectl said when it failed. Returns negative. */
static int kubectl_error(const char *path, const char *words, struct error *err)
{
	/* Its default, where no configuration names a server. */
	static const char no_server[] = "The connection to the server localhost:8080 was refused";
	static const char refused[] = "Error from server (";

	if (strstr(words, "(Forbidden)") || strstr(words, "(Unauthorized)"))
		return error_set(err, EXIT_CODE_NOT_PERMITTED, "kubectl may not ask for %.120s: %s",
				 path, words);
	if (!strncmp(words, refused, strlen(refused)))
		return error_set(err, EXIT_CODE_FAILED, "kubectl could not ask for %.120s: %s",
				 path, words);
	if (!strncmp(words, no_server, strlen(no_server)))
		error_set(err, EXIT_CODE_UNREACHABLE,
			  "kubectl has no configuration that names a cluster");
	else
		error_set(err, EXIT_CODE_UNREACHABLE, "kubectl reaches no cluster: %s",
			  *words ? words : "it does not say why");
	error_hint(err, "name a configuration by KUBECONFIG, or the API server by --api URL");
	return -EXIT_CODE_UNREACHABLE;
}

/* kubectl has the user's clusters and ways to log in. It prints the object, or fails. */
static int kubectl_ask(const struct api_call *call, json_t **ret, struct error *err)
{
	cleanup_free char *body = call->body ? json_dumps(call->body, JSON_COMPACT) : NULL;
	FILE *files[3] = {tmpfile(), tmpfile(), tmpfile()};
	char words[WORDS_SIZE] = "";
	int status = -1;

	if (files[0] && files[1] && files[2]) {
		fputs(body ? body : "", files[0]);
		rewind(files[0]);
		pid_t child = fork();
		if (child == 0)
			kubectl_exec(call->path, (const FILE *const *)files, body != NULL);
		if (child > 0)
			waitpid(child, &status, 0);
		rewind(files[1]);
		*ret = json_loadf(files[1], 0, NULL);
		first_words(files[2], words, sizeof(words));
	}
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		if (files[i])
			(void)fclose(files[i]);
	if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_CODE_NOT_FOUND) {
		error_set(err, EXIT_CODE_UNREACHABLE,
			  "no API server is named, and there is no kubectl");
		error_hint(err, "give --api URL, or install kubectl");
		return -EXIT_CODE_UNREACHABLE;
	}
	if (!WIFEXITED(status))
		return error_set(err, EXIT_CODE_FAILED, "kubectl could not be run, or was killed");
	return WEXITSTATUS(status) == 0 && *ret ? 0 : kubectl_error(call->path, words, err);
}

/* 0 with the answer, or negative: it is not there, or may not be seen. */
static int ask(struct check *check, const char *method, const char *path, const json_t *body,
	       json_t **ret, struct error *err)
{
	struct api_call call = {
		.method = method, .path = path, .body = body, .timeout_ms = TIMEOUT_MS};
	long status;

	*ret = NULL;
	if (check->kubectl)
		return kubectl_ask(&call, ret, err);
	int rc = api_call(&check->api, &call, &status, ret, err);
	return rc == 0 && (status < 200 || status > 299 || !*ret)
		       ? api_status_error(&call, status, *ret, err)
		       : rc;
}

/* ---- the parts that are looked at -------------------------------------------------------- */

/* 2 of "v1.36.2-vendor.1"; -1: the text is no such version. */
static long patch_of(const char *git)
{
	const char *point = git ? strchr(git, '.') : NULL;

	point = point ? strchr(point + 1, '.') : NULL;
	return point && point[1] >= '0' && point[1] <= '9' ? strtol(point + 1, NULL, 10) : -1;
}

static int check_version(struct check *check, struct error *err)
{
	cleanup_json json_t *version = NULL;
	char text[160];
	int rc = ask(check, "GET", "/version", NULL, &version, err);
	const char *git = json_string_value(json_object_get(version, "gitVersion"));
	const char *minor = json_string_value(json_object_get(version, "minor"));

	if (rc < 0)
		return rc;
	snprintf(text, sizeof(text), "the API server is %.100s", git ? git : "of no known version");
	found(check, "version",
	      minor && (strtol(minor, NULL, 10) > MINOR_MIN ||
			(strtol(minor, NULL, 10) == MINOR_MIN && patch_of(git) >= PATCH_MIN)),
	      text,
	      "carve needs Kubernetes 1.36.2 or newer; 1.36.0 and 1.36.1 can give one part of a "
	      "GPU "
	      "twice");
	return 0;
}

static const char *gate_hint(const char *field)
{
	return strstr(field, "taints")     ? "switch the feature gate DRADeviceTaints on"
	       : strstr(field, "Counters") ? "switch the feature gate DRAPartitionableDevices on"
					   : "switch the feature gate DRAConsumableCapacity on";
}

/* Writes a slice that is not kept, and looks what the API server made of it. */
static bool check_gate(struct check *check, json_t *slice)
{
	cleanup_json json_t *got = NULL;
	json_t *spec = json_object_get(slice, "spec");
	struct error err = {0};
	char field[200], text[260];

	json_object_set_new(json_object_get(spec, "pool"), "generation", json_integer(1));
	if (ask(check, "POST", SLICES "?dryRun=All", slice, &got, &err) < 0) {
		found(check, "gates", false, err.message,
		      "the user who checks must be allowed to create resourceslices");
		return false;
	}
	if (slices_contain(json_object_get(got, "spec"), spec, field, sizeof(field)))
		return true;
	snprintf(text, sizeof(text), "the API server drops spec.%s", field);
	found(check, "gates", false, text, gate_hint(field));
	return false;
}

static void check_gates(struct check *check)
{
	struct device_gpu gpu = {.name = "gpu-carve-check",
				 .uuid = "carve-check",
				 .product = "check",
				 .total = GIB(16),
				 .offered = GIB(16),
				 .least = MIB(512),
				 .answers = true,
				 .profile = {{.name = "1g.10gb",
					      .memory = GIB(8),
					      .starts = 3,
					      .size = 1,
					      .slices = 1}},
				 .profiles = 1};
	cleanup_json json_t *slices = slices_build(
		&(struct slices_owner){.driver = check->driver,
				       .node = "carve-check",
				       .node_uid = "00000000-0000-0000-0000-000000000000"},
		&gpu, 1);
	json_t *slice;
	size_t i;

	json_array_foreach(slices, i, slice)
	{
		if (!check_gate(check, slice))
			return;
	}
	found(check, "gates", true,
	      "shared devices, their capacity, MIG instances with counters, and taints are kept",
	      "");
}

/* A binding of a policy that was set to warn, or to note what it would refuse. */
static bool is_without_refusals(const json_t *object)
{
	const json_t *actions =
			     json_object_get(json_object_get(object, "spec"), "validationActions"),
		     *action;
	bool refuses = !actions;
	size_t i;

	json_array_foreach((json_t *)actions, i, action)
	{
		const char *text = json_string_value(action);

		refuses |= text && !strcmp(text, "Deny");
	}
	return !refuses;
}

static void check_object(struct check *check, const char *name, const char *path)
{
	cleanup_json json_t *object = NULL;
	struct error err = {0};
	char text[260];
	const char *kind = strrchr(path, '/');
	bool there = ask(check, "GET", path, NULL, &object, &err) == 0;

	while (kind > path && kind[-1] != '/')
		kind--;
	if (!there && err.code != EXIT_CODE_FAILED) {
		found(check, name, false, err.message, "whether it is there is not known");
		return;
	}
	const char *what = !there                        ? "is missing"
			   : is_without_refusals(object) ? "refuses nothing"
							 : "is there";
	snprintf(text, sizeof(text), "%.200s %s", kind, what);
	found(check, name, there && !is_without_refusals(object), text,
	      "kubectl apply -k /usr/share/carve/kubernetes/base");
}

/* carve's classes, but for those that claims name. */
static bool is_of_resource(const char *class)
{
	const char *end = strstr(class, ".carve.dev");

	return end && !strcmp(end, ".carve.dev") && strcmp(class, "gpu.carve.dev") != 0 &&
	       strcmp(class, "mig.carve.dev") != 0;
}

/* A policy does nothing until a binding of its name puts it in force. */
static void check_policies(struct check *check)
{
	static const struct {
		const char *resource, *name;
	} wanted[] = {
		{"mutatingadmissionpolicies", "carve-spellings"},
		{"mutatingadmissionpolicybindings", "carve-spellings"},
		{"mutatingadmissionpolicies", "carve-other-spellings"},
		{"mutatingadmissionpolicybindings", "carve-other-spellings"},
		{"validatingadmissionpolicies", "carve-other-spellings"},
		{"validatingadmissionpolicybindings", "carve-other-spellings"},
		{"validatingadmissionpolicies", "carve-spellings"},
		{"validatingadmissionpolicybindings", "carve-spellings"},
		{"validatingadmissionpolicies", "carve-own-slices"},
		{"validatingadmissionpolicybindings", "carve-own-slices"},
		{"validatingadmissionpolicies", "carve-host-paths"},
		{"validatingadmissionpolicybindings", "carve-host-paths"},
		{"validatingadmissionpolicies", "carve-templates"},
		{"validatingadmissionpolicybindings", "carve-templates"},
	};
	char path[256];

	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		snprintf(path, sizeof(path), "/apis/admissionregistration.k8s.io/v1/%s/%s",
			 wanted[i].resource, wanted[i].name);
		check_object(check, "policy", path);
	}
}

/* Asks for a class that is not kept. True: the API server keeps its extended resource. A gate that
 * was closed later leaves the resources of the classes that are there, but no pod gets them. */
static bool extended_kept(struct check *check, struct error *err)
{
	cleanup_json json_t *class =
		json_pack("{s:s, s:s, s:{s:s}, s:{s:s}}", "apiVersion", "resource.k8s.io/v1",
			  "kind", "DeviceClass", "metadata", "name", "check.carve.dev", "spec",
			  "extendedResourceName", "carve.dev/check"),
			    *got = NULL;

	return ask(check, "POST", CLASSES "?dryRun=All", class, &got, err) == 0 &&
	       json_object_get(json_object_get(got, "spec"), "extendedResourceName");
}

static void check_extended(struct check *check, bool needed)
{
	struct error err = {0};

	if (extended_kept(check, &err))
		return;
	if (err.code && needed)
		found(check, "class", false, err.message,
		      "the user who checks must be allowed to create deviceclasses");
	else if (needed)
		found(check, "class", false,
		      "the feature gate DRAExtendedResource is off, so limits such as "
		      "nvidia.com/gpu and nvidia.com/mig-1g.10gb get nothing of carve's",
		      "switch the gate on in the API server, the scheduler and the kubelets");
	else if (!err.code)
		found(check, "class", true,
		      "the feature gate DRAExtendedResource is off; whole-gpus and mig-limits "
		      "would "
		      "need it",
		      "");
}

/* A class of an extended resource, such as nvidia.com/gpu, whose resource the API server dropped:
 * pods that name it stay pending. */
static void check_classes(struct check *check)
{
	cleanup_json json_t *list = NULL;
	struct error err = {0};
	const json_t *class;
	bool any = false;
	char text[200];
	size_t i;

	if (ask(check, "GET", CLASSES, NULL, &list, &err) < 0) {
		found(check, "class", false, err.message,
		      "the user who checks must see deviceclasses");
		return;
	}
	json_array_foreach(json_object_get(list, "items"), i, class)
	{
		const char *name = json_string_value(
			json_object_get(json_object_get(class, "metadata"), "name"));
		const json_t *spec = json_object_get(class, "spec");

		if (!name || !is_of_resource(name))
			continue;
		any = true;
		if (json_object_get(spec, "extendedResourceName"))
			continue;
		snprintf(text, sizeof(text), "class %.120s has no extended resource", name);
		found(check, "class", false, text,
		      "switch the feature gate DRAExtendedResource on, and apply the manifests "
		      "again");
		return;
	}
	check_extended(check, any);
}

/* The first object of those that carve's manifests name so; *ret is the list, owned by the caller.
 * NULL: there is none, or *err says why it is not known. */
static const json_t *object_named(struct check *check, const char *resource, const char *name,
				  json_t **ret, struct error *err)
{
	char path[256];

	snprintf(path, sizeof(path),
		 "/apis/apps/v1/%s?labelSelector=app.kubernetes.io%%2Fname%%3D%s", resource, name);
	if (ask(check, "GET", path, NULL, ret, err) < 0)
		return NULL;
	return json_array_get(json_object_get(*ret, "items"), 0);
}

/* Where carve is installed, by one of its objects there. */
static const char *namespace_of(const json_t *object)
{
	const char *namespace = json_string_value(
		json_object_get(json_object_get(object, "metadata"), "namespace"));

	return namespace ? namespace : "carve";
}

/* Without it the templates of claims are not made, and pods stay pending. */
static void check_controller(struct check *check)
{
	cleanup_json json_t *list = NULL;
	struct error err = {0};
	const json_t *controller =
		object_named(check, "deployments", "carve-controller", &list, &err);
	const json_t *status = json_object_get(controller, "status");
	bool runs = json_integer_value(json_object_get(status, "availableReplicas")) > 0;
	char look[160];

	snprintf(look, sizeof(look),
		 "kubectl -n %.63s get pods -l app.kubernetes.io/name=carve-controller",
		 namespace_of(controller));
	found(check, "controller", runs,
	      runs         ? "the controller runs"
	      : err.code   ? err.message
	      : controller ? "no pod of the controller is ready"
			   : "the controller is missing",
	      err.code     ? "the user who checks must see deployments"
	      : controller ? look
			   : "kubectl apply -k /usr/share/carve/kubernetes/base");
}

static json_t *containers_of(const json_t *plugins)
{
	const json_t *spec = json_object_get(
		json_object_get(json_object_get(plugins, "spec"), "template"), "spec");

	return json_object_get(spec, "containers");
}

/* Whether the nodes' plugins run with an option. */
static bool has_option(const json_t *plugins, const char *option)
{
	const json_t *container, *word;
	size_t i, k;

	json_array_foreach(containers_of(plugins), i, container)
	{
		static const char *const lists[] = {"command", "args"};

		for (size_t l = 0; l < ARRAY_SIZE(lists); l++)
			json_array_foreach(json_object_get(container, lists[l]), k, word)
			{
				const char *text = json_string_value(word);

				if (text && !strncmp(text, option, strlen(option)))
					return true;
			}
	}
	return false;
}

/* The slices of a node, taken together. */
struct sight {
	bool slices;          /* there are any */
	size_t devices, free; /* free: no taint keeps pods away */
	const char *taint;    /* a taint that does; NULL: none */
	const char *settings; /* why carved keeps older settings; NULL: it does not */
};

/* The key of a device's taint that keeps pods away; NULL: there is none. */
static const char *taint_of(const json_t *device)
{
	const json_t *taint;
	size_t i;

	json_array_foreach(json_object_get(device, "taints"), i, taint)
	{
		const char *key = json_string_value(json_object_get(taint, "key"));
		const char *effect = json_string_value(json_object_get(taint, "effect"));

		if (key && effect && strcmp(effect, "None") != 0)
			return key;
	}
	return NULL;
}

static void slice_see(const json_t *spec, struct sight *to)
{
	const json_t *device;
	size_t i;

	to->slices = true;
	json_array_foreach(json_object_get(spec, "devices"), i, device)
	{
		const char *taint = taint_of(device);
		const char *settings = json_string_value(json_object_get(
			json_object_get(json_object_get(device, "attributes"), SLICES_SETTINGS),
			"string"));

		to->devices++;
		to->free += !taint;
		to->taint = taint ? taint : to->taint;
		to->settings = settings ? settings : to->settings;
	}
}

static struct sight node_see(const json_t *slices, const char *driver, const char *node)
{
	struct sight sight = {0};
	const json_t *slice;
	size_t i;

	json_array_foreach((json_t *)slices, i, slice)
	{
		const json_t *spec = json_object_get(slice, "spec");
		const char *its = json_string_value(json_object_get(spec, "nodeName"));
		const char *whose = json_string_value(json_object_get(spec, "driver"));

		if (its && whose && !strcmp(its, node) && !strcmp(whose, driver))
			slice_see(spec, &sight);
	}
	return sight;
}

/* Facts about the cluster that count for each node. */
struct nodes {
	const json_t *slices;
	const json_t *plugins; /* the DaemonSet of carve's plugins; NULL: there is none */
	bool reserved;         /* a device plugin may stay, or it is not known */
};

/* Labels of a node whose values the plugin cannot follow. */
static void check_labels(struct check *check, const json_t *metadata, const char *name,
			 const struct nodes *all)
{
	struct error errors[NODE_LABELS];
	char text[sizeof(errors[0].message) + 260];

	(void)node_labels_check(json_object_get(metadata, "labels"),
				!has_option(all->plugins, REPLICAS), errors);
	for (size_t i = 0; i < NODE_LABELS; i++) {
		if (!errors[i].code)
			continue;
		snprintf(text, sizeof(text), "node %.250s: %s", name, errors[i].message);
		found(check, "label", false, text, errors[i].hint);
	}
}

/* Tells that pods get nothing of a node, and that carved did not take its settings. */
static void check_sight(struct check *check, const char *name, const struct sight *sight)
{
	char text[480];

	if (sight->slices && !sight->free) {
		snprintf(text, sizeof(text), "node %.250s has no device that pods can get%s%.100s",
			 name, sight->taint ? ": they have the taint " : "",
			 sight->taint ? sight->taint : "");
		found(check, "device", false, text,
		      "/usr/share/doc/carve/admin/cluster.md says what each taint means (When "
		      "something is wrong)");
	}
	if (!sight->settings)
		return;
	snprintf(text, sizeof(text), "node %.250s: carved kept its old settings: %.100s", name,
		 sight->settings);
	found(check, "settings", false, text,
	      "correct global.core.timeSlicing of the chart, or carved's configuration file");
}

/* A node's GPUs are carve's or a device plugin's. */
static void check_node(struct check *check, const json_t *node, const struct nodes *all)
{
	const json_t *metadata = json_object_get(node, "metadata");
	const char *name = json_string_value(json_object_get(metadata, "name"));
	const char *label = json_string_value(
		json_object_get(json_object_get(metadata, "labels"), "nvidia.com/gpu.present"));
	const char *plugin = json_string_value(json_object_get(
		json_object_get(json_object_get(node, "status"), "allocatable"), "nvidia.com/gpu"));
	struct sight sight = name ? node_see(all->slices, check->driver, name) : (struct sight){0};
	bool ours = sight.slices;
	bool theirs = plugin && strcmp(plugin, "0") != 0 && !all->reserved;
	char text[320], look[160];

	if (!name || (!ours && !(label && !strcmp(label, "true"))))
		return;
	snprintf(text, sizeof(text), "node %.250s %s", name,
		 ours && theirs ? "has slices, and a device plugin hands out its GPUs, too"
		 : ours         ? "has slices"
				: "has GPUs and no slices");
	snprintf(look, sizeof(look),
		 "kubectl -n %.63s logs -l app.kubernetes.io/name=carve-node -c plugin",
		 namespace_of(all->plugins));
	found(check, "node", ours && !theirs, text,
	      ours           ? "remove the device plugin from this node, or apply "
			       "/usr/share/carve/kubernetes/reservation"
	      : all->plugins ? look
			     : "kubectl apply -k /usr/share/carve/kubernetes/base");
	check_sight(check, name, &sight);
	check_labels(check, metadata, name, all);
}

/* A container has no cgroup yet when its claim is prepared. So only carve-hook, which the container
 * runtime waits for, has the driver's limit set before the container's program begins. */
static void check_hook(struct check *check, const struct nodes *all)
{
	if (!json_array_size(containers_of(all->plugins)) || has_option(all->plugins, HOOK_DIR))
		return;
	found(check, "hook", false,
	      "the nodes' plugins run without " HOOK_DIR ": the driver limits no container before "
	      "its first program attaches",
	      "give the plugins " HOOK_DIR ", as /usr/share/carve/kubernetes/base does");
}

static void check_nodes(struct check *check)
{
	cleanup_json json_t *nodes = NULL, *slices = NULL, *daemons = NULL;
	struct error err = {0};
	struct nodes all = {0};
	json_t *node;
	size_t i, before = json_array_size(check->found);

	if (ask(check, "GET", "/api/v1/nodes", NULL, &nodes, &err) < 0 ||
	    ask(check, "GET", SLICES, NULL, &slices, &err) < 0) {
		found(check, "node", false, err.message,
		      "the user who checks must see nodes and slices");
		return;
	}
	all.slices = json_object_get(slices, "items");
	all.plugins = object_named(check, "daemonsets", "carve-node", &daemons, &err);
	all.reserved = err.code || has_option(all.plugins, RESERVE);
	if (err.code)
		found(check, "node", false, err.message, "the user who checks must see daemonsets");
	check_hook(check, &all);
	json_array_foreach(json_object_get(nodes, "items"), i, node) check_node(check, node, &all);
	if (json_array_size(check->found) == before)
		found(check, "node", false, "no node has GPUs",
		      "nodes with GPUs have the label nvidia.com/gpu.present=true");
}

static void print(struct check *check, bool json)
{
	json_t *entry;
	size_t i;

	/* Texts of others are among it. */
	check->found = text_clean_json(check->found);
	if (json) {
		json_dumpf(check->found, stdout, JSON_INDENT(1));
		putchar('\n');
		return;
	}
	json_array_foreach(check->found, i, entry)
	{
		const char *hint = json_string_value(json_object_get(entry, "hint"));

		printf("%s  %s%s%s\n", json_is_true(json_object_get(entry, "ok")) ? "ok " : "BAD",
		       json_string_value(json_object_get(entry, "message")), *hint ? "; " : "",
		       hint);
	}
}

int check_run(const struct check_options *options, struct error *err)
{
	struct check check = {.driver = options->driver, .found = json_array()};
	char path[256];

	check.kubectl = !options->api_url && !secure_getenv("KUBERNETES_SERVICE_HOST");
	int rc = check.kubectl
			 ? 0
			 : api_open(&check.api, options->api_url, options->token, options->ca, err);
	if (rc == 0)
		rc = check_version(&check, err);
	if (rc == 0) {
		check_gates(&check);
		snprintf(path, sizeof(path), CLASSES "/%s", options->driver);
		check_object(&check, "class", path);
		check_object(&check, "class", CLASSES "/" TEMPLATE_MIG_CLASS);
		check_classes(&check);
		check_policies(&check);
		check_controller(&check);
		check_nodes(&check);
		print(&check, options->json);
		rc = check.failed ? -EXIT_CODE_FAILED : 0;
	}
	json_decref(check.found);
	if (!check.kubectl)
		api_close(&check.api);
	return rc;
}
