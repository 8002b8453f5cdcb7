/* Texts of others that carve-hook and carve cdi read, by the first byte. They are a runtime's state
 * and configuration (and what is added to it), labels of images, names of files and devices, and
 * IDs of images. They are also answers of containerd, and places of its containers. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "container/cdi.h"
#include "container/env_limits.h"
#include "container/wanted.h"
#include "integrations/oci/containerd.h"
#include "integrations/oci/devices.h"
#include "integrations/oci/labels.h"
#include "integrations/oci/slice_mounts.h"
#include "integrations/oci/splice.h"
#include "integrations/oci/state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every refusal says why. */
static void refused(const struct error *err)
{
	if (!err->message[0])
		abort();
}

static void fuzz_state(const char *text, size_t size)
{
	struct oci_container container;
	struct error err = {0};

	if (oci_state_parse(text, size, &container, &err) < 0)
		refused(&err);
	else if (container.pid <= 0 || container.bundle[0] != '/')
		abort();
}

/* A mount at one of carve's places is carve's, or refused with a reason. */
static void fuzz_mounts(const json_t *config)
{
	char clean[PATH_MAX], session[CONTAINER_LABEL_MAX + 1];
	char stamp[ATTACH_STAMP_SIZE];
	struct oci_slice slice;
	struct error err = {0};
	json_t *mount;
	size_t i;

	json_array_foreach(json_object_get(config, "mounts"), i, mount)
	{
		const char *to = json_string_value(json_object_get(mount, "destination"));

		if (to && oci_path_clean(to, clean, sizeof(clean)) &&
		    (clean[0] != '/' || strlen(clean) > strlen(to) || strstr(clean, "//") ||
		     strstr(clean, "/../") || strstr(clean, "/./")))
			abort();
		if (to)
			(void)oci_slice_text_session(to, session, stamp);
	}
	if (oci_slice_find(config, true, &slice, &err) < 0)
		refused(&err);
	else if (*slice.session && !*slice.attach)
		abort();
}

static void fuzz_config(const char *text, size_t size)
{
	struct oci_container container = {.bundle = "/bundle"};
	json_t *config = json_loadb(text, size, 0, NULL);
	struct error err = {0};

	if (oci_config_parse(config, &container, &err) < 0)
		refused(&err);
	else if (container.root[0] != '/')
		abort();
	(void)oci_is_sandbox(&container);
	fuzz_mounts(config);
	oci_container_clear(&container);
	json_t *labels = oci_config_device_labels(config);
	if ((labels != NULL) != oci_config_has_device_hook(config) ||
	    (oci_config_has_session(config) && !labels))
		abort();
	json_decref(labels);
	if (oci_podman_container(config, &container) &&
	    (container.bundle[0] != '/' || strlen(container.id) != 64))
		abort();
	json_decref(config);
}

/* An array of sources. The result is a request with one size. */
static void fuzz_labels(const char *text, size_t size)
{
	json_t *list = json_loadb(text, size, 0, NULL), *wanted = NULL;
	const json_t *sources[] = {json_array_get(list, 0), json_array_get(list, 1),
				   json_array_get(list, 2)};
	static const char *const sizes[] = {"vram", "gpu_memory", "gpu", "mig_profile", "session"};
	struct error err = {0};
	int found = 0;

	if (container_wanted(sources, 3, &wanted, &err) < 0) {
		refused(&err);
		if (wanted)
			abort();
	}
	for (size_t i = 0; wanted && i < sizeof(sizes) / sizeof(*sizes); i++)
		found += json_is_string(json_object_get(wanted, sizes[i]));
	if (wanted && found != 1)
		abort();
	json_decref(wanted);
	json_decref(list);
}

/* The addition leaves JSON, in which the last rule lets the device be opened. */
static void json_check(const char *text, size_t size)
{
	json_t *json = json_loadb(text, size, JSON_DECODE_INT_AS_REAL, NULL);

	if (!json)
		abort();
	json_decref(json);
}

