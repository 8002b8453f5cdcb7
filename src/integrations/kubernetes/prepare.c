#include "integrations/kubernetes/prepare.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/kill_point.h"
#include "container/json_file.h"
#include "daemon/host/log.h"
#include "integrations/kubernetes/device.h"

#define API_TIMEOUT_MS 8000L
#define ROOM_PAUSE_NS 200000000L
#define SECOND_NS 1000000000ull

/* ---- one call a claim -------------------------------------------------------------------- */

static char *busy_find(struct prepare *prepare, const char *uid)
{
	for (size_t i = 0; i < PREPARE_BUSY_MAX; i++)
		if (!strcmp(prepare->busy[i], uid))
			return prepare->busy[i];
	return NULL;
}

/* 0 or -ETIMEDOUT. */
static int claim_lock(struct prepare *prepare, const char *uid)
{
	struct timespec until;
	int rc = 0;
	char *entry;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PREPARE_SECONDS;
	pthread_mutex_lock(&prepare->lock);
	while (rc == 0 && (busy_find(prepare, uid) || !busy_find(prepare, "")))
		rc = pthread_cond_timedwait(&prepare->freed, &prepare->lock, &until);
	entry = rc == 0 ? busy_find(prepare, "") : NULL;
	if (entry)
		snprintf(entry, CLAIM_LABEL_SIZE, "%s", uid);
	pthread_mutex_unlock(&prepare->lock);
	return entry ? 0 : -ETIMEDOUT;
}

static void claim_unlock(struct prepare *prepare, const char *uid)
{
	pthread_mutex_lock(&prepare->lock);
	char *entry = busy_find(prepare, uid);
	if (entry)
		*entry = '\0';
	pthread_cond_broadcast(&prepare->freed);
	pthread_mutex_unlock(&prepare->lock);
}

static int busy_error(struct error *err)
{
	return error_set(err, EXIT_CODE_FAILED, "an earlier call for this claim has not ended");
}

/* The UID names files. */
static int uid_check(const struct prepare_claim *claim, struct error *err)
{
	if (claim_label_valid(claim->uid) && claim_label_valid(claim->namespace) && *claim->name &&
	    strlen(claim->name) < CLAIM_NAME_SIZE && !strpbrk(claim->name, "/?#%& "))
		return 0;
	return error_set(err, EXIT_CODE_USAGE, "'%.63s' of '%.63s/%.63s' is no claim", claim->uid,
			 claim->namespace, claim->name);
}

static void spec_name(const char *uid, char buf[static CLAIM_LABEL_SIZE + 16])
{
	snprintf(buf, CLAIM_LABEL_SIZE + 16, "carve-claim-%s", uid);
}

/* ---- sessions ---------------------------------------------------------------------------- */

/* 13 characters of 31: nobody guesses it. */
static int session_id_make(char ret[static 16])
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
	if (!body)
		error_set(err, EXIT_CODE_FAILED, "out of memory");
	return body;
}

/* The request for a slice. NULL with *err where the claim does not fit this node. */
static json_t *slice_request(const struct stored_claim *stored, size_t slice,
			     const struct device_gpu *gpus, size_t gpu_count, struct error *err)
{
	const struct stored_slice *at = &stored->slice[slice];
	const struct claim_device *first = &stored->claim.device[at->first];
	char ids[CLAIM_DEVICES_MAX * 8] = "", name[64], compute[16];
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
	snprintf(compute, sizeof(compute), "%u%%", first->cores);
	if (body && first->cores)
		json_object_set_new(body, "gpu_compute", json_string(compute));
	if (!body)
		error_set(err, EXIT_CODE_FAILED, "out of memory");
	return body;
}

/* Asks until there is room, or the time for that is over. */
static int session_make(struct prepare *prepare, const json_t *body, struct error *err)
{
	uint64_t until = now_monotonic_ns() + PREPARE_ROOM_SECONDS * SECOND_NS;
	int rc;

	for (;;) {
		*err = (struct error){0};
		rc = carved_call(prepare->carved, "POST", "/v1/sessions", body, NULL, err);
		if (rc == 0 || err->code != EXIT_CODE_NO_ROOM || now_monotonic_ns() > until)
			return rc;
		nanosleep(&(struct timespec){.tv_nsec = ROOM_PAUSE_NS}, NULL);
	}
}

