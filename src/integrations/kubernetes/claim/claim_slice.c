#include "integrations/kubernetes/claim/claim_slice.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "integrations/kubernetes/api/api.h"
#include "integrations/kubernetes/claim/carved.h"
#include "integrations/kubernetes/claim/checkpoint.h"
#include "integrations/kubernetes/object/device.h"

#define ROOM_PAUSE_NS 200000000L
#define SECOND_NS 1000000000ull

int claim_slice_id(char ret[static 16])
{
	static const char letters[] = "abcdefghjkmnpqrstuvwxyz23456789";
	unsigned char random[13];

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return -EIO;
	memcpy(ret, "s-", 2);
	for (size_t i = 0; i < sizeof(random); i++)
		ret[2 + i] = letters[random[i] % (sizeof(letters) - 1)];
	ret[15] = '\0';
	return 0;
}

/* The place of a slice's instances, as [GPU, memory unit]. NULL with *err. */
static json_t *instance_places(const struct stored_claim *stored, const struct stored_slice *at,
			       const struct device_gpu *gpus, size_t gpu_count,
			       const char **ret_profile, struct error *err)
{
	json_t *places = json_array();
	const struct device_profile *profile;
	unsigned start;

	*ret_profile = NULL;
	for (size_t i = at->first; i < at->end; i++) {
		const struct claim_device *device = &stored->claim.device[i];
		const struct device_gpu *gpu =
			device_instance_find(gpus, gpu_count, device->name, &profile, &start);

		if (!gpu)
			error_set(err, EXIT_CODE_FAILED, "this node has no device %s",
				  device->name);
		else if (*ret_profile && strcmp(*ret_profile, profile->name) != 0)
			error_set(err, EXIT_CODE_FAILED,
				  "request %s has MIG instances of two profiles, %s and %s",
				  device->request, *ret_profile, profile->name);
		if (!gpu || (*ret_profile && strcmp(*ret_profile, profile->name) != 0)) {
			json_decref(places);
			return NULL;
		}
		*ret_profile = profile->name;
		json_array_append_new(places, json_pack("[i, i]", (int)gpu->index, (int)start));
	}
	return places;
}

static void pod_add(json_t *body, const struct stored_claim *stored)
{
	if (body && *stored->pod)
		json_object_set_new(body, "pod", json_string(stored->pod));
}

/* The request for instances: a claim's devices that are no GPUs. All of them are one session, so it
 * has all or none. NULL with *err. */
static json_t *instance_request(const struct stored_claim *stored, size_t slice,
				const struct device_gpu *gpus, size_t gpu_count, struct error *err)
{
	const struct stored_slice *at = &stored->slice[slice];
	const char *profile;
	char name[64];
	json_t *places = instance_places(stored, at, gpus, gpu_count, &profile, err);

	if (!places)
		return NULL;
	snprintf(name, sizeof(name), DEVICE_SESSION_PREFIX "%.40s.%zu", stored->claim.uid, slice);
	json_t *body = json_pack("{s:s, s:o, s:b, s:s, s:s}", "mig_profile", profile, "mig_places",
				 places, "kept", 1, "id", at->session, "name", name);
	pod_add(body, stored);
	if (!body)
		error_set(err, EXIT_CODE_FAILED, "out of memory");
	return body;
}

json_t *claim_slice_request(const struct stored_claim *stored, size_t slice,
			    const struct device_gpu *gpus, size_t gpu_count, struct error *err)
{
	const struct stored_slice *at = &stored->slice[slice];
	const struct claim_device *first = &stored->claim.device[at->first];
	char ids[CLAIM_DEVICES_MAX * 8] = "", name[64];
	char cores[CLAIM_CORES_SIZE], compute[CLAIM_CORES_SIZE + 1];
	size_t used = 0;

	if (!device_find(gpus, gpu_count, first->name))
		return instance_request(stored, slice, gpus, gpu_count, err);
	for (size_t i = at->first; i < at->end; i++) {
		const char *device = stored->claim.device[i].name;
		const struct device_gpu *gpu = device_find(gpus, gpu_count, device);

		if (!gpu) {
			error_set(err, EXIT_CODE_FAILED, "this node has no device %s", device);
			return NULL;
		}
		used += (size_t)snprintf(ids + used, sizeof(ids) - used, "%s%u", used ? "," : "",
					 gpu->index);
	}
	if (!first->memory) {
		error_set(err, EXIT_CODE_FAILED,
			  "the claim's allocation tells no memory for device %s", first->name);
		error_hint(err, "the feature gate DRAConsumableCapacity must be on");
		return NULL;
	}
	snprintf(name, sizeof(name), DEVICE_SESSION_PREFIX "%.40s.%zu", stored->claim.uid, slice);
	json_t *body = json_pack("{s:I, s:s, s:I, s:b, s:b, s:s, s:s}", "vram_bytes",
				 (json_int_t)first->memory, "gpu_ids", ids, "gpus",
				 (json_int_t)(at->end - at->first), "vram_strict", 1, "kept", 1,
				 "id", at->session, "name", name);
	snprintf(compute, sizeof(compute), "%s%%", claim_cores_format(first->share_ppm, cores));
	if (body && first->share_ppm)
		json_object_set_new(body, "gpu_compute", json_string(compute));
	pod_add(body, stored);
	if (!body)
		error_set(err, EXIT_CODE_FAILED, "out of memory");
	return body;
}

int claim_slice_make(struct carved *carved, const struct api *api, const json_t *body,
		     unsigned seconds, json_t **ret, struct error *err)
{
	uint64_t until = now_monotonic_ns() + seconds * SECOND_NS;
	int rc;

	for (;;) {
		*err = (struct error){0};
		rc = carved_call(carved, "POST", "/v1/sessions", body, ret, err);
		/* carved's own hint is for those who type commands. */
		if (rc < 0 && err->code == EXIT_CODE_NO_ROOM)
			error_hint(err, "the kubelet asks again");
		if (rc == 0 || err->code != EXIT_CODE_NO_ROOM || now_monotonic_ns() > until ||
		    !api_goes_on(api))
			return rc;
		nanosleep(&(struct timespec){.tv_nsec = ROOM_PAUSE_NS}, NULL);
	}
}

bool claim_slice_lives(const json_t *sessions, const char *id)
{
	const json_t *session;
	size_t i;

	json_array_foreach((json_t *)sessions, i, session)
	{
		const char *its = json_string_value(json_object_get(session, "id"));

		if (its && !strcmp(its, id))
			return true;
	}
	return false;
}

int claim_slice_release(struct carved *carved, const json_t *sessions, const char *id, bool force,
			struct error *err)
{
	char path[64];

	if (!claim_slice_lives(sessions, id))
		return 0;
	snprintf(path, sizeof(path), "/v1/sessions/%s%s", id, force ? "?force=1" : "");
	return carved_call(carved, "DELETE", path, NULL, NULL, err);
}