/* Texts need not be JSON; what is JSON stays so. */
static void fuzz_parts(const char *data, size_t data_size)
{
	char *text = strndup(data, data_size), *made = malloc(data_size + 64);
	size_t size = strlen(text), reduced_size;
	json_t *json = json_loadb(text, size, JSON_DECODE_INT_AS_REAL, NULL);
	const char *lists;
	size_t at = oci_lists_missing(text, &lists);
	int length = snprintf(made, data_size + 64, "%.*s%s%s", (int)at, text, lists, text + at);
	char *reduced = oci_seccomp_drop(text, size, &reduced_size);

	if (json) {
		json_check(made, (size_t)length);
		json_check(reduced, reduced_size);
	}
	size = oci_installed_hooks_drop(text, size);
	if (json)
		json_check(text, size);
	json_decref(json);
	free(reduced);
	free(made);
	free(text);
}

static void fuzz_splice(const char *text, size_t size)
{
	const struct oci_device device = {"/dev/nvidia3", 195, 3, 0666};
	size_t made_size = 0;
	char *made = oci_devices_splice(text, size, &device, 1, &made_size);
	json_t *json = made ? json_loadb(made, made_size, JSON_DECODE_INT_AS_REAL, NULL) : NULL;

	if (made && (!json || !oci_config_allows(json, 195, 3)))
		abort();
	json_decref(json);
	free(made);
	made = oci_hook_splice(text, size, "{\"path\":\"/bin/carve-hook\"}", &made_size);
	json = made ? json_loadb(made, made_size, JSON_DECODE_INT_AS_REAL, NULL) : NULL;
	if (made && (!json || !oci_config_has_hook(json)))
		abort();
	json_decref(json);
	free(made);
}

/* A container's variables. */
static void fuzz_limits(const char *text, size_t size)
{
	json_t *list = json_loadb(text, size, 0, NULL);
	json_t *gpus = json_pack("[{s:i, s:s}]", "index", 0, "uuid", "GPU-1");
	struct container_limits limits;
	char ids[CONTAINER_GPU_IDS_SIZE];
	struct error err = {0};
	size_t count;

	if (container_limits_read(list, &limits, &err) < 0)
		refused(&err);
	else if (container_limits_percent(&limits, 64) > 100)
		abort();
	else if (container_limits_gpus(limits.visible, gpus, ids, &count, &err) < 0)
		refused(&err);
	json_decref(gpus);
	json_decref(list);
}

static void fuzz_name(const char *text)
{
	char device[CDI_NAME_MAX + 1];

	if ((cdi_file_session(text, device) || cdi_file_named(text, device)) &&
	    (!cdi_name_valid(device) || strchr(device, '/')))
		abort();
	(void)cdi_name_valid(text);
}

static void fuzz_image(const char *text)
{
	char file[160];

	if (oci_labels_file(text, file, sizeof(file)) && strspn(text, "0123456789abcdef") != 64)
		abort();
}

static void fuzz_containerd(const char *text, size_t size)
{
	json_t *labels = NULL;

	if (containerd_answer_parse((const uint8_t *)text, size, &labels) < 0 && labels)
		abort();
	json_decref(labels);
}

static void fuzz_place(const char *bundle)
{
	struct containerd_place place;

	if (containerd_place(bundle, &place) &&
	    (!*place.namespace || !*place.id || strchr(place.id, '/')))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	char *text = strndup((const char *)data + 1, size - 1);

	switch (data[0]) {
	case 's':
		fuzz_state((const char *)data + 1, size - 1);
		break;
	case 'c':
		fuzz_config((const char *)data + 1, size - 1);
		break;
	case 'd':
		fuzz_splice((const char *)data + 1, size - 1);
		fuzz_parts((const char *)data + 1, size - 1);
		break;
	case 'e':
		fuzz_limits((const char *)data + 1, size - 1);
		break;
	case 'l':
		fuzz_labels((const char *)data + 1, size - 1);
		break;
	case 'n':
		fuzz_name(text);
		break;
	case 'i':
		fuzz_image(text);
		break;
	case 'p':
		fuzz_place(text);
		break;
	case 'g':
		fuzz_containerd((const char *)data + 1, size - 1);
		break;
	default:
		break;
	}
	free(text);
	return 0;
}
