#include "integrations/kubernetes/claim/prepare.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/kill_point.h"
#include "container/json_file.h"
#include "daemon/host/log.h"
#include "integrations/kubernetes/claim/claim_pod.h"
#include "integrations/kubernetes/claim/claim_slice.h"
#include "integrations/kubernetes/object/device.h"

#define API_TIMEOUT_MS 8000L
#define AGAIN_PAUSE_NS 200000000L
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

/* ---- preparing --------------------------------------------------------------------------- */

static int gpus_read(struct prepare *prepare, struct device_gpu *gpus, size_t *ret_count,
		     struct error *err)
{
	cleanup_json json_t *json = NULL, *sessions = json_array();
	int rc = carved_call(prepare->carved, "GET", "/v1/gpus", NULL, &json, err);

	return rc < 0 ? rc : device_gpus_parse(json, sessions, gpus, ret_count, err);
}

/* The claim as the API server has it now. */
static int claim_read(struct prepare *prepare, const struct prepare_claim *claim,
		      struct stored_claim *stored, struct error *err)
{
	char path[3 * CLAIM_NAME_SIZE];
	struct api_call call = {.method = "GET", .path = path, .timeout_ms = API_TIMEOUT_MS};
	cleanup_json json_t *json = NULL;
	struct claim *ret = &stored->claim;
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
	claim_pod_read(json, stored->pod);
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
		if (claim_slice_id(slice->session) < 0)
			return error_set(err, EXIT_CODE_FAILED, "the kernel has no random bytes");
		slice->first = first;
		slice->end = end;
	}
	return 0;
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

/* Makes the sessions that are not there yet, and writes the spec. */
static int slices_make(struct prepare *prepare, struct stored_claim *stored, struct error *err)
{
	struct device_gpu gpus[DEVICE_GPUS_MAX];
	cleanup_json json_t *sessions = json_array(), *spec = NULL;
	char name[CLAIM_LABEL_SIZE + 16];
	size_t count = 0;
	int rc = gpus_read(prepare, gpus, &count, err);

	if (rc == 0)
		rc = modes_check(stored, gpus, count, err);
	if (rc == 0)
		rc = gpus_reserve(prepare, stored, gpus, count, err);
	for (size_t i = 0; rc == 0 && i < stored->slices; i++) {
		cleanup_json json_t *body = claim_slice_request(stored, i, gpus, count, err);
		json_t *session = NULL;

		rc = body ? claim_slice_make(prepare->carved, prepare->api, body,
					     PREPARE_ROOM_SECONDS, &session, err)
			  : -1;
		kill_point("prepare.session");
		if (rc == 0)
			json_array_append_new(sessions, session);
	}
	if (rc == 0)
		rc = cdi_claim_spec(prepare->driver, stored, &prepare->host, sessions, &spec, err);
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
		int failed = claim_slice_release(prepare->carved, sessions,
						 stored->slice[i].session, force, &one);

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
	int rc = claim_read(prepare, claim, ret, err);
	if (rc == 0)
		claim_pod_find_container(prepare, ret->name, ret->pod);
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
		if (claim_slice_lives(sessions, stored->slice[i].session))
			continue;
		cdi_slice_remove(&prepare->host, stored->slice[i].session);
		any = true;
		if (claim_slice_id(stored->slice[i].session) < 0)
			rc = error_set(err, EXIT_CODE_FAILED, "the kernel has no random bytes");
	}
	return rc == 0 && any ? stored_write(prepare, stored, err) : rc;
}

static int claim_prepare_once(struct prepare *prepare, const struct prepare_claim *claim,
			      struct stored_claim *ret, struct error *err)
{
	struct error ignored = {0};
	int rc = stored_read(prepare, claim->uid, ret, err);

