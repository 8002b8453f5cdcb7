/* The texts of others that carve-kubernetes reads, by the first byte. They are the kubelet's
 * messages, claims of the API server, checkpoints, quantities, names of templates, pod templates
 * and the states of pods. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "client/client.h"
#include "integrations/kubernetes/claim/checkpoint.h"
#include "integrations/kubernetes/grpc/grpc_private.h"
#include "integrations/kubernetes/object/claim.h"
#include "integrations/kubernetes/object/device.h"
#include "integrations/kubernetes/object/quantity.h"
#include "integrations/kubernetes/object/slices.h"
#include "integrations/kubernetes/object/template.h"
#include "integrations/kubernetes/object/yaml_json.h"
#include "integrations/kubernetes/pod/pod_template.h"
#include "integrations/kubernetes/pod/run.h"
#include "integrations/kubernetes/pod/run_pod.h"
#include "messages.pb-c.h"

/* Each instance that is published is found again by its name, whatever carved says. */
static void fuzz_slices(const json_t *json, struct device_gpu *gpus, size_t count)
{
	const struct slices_owner owner = {.driver = "d", .node = "n", .node_uid = "u"};
	char name[DEVICE_NAME_SIZE];
	const struct device_profile *profile;
	unsigned start;

	device_instances_take(json_array_get(json, 2), json_array_get(json, 1), gpus, count);
	json_decref(slices_build(&owner, gpus, count));
	for (size_t i = 0; i < count; i++)
		for (size_t p = 0; p < gpus[i].profiles; p++)
			if (gpus[i].profile[p].starts &&
			    device_instance_name(&gpus[i], &gpus[i].profile[p],
						 (unsigned)__builtin_ctz(gpus[i].profile[p].starts),
						 name) &&
			    !device_instance_find(gpus, count, name, &profile, &start))
				abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_message(const uint8_t *data, size_t size)
{
	const uint8_t *message;
	size_t length;

	if (grpc_message_find(data, size, &message, &length) < 0)
		return;
	Kubelet__ClaimsRequest *claims = kubelet__claims_request__unpack(NULL, length, message);
	Kubelet__RegistrationStatus *status =
		kubelet__registration_status__unpack(NULL, length, message);
	if (claims)
		kubelet__claims_request__free_unpacked(claims, NULL);
	if (status)
		kubelet__registration_status__free_unpacked(status, NULL);
}

static void fuzz_claim(const json_t *json)
{
	struct claim claim;
	struct error err = {0};

	if (claim_parse(json, "gpu.carve.dev", &claim, &err) < 0) {
		if (!err.message[0])
			abort();
		return;
	}
	for (size_t first = 0, end; first < claim.count; first = end)
		if (claim_slice_end(&claim, first, &end, &err) < 0 || end <= first)
			break;
}

static void fuzz_checkpoint(const json_t *json)
{
	struct stored_claim stored;

	if (checkpoint_claim_parse(json, &stored) < 0)
		return;
	cleanup_json json_t *again = checkpoint_claim_json(&stored);
	if (checkpoint_claim_parse(again, &stored) < 0)
		abort();
}

static void fuzz_text(const char *text)
{
	struct template_size size;
	uint64_t value;

	(void)quantity_parse(text, &value);
	if (template_parse(text, &size) == 0 && (!size.gpu_count || (!size.share && !size.memory)))
		abort();
}

/* A file of --pod-template, and the pod of each of its queues. A refused text has its message. */
static void fuzz_pod_template(const char *text, size_t size)
{
	static char *const command[] = {(char *)"true", NULL};
	struct run_options options = {.command = command, .image = "i", .fraction = "0.5"};
	cleanup_json json_t *file = NULL, *template = NULL, *pod = NULL;
	struct error err = {0};

	if (yaml_json_load(text, size, &file, &err) < 0 ||
	    pod_template_parse(file, &template, &err) < 0) {
		if (!err.message[0])
			abort();
		return;
	}
	if (run_pod_make(pod_template_of(template, "q"), &options, "p", &pod, &err) < 0)
		return;
	const json_t *spec = json_object_get(pod, "spec");
	if (!json_is_array(json_object_get(spec, "containers")) ||
	    strcmp(json_string_value(json_object_get(spec, "restartPolicy")), "Never") != 0)
		abort();
}

static void fuzz_pod(const json_t *pod)
{
	int code;

	if (run_pod_phase(pod, &code) == RUN_ENDED && code > 255)
		abort();
	if (!run_pod_reason(pod))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	char *text = strndup((const char *)data + 1, size - 1);
	cleanup_json json_t *json = json_loadb((const char *)data + 1, size - 1, 0, NULL);
	struct device_gpu gpus[DEVICE_GPUS_MAX];
	struct error err = {0};
	size_t count;

	switch (data[0]) {
	case 'm':
		fuzz_message(data + 1, size - 1);
		break;
	case 'c':
		fuzz_claim(json);
		break;
	case 'k':
		fuzz_checkpoint(json);
		break;
	case 'y':
		fuzz_pod_template((const char *)data + 1, size - 1);
		break;
	case 'p':
		fuzz_pod(json);
		break;
	case 'g':
		if (device_gpus_parse(json_array_get(json, 0), json_array_get(json, 1), gpus,
				      &count, &err) == 0)
			fuzz_slices(json, gpus, count);
		break;
	default:
		fuzz_text(text);
	}
	free(text);
	return 0;
}