static bool session_lives(const json_t *sessions, const char *id)
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

/* Ends a session if it is in the list of those that live. 0, or negative with *err. */
static int session_release(struct prepare *prepare, const json_t *sessions, const char *id,
			   bool force, struct error *err)
{
	char path[64];

	if (!session_lives(sessions, id))
		return 0;
	snprintf(path, sizeof(path), "/v1/sessions/%s%s", id, force ? "?force=1" : "");
	return carved_call(prepare->carved, "DELETE", path, NULL, NULL, err);
}

/* ---- preparing --------------------------------------------------------------------------- */

static int gpus_read(struct prepare *prepare, json_t **ret_json, struct device_gpu *gpus,
		     size_t *ret_count, struct error *err)
{
	cleanup_json json_t *sessions = json_array();
	int rc = carved_call(prepare->carved, "GET", "/v1/gpus", NULL, ret_json, err);

	return rc < 0 ? rc : device_gpus_parse(*ret_json, sessions, gpus, ret_count, err);
}

/* The claim as the API server has it now. */
static int claim_read(struct prepare *prepare, const struct prepare_claim *claim, struct claim *ret,
		      struct error *err)
{
	char path[3 * CLAIM_NAME_SIZE];
	struct api_call call = {.method = "GET", .path = path, .timeout_ms = API_TIMEOUT_MS};
	cleanup_json json_t *json = NULL;
	long status;

	snprintf(path, sizeof(path), "/apis/resource.k8s.io/v1/namespaces/%s/resourceclaims/%s",
		 claim->namespace, claim->name);
	int rc = api_call(prepare->api, &call, &status, &json, err);
	if (rc < 0)
		return rc;
	if (status != 200)
		return api_status_error(&call, status, json, err);
	rc = claim_parse(json, prepare->driver, ret, err);
	if (rc == 0 && strcmp(ret->uid, claim->uid) != 0)
		return error_set(err, EXIT_CODE_FAILED,
				 "claim %.100s was replaced: its UID is %s now, not %s",
				 claim->name, ret->uid, claim->uid);
	for (size_t i = 0; rc == 0 && i < ret->count; i++)
		if (strcmp(ret->device[i].pool, prepare->node) != 0)
			rc = error_set(err, EXIT_CODE_FAILED,
				       "device %s is of node %.100s, not of this one",
				       ret->device[i].name, ret->device[i].pool);
	return rc;
}

/* Chooses the slices and their sessions' IDs. */
static int slices_choose(struct stored_claim *stored, struct error *err)
{
	stored->slices = 0;
	for (size_t first = 0, end; first < stored->claim.count; first = end) {
		struct stored_slice *slice = &stored->slice[stored->slices++];
		int rc = claim_slice_end(&stored->claim, first, &end, err);

		if (rc < 0)
			return rc;
		if (session_id_make(slice->session) < 0)
			return error_set(err, EXIT_CODE_FAILED, "the kernel has no random bytes");
		slice->first = first;
		slice->end = end;
	}
	return 0;
}

/* The GPU of a claim's device, or the one that its instance is on; NULL: this node has none. */
static const struct device_gpu *device_owner(const char *name, const struct device_gpu *gpus,
					     size_t count)
{
	const struct device_gpu *gpu = device_find(gpus, count, name);
	const struct device_profile *profile;
	unsigned start;

	return gpu ? gpu : device_instance_find(gpus, count, name, &profile, &start);
}

/* The slice's GPUs, as carved lists them. */
static json_t *slice_gpus(const struct stored_claim *stored, const struct stored_slice *slice,
			  const struct device_gpu *gpus, size_t count, const json_t *gpus_json)
{
	json_t *list = json_array();

	for (size_t i = slice->first; i < slice->end; i++) {
		const struct device_gpu *gpu =
			device_owner(stored->claim.device[i].name, gpus, count);

		if (gpu)
			json_array_append(list, json_array_get(gpus_json, (size_t)(gpu - gpus)));
	}
	return list;
}

