/* What carve-kubernetes reads of others, by the first byte: the kubelet's messages, claims of the
 * API server, checkpoints, quantities and names of templates. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "client/client.h"
#include "integrations/kubernetes/checkpoint.h"
#include "integrations/kubernetes/claim.h"
#include "integrations/kubernetes/device.h"
#include "integrations/kubernetes/grpc_private.h"
#include "integrations/kubernetes/quantity.h"
#include "integrations/kubernetes/template.h"
#include "messages.pb-c.h"

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
	case 'g':
		(void)device_gpus_parse(json_array_get(json, 0), json_array_get(json, 1), gpus,
					&count, &err);
		break;
	default:
		fuzz_text(text);
	}
	free(text);
	return 0;
}
