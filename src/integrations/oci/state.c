#include "integrations/oci/state.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "container/wanted.h"
#include "integrations/oci/containerd.h"

#define ID_LENGTH 64
#define USERDATA "/userdata/"

static bool text_copy(const json_t *object, const char *key, char *to, size_t size)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text && *text && (size_t)snprintf(to, size, "%s", text) < size;
}

int oci_state_parse(const char *text, size_t size, struct oci_container *ret, struct error *err)
{
	json_t *state = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
	json_int_t pid = json_integer_value(json_object_get(state, "pid"));
	int rc = 0;

	*ret = (struct oci_container){.pid = pid > 0 && pid <= INT_MAX ? (pid_t)pid : 0};
	if (!text_copy(state, "id", ret->id, sizeof(ret->id)) ||
	    !text_copy(state, "bundle", ret->bundle, sizeof(ret->bundle)) ||
	    ret->bundle[0] != '/' || !ret->pid)
		rc = error_set(err, EXIT_CODE_FAILED,
			       "standard input is no state of an OCI runtime (id, pid, bundle)");
	json_decref(state);
	return rc;
}

int oci_config_parse(const json_t *config, struct oci_container *to, struct error *err)
{
	char path[PATH_MAX];
	json_t *annotations = json_object_get(config, "annotations");
	json_t *environment = json_object_get(json_object_get(config, "process"), "env");
	int length = -1;

	if (text_copy(json_object_get(config, "root"), "path", path, sizeof(path)))
		length = path[0] == '/'
				 ? snprintf(to->root, sizeof(to->root), "%s", path)
				 : snprintf(to->root, sizeof(to->root), "%s/%s", to->bundle, path);
	if (length < 0 || length >= (int)sizeof(to->root))
		return error_set(err, EXIT_CODE_FAILED,
				 "the container's config.json has no root file system");
	to->annotations = json_is_object(annotations) ? json_incref(annotations) : NULL;
	to->environment = json_is_array(environment) ? json_incref(environment) : NULL;
	return 0;
}

/* containerd's, CRI-O's. */
static const char *const type_keys[] = {"io.kubernetes.cri.container-type",
					"io.kubernetes.cri-o.ContainerType"};

bool oci_is_pods(const struct oci_container *container)
{
	bool found = false;

	for (size_t i = 0; i < ARRAY_SIZE(type_keys); i++)
		found |= json_object_get(container->annotations, type_keys[i]) != NULL;
	return found;
}

bool oci_is_sandbox(const struct oci_container *container)
{
	struct containerd_place place;

	/* Both have their bundles in /run, podman and its users have not. containerd's other
	 * namespaces (moby: docker) are of engines whose users write annotations, too. */
	if ((!containerd_place(container->bundle, &place) ||
	     strcmp(place.namespace, CONTAINERD_KUBERNETES) != 0) &&
	    strncmp(container->bundle, "/run/containers/storage/", 24) != 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(type_keys); i++) {
		const char *type =
			json_string_value(json_object_get(container->annotations, type_keys[i]));

		if (type && !strcmp(type, "sandbox"))
			return true;
	}
	return false;
}

bool oci_config_has_gpu(const json_t *config)
{
	static const char prefix[] = "/dev/nvidia";
	json_t *device;
	size_t i;

	json_array_foreach(json_object_get(json_object_get(config, "linux"), "devices"), i, device)
	{
		const char *path = json_string_value(json_object_get(device, "path"));

		if (path && !strncmp(path, prefix, sizeof(prefix) - 1))
			return true;
	}
	return false;
}

static bool hook_is_ours(const json_t *hook)
{
	const char *path = json_string_value(json_object_get(hook, "path"));
	const char *slash = path ? strrchr(path, '/') : NULL;

	return slash && !strcmp(slash, "/carve-hook");
}

bool oci_config_has_hook(const json_t *config)
{
	const json_t *hooks = json_object_get(json_object_get(config, "hooks"), "createRuntime");
	json_t *hook;
	size_t i;

	json_array_foreach((json_t *)hooks, i, hook)
	{
		if (hook_is_ours(hook))
			return true;
	}
	return false;
}

/* The arguments of carve's first hook that has one of these words among them; NULL: there is none.
 */
static const json_t *hook_arguments(const json_t *config, const char *const *words, size_t count)
{
	const json_t *hooks = json_object_get(json_object_get(config, "hooks"), "createRuntime");
	json_t *hook, *word;
	size_t i, k;

	json_array_foreach((json_t *)hooks, i, hook)
	{
		if (!hook_is_ours(hook))
			continue;
		json_array_foreach(json_object_get(hook, "args"), k, word)
		{
			const char *text = json_string_value(word);

			for (size_t n = 0; text && n < count; n++)
				if (!strcmp(text, words[n]))
					return json_object_get(hook, "args");
		}
	}
	return NULL;
}