/* A slice that was made before stays as it is. */
static int modes_check(const struct stored_claim *stored, const struct device_gpu *gpus,
		       size_t count, struct error *err)
{
	for (size_t i = 0; stored->state == STORED_PREPARING && i < stored->claim.count; i++) {
		const struct device_gpu *gpu =
			device_owner(stored->claim.device[i].name, gpus, count);
		const char *problem = gpu ? device_mode_problem(gpu) : NULL;

		if (!problem)
			continue;
		error_set(err, EXIT_CODE_FAILED, "GPU %u is in compute mode %s", gpu->index,
			  problem);
		error_hint(err, "as root on the node: nvidia-smi --compute-mode=0");
		return -EXIT_CODE_FAILED;
	}
	return 0;
}

/* GPUs that others may count as free are reserved before anything is granted of them. */
static int gpus_reserve(struct prepare *prepare, const struct stored_claim *stored,
			const struct device_gpu *gpus, size_t count, struct error *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < stored->claim.count; i++) {
		/* An instance needs all of its GPU, too: a device plugin may hand out others of it.
		 */
		const struct device_gpu *gpu =
			device_owner(stored->claim.device[i].name, gpus, count);

		if (gpu)
			rc = reserve_hold(&prepare->reserve, gpu->uuid, err);
	}
	/* Memory that was reserved before is so still, as far as anybody can tell. */
	if (rc < 0 && err->code == EXIT_CODE_UNREACHABLE && stored->state == STORED_PREPARED) {
		log_event(LOG_WARNING, "reservation.unknown error=\"%s\"", err->message);
		return 0;
	}
	return rc;
}

/* The first of a slice's GPUs that is this one and has no instance yet. NULL: there is none. */
static json_t *gpu_without_instance(const json_t *of_slice, json_int_t index)
{
	json_t *gpu;
	size_t i;

	json_array_foreach((json_t *)of_slice, i, gpu)
	{
		if (json_integer_value(json_object_get(gpu, "index")) == index &&
		    !json_object_get(gpu, "gpu_instance"))
			return gpu;
	}
	return NULL;
}

/* Adds to the GPUs of a slice of MIG instances which ones they are. */
static int instances_add(struct prepare *prepare, const char *session, json_t *of_slice,
			 struct error *err)
{
	cleanup_json json_t *instances = NULL;
	json_t *instance, *gpu;
	int rc = carved_call(prepare->carved, "GET", "/v1/mig", NULL, &instances, err);
	size_t i;

	/* One GPU may be there twice. */
	for (i = 0; i < json_array_size(of_slice); i++)
		json_array_set_new(of_slice, i, json_copy(json_array_get(of_slice, i)));
	json_array_foreach(instances, i, instance)
	{
		const char *its = json_string_value(json_object_get(instance, "session"));
		json_int_t index = json_integer_value(json_object_get(instance, "gpu"));

		if (!its || strcmp(its, session) != 0 ||
		    !(gpu = gpu_without_instance(of_slice, index)))
			continue;
		json_object_set(gpu, "gpu_instance", json_object_get(instance, "gpu_instance"));
		json_object_set(gpu, "compute_instance",
				json_object_get(instance, "compute_instance"));
	}
	return rc;
}