	if (rc == -ENOENT && claim->known)
		return 0;
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

/* Whether a call is to be repeated: a server is away, there is time left, and the plugin is not to
 * end. Waits before it says so. */
static bool goes_again(const struct prepare *prepare, uint64_t until, int rc,
		       const struct error *err)
{
	if (rc >= 0 || err->code != EXIT_CODE_UNREACHABLE || now_monotonic_ns() > until ||
	    !api_goes_on(prepare->api))
		return false;
	nanosleep(&(struct timespec){.tv_nsec = AGAIN_PAUSE_NS}, NULL);
	return true;
}

static int claim_prepare(struct prepare *prepare, const struct prepare_claim *claim,
			 struct stored_claim *ret, struct error *err)
{
	uint64_t until = now_monotonic_ns() + PREPARE_ROOM_SECONDS * SECOND_NS;
	int rc;

	do {
		*err = (struct error){0};
		*ret = (struct stored_claim){0};
		rc = claim_prepare_once(prepare, claim, ret, err);
	} while (goes_again(prepare, until, rc, err));
	return rc;
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
	else if (ret->slices)
		log_event(LOG_INFO, "claim.prepared uid=%s namespace=%s name=%s slices=%zu",
			  claim->uid, claim->namespace, claim->name, ret->slices);
	return rc;
}

/* ---- releasing --------------------------------------------------------------------------- */

static int claim_release(struct prepare *prepare, const char *uid, bool force, struct error *err)
{
	uint64_t until = now_monotonic_ns() + PREPARE_ROOM_SECONDS * SECOND_NS;
	struct stored_claim stored = {0};
	int rc;

	if (claim_lock(prepare, uid) < 0)
		return busy_error(err);
	do {
		*err = (struct error){0};
		rc = stored_read(prepare, uid, &stored, err);
		if (rc == 0)
			rc = slices_release(prepare, &stored, force, err);
	} while (goes_again(prepare, until, rc, err));
	claim_unlock(prepare, uid);
	/* Removes the reservation after the last claim of a GPU. */
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

/* Whether the API server says that this very claim is gone; *ret_away: it says nothing. */
static bool claim_is_gone(struct prepare *prepare, const struct stored_claim *stored,
			  bool *ret_away)
{
	char path[3 * CLAIM_NAME_SIZE];
	struct api_call call = {.method = "GET", .path = path, .timeout_ms = API_TIMEOUT_MS};
	cleanup_json json_t *json = NULL;
	struct error ignored = {0};
	long status;

	snprintf(path, sizeof(path), "/apis/resource.k8s.io/v1/namespaces/%s/resourceclaims/%s",
		 stored->namespace, stored->name);
	*ret_away = api_call(prepare->api, &call, &status, &json, &ignored) < 0;
	if (*ret_away)
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

/* After one call without an answer no more are made: each takes seconds, and the GPUs' health is
 * not told meanwhile. */
static bool collect_one(struct prepare *prepare, const struct stored_claim *stored, void *arg)
{
	struct error err = {0};
	bool *away = arg;

	if (*away || !claim_is_gone(prepare, stored, away) ||
	    claim_release(prepare, stored->claim.uid, false, &err) < 0)
		return false;
	log_event(LOG_INFO, "claim.collected uid=%s namespace=%s name=%s", stored->claim.uid,
		  stored->namespace, stored->name);
	return true;
}

unsigned prepare_collect(struct prepare *prepare)
{
	bool away = false;
	unsigned count = claims_each(prepare, collect_one, &away);

	if (!away)
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

static bool has_one(struct prepare *prepare, const struct stored_claim *stored, void *arg)
{
	return stored->state == STORED_PREPARED && wants_one(prepare, stored, arg);
}

bool prepare_has(struct prepare *prepare, const char *uuid)
{
	return claims_each(prepare, has_one, (void *)uuid) > 0;
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
						     .uid = stored->claim.uid,
						     .known = true},
			     &now, &err) < 0;
}

unsigned prepare_restore(struct prepare *prepare)
{
	return claims_each(prepare, restore_one, NULL);
}