/* The first hook that makes a slice by its own words has these arguments. */
static const json_t *device_hook_arguments(const json_t *config)
{
	static const char *const words[] = {"--label", "--required"};

	return hook_arguments(config, words, ARRAY_SIZE(words));
}

bool oci_config_is_registered(const json_t *config)
{
	static const char *const words[] = {"--register"};

	return hook_arguments(config, words, ARRAY_SIZE(words)) != NULL;
}

const char *oci_config_registered_beside(const json_t *config, const char *session)
{
	const json_t *hooks = json_object_get(json_object_get(config, "hooks"), "createRuntime");
	json_t *hook;
	size_t i;

	json_array_foreach((json_t *)hooks, i, hook)
	{
		const json_t *words = json_object_get(hook, "args");

		for (size_t k = 0; hook_is_ours(hook) && k + 1 < json_array_size(words); k++) {
			const char *word = json_string_value(json_array_get(words, k));
			const char *its = json_string_value(json_array_get(words, k + 1));

			if (word && its && !strcmp(word, "--register") && strcmp(its, session) != 0)
				return its;
		}
	}
	return NULL;
}

bool oci_config_has_device_hook(const json_t *config)
{
	return device_hook_arguments(config) != NULL;
}

bool oci_label_add(json_t *labels, const char *text)
{
	const char *equals = strchr(text, '=');
	char name[64];

	if (!equals || (size_t)(equals - text) >= sizeof(name))
		return false;
	snprintf(name, sizeof(name), "%.*s", (int)(equals - text), text);
	return json_object_set_new(labels, name, json_string(equals + 1)) == 0;
}

json_t *oci_config_device_labels(const json_t *config)
{
	const json_t *arguments = device_hook_arguments(config);
	json_t *labels = arguments ? json_object() : NULL;

	for (size_t i = 0; labels && i + 1 < json_array_size(arguments); i++) {
		const char *text = json_string_value(json_array_get(arguments, i));
		const char *label = json_string_value(json_array_get(arguments, i + 1));

		if (text && label && !strcmp(text, "--label"))
			(void)oci_label_add(labels, label);
	}
	return labels;
}

const char *oci_config_device_stamp(const json_t *config)
{
	const json_t *arguments = device_hook_arguments(config);

	for (size_t i = 0; i + 1 < json_array_size(arguments); i++) {
		const char *text = json_string_value(json_array_get(arguments, i));
		const char *stamp = json_string_value(json_array_get(arguments, i + 1));

		if (text && stamp && !strcmp(text, "--stamp"))
			return stamp;
	}
	return "";
}

bool oci_config_has_session(const json_t *config)
{
	json_t *labels = oci_config_device_labels(config);
	bool found = json_object_get(labels, CONTAINER_LABEL_SESSION) != NULL;

	json_decref(labels);
	return found;
}

void oci_container_clear(struct oci_container *container)
{
	json_decref(container->annotations);
	json_decref(container->environment);
	container->annotations = container->environment = NULL;
}

/* STORAGE-containers/ID/userdata/hostname: the ID. */
static bool id_find(const json_t *config, char id[static OCI_ID_SIZE])
{
	json_t *mount;
	size_t i;

	json_array_foreach(json_object_get(config, "mounts"), i, mount)
	{
		const char *from = json_string_value(json_object_get(mount, "source"));
		const char *tail = from ? strstr(from, USERDATA) : NULL;

		if (!tail || tail - from <= ID_LENGTH || tail[-ID_LENGTH - 1] != '/' ||
		    strspn(tail - ID_LENGTH, "0123456789abcdef") != ID_LENGTH)
			continue;
		snprintf(id, OCI_ID_SIZE, "%.*s", ID_LENGTH, tail - ID_LENGTH);
		return true;
	}
	return false;
}

bool oci_podman_container(const json_t *config, struct oci_container *ret)
{
	const char *root =
		json_string_value(json_object_get(json_object_get(config, "root"), "path"));
	size_t length = root ? strlen(root) : 0;

	*ret = (struct oci_container){0};
	if (!length || root[0] != '/' || !id_find(config, ret->id))
		return false;
	/* STORAGE/overlay/LAYER/merged, or STORAGE/vfs/dir/LAYER. */
	for (int i = 0; i < 2; i++)
		while (length && root[--length] != '/')
			;
	return length &&
	       snprintf(ret->bundle, sizeof(ret->bundle), "%.*s-containers/%s" USERDATA,
			(int)length, root, ret->id) < (int)sizeof(ret->bundle) &&
	       (ret->bundle[strlen(ret->bundle) - 1] = '\0', true);
}