/* Makes the sessions that are not there yet, and writes the spec. */
static int slices_make(struct prepare *prepare, struct stored_claim *stored, struct error *err)
{
	struct device_gpu gpus[DEVICE_GPUS_MAX];
	cleanup_json json_t *gpus_json = NULL, *of_slices = json_array(), *spec = NULL;
	char name[CLAIM_LABEL_SIZE + 16];
	size_t count = 0;
	int rc = gpus_read(prepare, &gpus_json, gpus, &count, err);

	if (rc == 0)
		rc = modes_check(stored, gpus, count, err);
	if (rc == 0)
		rc = gpus_reserve(prepare, stored, gpus, count, err);
	for (size_t i = 0; rc == 0 && i < stored->slices; i++) {
		cleanup_json json_t *body = slice_request(stored, i, gpus, count, err);

		rc = body ? session_make(prepare, body, err) : -1;
		kill_point("prepare.session");
		json_t *of_slice = slice_gpus(stored, &stored->slice[i], gpus, count, gpus_json);
		if (rc == 0 && json_object_get(body, "mig_profile"))
			rc = instances_add(prepare, stored->slice[i].session, of_slice, err);
		json_array_append_new(of_slices, of_slice);
	}
	if (rc == 0)
		rc = cdi_claim_spec(prepare->driver, stored, &prepare->host, of_slices, &spec, err);
	if (rc < 0)
		return rc;
	kill_point("prepare.files");
	spec_name(stored->claim.uid, name);
	rc = json_file_write(prepare->cdi, name, spec, 0644, err);
	kill_point("prepare.spec");
	return rc;
}

static int stored_write(struct prepare *prepare, const struct stored_claim *stored,
			struct error *err)
{
	cleanup_json json_t *json = checkpoint_claim_json(stored);

	if (!json)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	return json_file_write(prepare->claims, stored->claim.uid, json, 0600, err);
}

/* 0, -ENOENT, or negative with *err. A file that cannot be read is no claim that is prepared, and
 * its sessions are not known: an administrator has to look. */
static int stored_read(struct prepare *prepare, const char *uid, struct stored_claim *ret,
		       struct error *err)
{
	cleanup_json json_t *json = NULL;
	int rc = json_file_read(prepare->claims, uid, &json, err);

	if (rc == 0 && checkpoint_claim_parse(json, ret) < 0)
		return error_set(err, EXIT_CODE_FAILED, "%.200s/%s.json is damaged",
				 prepare->claims, uid);
	return rc;
}

static int slices_release(struct prepare *prepare, const struct stored_claim *stored, bool force,
			  struct error *err)
{
	char name[CLAIM_LABEL_SIZE + 16];
	cleanup_json json_t *sessions = NULL;
	int rc = carved_sessions(prepare->carved, &sessions, err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < stored->slices; i++) {
		struct error one = {0};
		int failed =
			session_release(prepare, sessions, stored->slice[i].session, force, &one);

		if (failed < 0) {
			rc = failed;
			*err = one;
			continue;
		}
		kill_point("release.session");
		cdi_slice_remove(&prepare->host, stored->slice[i].session);
	}
	kill_point("release.files");
	spec_name(stored->claim.uid, name);
	if (rc == 0)
		rc = json_file_remove(prepare->cdi, name, err);
	kill_point("release.spec");
	if (rc == 0)
		rc = json_file_remove(prepare->claims, stored->claim.uid, err);
	kill_point("release.released");
	return rc;
}

/* A claim of which nothing is known yet. */
static int claim_begin(struct prepare *prepare, const struct prepare_claim *claim,
		       struct stored_claim *ret, struct error *err)
{
	ret->state = STORED_PREPARING;
	snprintf(ret->namespace, sizeof(ret->namespace), "%s", claim->namespace);
	snprintf(ret->name, sizeof(ret->name), "%s", claim->name);
	int rc = claim_read(prepare, claim, &ret->claim, err);
	if (rc == 0)
		rc = slices_choose(ret, err);
	kill_point("prepare.chosen");
	/* The IDs are on disk before the sessions exist, so that none is ever forgotten. */
	if (rc == 0)
		rc = stored_write(prepare, ret, err);
	kill_point("prepare.begun");
	return rc;
}

/* Sessions of a claim that was prepared may have ended, as with the host's last life. An ID is used
 * once, so those get new ones. */
static int sessions_renew(struct prepare *prepare, struct stored_claim *stored, struct error *err)
{
	cleanup_json json_t *sessions = NULL;
	int rc = carved_sessions(prepare->carved, &sessions, err);
	bool any = false;

	for (size_t i = 0; rc == 0 && i < stored->slices; i++) {
		if (session_lives(sessions, stored->slice[i].session))
			continue;
		cdi_slice_remove(&prepare->host, stored->slice[i].session);
		any = true;
		if (session_id_make(stored->slice[i].session) < 0)
			rc = error_set(err, EXIT_CODE_FAILED, "the kernel has no random bytes");
	}
	return rc == 0 && any ? stored_write(prepare, stored, err) : rc;
}

static int claim_prepare_once(struct prepare *prepare, const struct prepare_claim *claim,
			      struct stored_claim *ret, struct error *err)
{
	struct error ignored = {0};
	int rc = stored_read(prepare, claim->uid, ret, err);

	if (rc == -ENOENT)
		rc = claim_begin(prepare, claim, ret, err);
	else if (rc == 0)
		rc = sessions_renew(prepare, ret, err);
	if (rc < 0)
		return rc;
	/* Also where it was prepared before: /run is empty after a boot. A request with an ID that
	 * is granted already is answered with that session. */
	rc = slices_make(prepare, ret, err);
	if (rc < 0) {
		if (ret->state == STORED_PREPARING)
			(void)slices_release(prepare, ret, true, &ignored);
		return rc;
	}
	if (ret->state == STORED_PREPARED)
		return 0;
	ret->state = STORED_PREPARED;
	rc = stored_write(prepare, ret, err);
	kill_point("prepare.prepared");
	return rc;
}

/* Again where a server is away, as a repeated call may be. */
static int claim_prepare(struct prepare *prepare, const struct prepare_claim *claim,
			 struct stored_claim *ret, struct error *err)
{
	uint64_t until = now_monotonic_ns() + PREPARE_ROOM_SECONDS * SECOND_NS;
	int rc;

	for (;;) {
		*err = (struct error){0};
		*ret = (struct stored_claim){0};
		rc = claim_prepare_once(prepare, claim, ret, err);
		if (rc >= 0 || err->code != EXIT_CODE_UNREACHABLE || now_monotonic_ns() > until)
			return rc;
		nanosleep(&(struct timespec){.tv_nsec = ROOM_PAUSE_NS}, NULL);
	}
}

int prepare_claim(struct prepare *prepare, const struct prepare_claim *claim,
		  struct stored_claim *ret, struct error *err)
{
	int rc = uid_check(claim, err);

	*ret = (struct stored_claim){0};
	if (rc < 0)
		return rc;
	if (claim_lock(prepare, claim->uid) < 0)
		return busy_error(err);
	rc = claim_prepare(prepare, claim, ret, err);
	claim_unlock(prepare, claim->uid);
	if (rc < 0)
		log_event(LOG_WARNING, "claim.failed uid=%s namespace=%s name=%s error=\"%s\"",
			  claim->uid, claim->namespace, claim->name, err->message);
	else
		log_event(LOG_INFO, "claim.prepared uid=%s namespace=%s name=%s slices=%zu",
			  claim->uid, claim->namespace, claim->name, ret->slices);
	return rc;
}

/* ---- releasing --------------------------------------------------------------------------- */

static int claim_release(struct prepare *prepare, const char *uid, bool force, struct error *err)
{
	struct stored_claim stored = {0};

	if (claim_lock(prepare, uid) < 0)
		return busy_error(err);
	int rc = stored_read(prepare, uid, &stored, err);
	if (rc == 0)
		rc = slices_release(prepare, &stored, force, err);
	claim_unlock(prepare, uid);
	/* Of the last claim of a GPU. */
	if (rc == 0)
		reserve_tidy(&prepare->reserve);
	return rc == -ENOENT ? 0 : rc;
}

int prepare_release(struct prepare *prepare, const struct prepare_claim *claim, struct error *err)
{
	int rc = uid_check(claim, err);

	if (rc == 0)
		rc = claim_release(prepare, claim->uid, true, err);
	if (rc < 0)
		log_event(LOG_WARNING, "claim.not_released uid=%s error=\"%s\"", claim->uid,
			  err->message);
	else
		log_event(LOG_INFO, "claim.released uid=%s namespace=%s name=%s", claim->uid,
			  claim->namespace, claim->name);
	return rc;
}

/* Whether the API server says that this very claim is gone. */
static bool claim_is_gone(struct prepare *prepare, const struct stored_claim *stored)
{
	char path[3 * CLAIM_NAME_SIZE];
	struct api_call call = {.method = "GET", .path = path, .timeout_ms = API_TIMEOUT_MS};
	cleanup_json json_t *json = NULL;
	struct error ignored = {0};
	long status;

	snprintf(path, sizeof(path), "/apis/resource.k8s.io/v1/namespaces/%s/resourceclaims/%s",
		 stored->namespace, stored->name);
	if (api_call(prepare->api, &call, &status, &json, &ignored) < 0)
		return false;
	const char *uid =
		json_string_value(json_object_get(json_object_get(json, "metadata"), "uid"));
	return (status == 404 && json) ||
	       (status == 200 && uid && strcmp(uid, stored->claim.uid) != 0);
}

/* Calls for each claim that has a checkpoint. Returns for how many it was true. */
static unsigned claims_each(struct prepare *prepare,
			    bool (*each)(struct prepare *prepare, const struct stored_claim *stored,
					 void *arg),
			    void *arg)
{
	DIR *dir = opendir(prepare->claims);
	struct stored_claim stored = {0};
	struct error err = {0};
	unsigned count = 0;

	if (!dir)
		return 0;
	// NOLINTNEXTLINE(concurrency-mt-unsafe): glibc's is safe for a stream of one's own
	for (struct dirent *entry; (entry = readdir(dir));) {
		char uid[CLAIM_LABEL_SIZE + 8];

		if (snprintf(uid, sizeof(uid), "%s", entry->d_name) >= (int)sizeof(uid))
			continue;
		char *end = strstr(uid, ".json");
		if (!end || end[5])
			continue;
		*end = '\0';
		if (claim_label_valid(uid) && stored_read(prepare, uid, &stored, &err) == 0)
			count += each(prepare, &stored, arg);
	}
	closedir(dir);
	return count;
}

static bool collect_one(struct prepare *prepare, const struct stored_claim *stored, void *arg)
{
	struct error err = {0};

	if (!claim_is_gone(prepare, stored) ||
	    claim_release(prepare, stored->claim.uid, false, &err) < 0)
		return false;
	log_event(LOG_INFO, "claim.collected uid=%s namespace=%s name=%s", stored->claim.uid,
		  stored->namespace, stored->name);
	return true;
}

unsigned prepare_collect(struct prepare *prepare)
{
	unsigned count = claims_each(prepare, collect_one, NULL);

	reserve_tidy(&prepare->reserve);
	return count;
}

/* A device's name is its GPU's UUID in small letters, and an instance's begins with it. */
static bool wants_one(struct prepare *prepare, const struct stored_claim *stored, void *arg)
{
	const char *uuid = arg;
	size_t length = strlen(uuid);

	for (size_t i = 0; i < stored->claim.count; i++) {
		const char *name = stored->claim.device[i].name;

		if (!strncasecmp(name, uuid, length) && (!name[length] || name[length] == '-'))
			return true;
	}
	return false;
}

bool prepare_wants(void *arg, const char *uuid)
{
	return claims_each(arg, wants_one, (void *)uuid) > 0;
}

static bool restore_one(struct prepare *prepare, const struct stored_claim *stored, void *arg)
{
	struct stored_claim now;
	struct error err = {0};

	return stored->state == STORED_PREPARED &&
	       prepare_claim(prepare,
			     &(struct prepare_claim){.namespace = stored->namespace,
						     .name = stored->name,
						     .uid = stored->claim.uid},
			     &now, &err) < 0;
}

unsigned prepare_restore(struct prepare *prepare)
{
	return claims_each(prepare, restore_one, NULL);
}
