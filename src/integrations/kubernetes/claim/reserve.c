#include "integrations/kubernetes/claim/reserve.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "client/client.h"
#include "daemon/host/log.h"
#include "integrations/kubernetes/object/device.h"

#define CALL_TIMEOUT_MS 8000L
#define LOG_TIMEOUT_MS 3000L
/* A part of the 45 s that the kubelet gives a call. */
#define HOLD_MS 25000
#define PAUSE_NS 300000000L
#define PODS_MAX ((size_t)2 * RESERVE_GPUS_MAX)
#define PATH_SIZE 512
#define NOBODY 65534
#define POD_PREFIX "carve-reservation-"

/* ---- deciding ----------------------------------------------------------------------------- */

enum reserve_step reserve_decide(const struct reserve_pod *pods, size_t count, const char *uuid)
{
	size_t moving = 0, failed = 0, holding = 0;

	for (size_t i = 0; i < count; i++) {
		if (pods[i].state == RESERVE_HOLDS && !strcmp(pods[i].uuid, uuid))
			return RESERVE_DONE;
		moving += pods[i].state == RESERVE_STARTS || pods[i].state == RESERVE_GOING;
		failed += pods[i].state == RESERVE_FAILED;
		holding += pods[i].state == RESERVE_HOLDS;
	}
	if (failed || holding >= RESERVE_GPUS_MAX)
		return RESERVE_EXHAUSTED;
	return moving ? RESERVE_WAIT : RESERVE_MAKE;
}

/* ---- calls -------------------------------------------------------------------------------- */

static int call(struct reserve *reserve, const char *method, const char *path, const json_t *body,
		json_t **ret, struct error *err)
{
	const struct api_call one = {
		.method = method, .path = path, .body = body, .timeout_ms = CALL_TIMEOUT_MS};
	long status = 0;
	int rc = api_call(reserve->api, &one, &status, ret, err);

	if (rc < 0 || status / 100 == 2 || (status == 404 && !strcmp(method, "DELETE")))
		return rc;
	return api_status_error(&one, status, *ret, err);
}

static void pods_path(const struct reserve *reserve, char buf[static PATH_SIZE])
{
	snprintf(buf, PATH_SIZE, "/api/v1/namespaces/%.63s/pods", reserve->namespace);
}

static void pod_delete(struct reserve *reserve, const char *name)
{
	char pods[PATH_SIZE], path[PATH_SIZE + 128];
	cleanup_json json_t *answer = NULL;
	struct error err = {0};

	pods_path(reserve, pods);
	snprintf(path, sizeof(path), "%s/%s", pods, name);
	if (call(reserve, "DELETE", path, NULL, &answer, &err) < 0)
		log_event(LOG_WARNING, "reservation.not_deleted pod=%s error=\"%s\"", name,
			  err.message);
	else
		log_event(LOG_INFO, "reservation.deleted pod=%s", name);
}

static json_t *pod_build(const struct reserve *reserve, const char *name)
{
	json_t *labels = json_pack("{s:s, s:s}", RESERVE_LABEL, "true",
				   "app.kubernetes.io/managed-by", "carve");
	const char *value = reserve->label ? strchr(reserve->label, '=') : NULL;

	if (value)
		json_object_setn_new(labels, reserve->label, (size_t)(value - reserve->label),
				     json_string(value + 1));
	/* Its node is named, so no scheduler decides, and each counts it. It ends at once: it has
	 * nothing to finish. It has no rights, as a namespace that enforces "restricted" wants it.
	 */
	json_t *rights = json_pack("{s:b, s:i, s:b, s:b, s:{s:[s]}, s:{s:s}}", "runAsNonRoot", 1,
				   "runAsUser", NOBODY, "allowPrivilegeEscalation", 0,
				   "readOnlyRootFilesystem", 1, "capabilities", "drop", "ALL",
				   "seccompProfile", "type", "RuntimeDefault");
	/* With a lower priority any pod with a whole GPU preempts it, and has the slices' GPU then.
	 */
	return json_pack("{s:s, s:s, s:{s:s, s:o}, s:{s:s, s:s, s:s, s:i, s:b, s:[{s:s}], "
			 "s:[{s:s, s:s, s:[ss], s:{s:{s:s}}, s:o}]}}",
			 "apiVersion", "v1", "kind", "Pod", "metadata", "name", name, "labels",
			 labels, "spec", "nodeName", reserve->node, "priorityClassName",
			 "system-node-critical", "restartPolicy", "Always",
			 "terminationGracePeriodSeconds", 0, "automountServiceAccountToken", 0,
			 "tolerations", "operator", "Exists", "containers", "name", "reservation",
			 "image", reserve->image, "command", "carve-kubernetes", "hold",
			 "resources", "limits", reserve->resource, "1", "securityContext", rights);
}

static int pod_make(struct reserve *reserve, struct error *err)
{
	char path[PATH_SIZE], name[64];
	unsigned long long random = 0;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return error_set(err, EXIT_CODE_FAILED, "the kernel has no random bytes");
	snprintf(name, sizeof(name), POD_PREFIX "%016llx", random);
	pods_path(reserve, path);
	cleanup_json json_t *pod = pod_build(reserve, name), *answer = NULL;
	if (!pod)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	int rc = call(reserve, "POST", path, pod, &answer, err);
	if (rc == 0)
		log_event(LOG_INFO, "reservation.made pod=%s", name);
	return rc;
}

/* ---- the reservations that there are ------------------------------------------------------ */

struct line {
	char text[256];
	size_t used;
};

/* Its first line. */
static bool on_bytes(void *arg, const char *bytes, size_t size)
{
	struct line *line = arg;

	for (size_t i = 0; i < size && line->used < sizeof(line->text) - 1; i++) {
		line->text[line->used++] = bytes[i];
		if (bytes[i] == '\n')
			return false;
	}
	return line->used < sizeof(line->text) - 1;
}

static bool on_tick(void *arg)
{
	return true;
}

/* Which GPU the pod has, by its log. */
static void uuid_read(struct reserve *reserve, struct reserve_pod *pod)
{
	char pods[PATH_SIZE], path[PATH_SIZE + 128];
	struct line line = {0};
	struct error ignored = {0};
	long status = 0;

	pods_path(reserve, pods);
	snprintf(path, sizeof(path), "%s/%s/log", pods, pod->name);
	(void)api_stream(reserve->api, path, LOG_TIMEOUT_MS, on_bytes, on_tick, &line, &status,
			 &ignored);
	char *end = strchr(line.text, '\n');
	if (!end || strncmp(line.text, RESERVE_LINE, strlen(RESERVE_LINE)) != 0)
		return;
	*end = '\0';
	const char *uuid = line.text + strlen(RESERVE_LINE);
	/* One GPU by its UUID; an index or "void" names none that could be compared. */
	bool named =
		!strncmp(uuid, "GPU-", 4) && strlen(uuid) < sizeof(pod->uuid) && !strchr(uuid, ',');
	pod->state = named ? RESERVE_HOLDS : RESERVE_FAILED;
	snprintf(pod->uuid, sizeof(pod->uuid), "%s", uuid);
}

static const char *phase_of(const json_t *pod)
{
	const char *phase =
		json_string_value(json_object_get(json_object_get(pod, "status"), "phase"));

	return phase ? phase : "";
}

bool reserve_pod_holds(const json_t *pod)
{
	const char *phase = phase_of(pod);

	return !json_object_get(json_object_get(pod, "metadata"), "deletionTimestamp") &&
	       strcmp(phase, "Failed") != 0 && strcmp(phase, "Succeeded") != 0;
}

static void pod_read(struct reserve *reserve, const json_t *json, struct reserve_pod *ret)
{
	const json_t *metadata = json_object_get(json, "metadata");
	const char *name = json_string_value(json_object_get(metadata, "name"));

	*ret = (struct reserve_pod){.state = RESERVE_STARTS};
	snprintf(ret->name, sizeof(ret->name), "%s", name ? name : "");
	if (json_object_get(metadata, "deletionTimestamp"))
		ret->state = RESERVE_GOING;
	else if (!reserve_pod_holds(json))
		ret->state = RESERVE_FAILED;
	else if (!strcmp(phase_of(json), "Running"))
		uuid_read(reserve, ret);
	ret->wanted = ret->state == RESERVE_HOLDS && reserve->wanted(reserve->arg, ret->uuid);
}

static int pods_read(struct reserve *reserve, struct reserve_pod pods[static PODS_MAX],
		     size_t *ret_count, struct error *err)
{
	char path[PATH_SIZE + 400], all[PATH_SIZE];
	cleanup_json json_t *list = NULL;
	json_t *item;
	size_t i;

	*ret_count = 0;
	pods_path(reserve, all);
	snprintf(path, sizeof(path), "%s?" RESERVE_SELECTOR, all, reserve->node);
	int rc = call(reserve, "GET", path, NULL, &list, err);
	if (rc < 0)
		return rc;
	json_array_foreach(json_object_get(list, "items"), i, item)
	{
		const char *node = json_string_value(
			json_object_get(json_object_get(item, "spec"), "nodeName"));

		if (node && !strcmp(node, reserve->node) && *ret_count < PODS_MAX)
			pod_read(reserve, item, &pods[(*ret_count)++]);
	}
	return 0;
}

/* Those that hold what no claim wants, and those that got nothing. */
static void pods_tidy(struct reserve *reserve, const struct reserve_pod *pods, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (pods[i].state != RESERVE_GOING && !pods[i].wanted)
			pod_delete(reserve, pods[i].name);
}

/* ---- the whole ---------------------------------------------------------------------------- */

static int exhausted(const struct reserve_pod *pods, size_t count, const char *uuid,
		     struct error *err)
{
	for (size_t i = 0; i < count; i++)
		if (pods[i].state == RESERVE_FAILED && *pods[i].uuid)
			return error_set(err, EXIT_CODE_FAILED,
					 "the device plugin gives a reservation '%.64s', which "
					 "names no GPU by its UUID",
					 pods[i].uuid);
	error_set(err, EXIT_CODE_NO_ROOM, "GPU %s is another's: no reservation gets it", uuid);
	error_hint(err, "a pod with the whole GPU has it, or the device plugin does not offer it");
	return -EXIT_CODE_NO_ROOM;
}

static int draw(struct reserve *reserve, const char *uuid, struct error *err)
{
	long long until = now_monotonic_ms() + HOLD_MS;
	struct reserve_pod pods[PODS_MAX];
	size_t count;

	do {
		int rc = pods_read(reserve, pods, &count, err);

		if (rc < 0)
			return rc;
		enum reserve_step step = reserve_decide(pods, count, uuid);
		if (step == RESERVE_MAKE && (rc = pod_make(reserve, err)) < 0)
			return rc;
		if (step == RESERVE_DONE || step == RESERVE_EXHAUSTED) {
			pods_tidy(reserve, pods, count);
			return step == RESERVE_DONE ? 0 : exhausted(pods, count, uuid, err);
		}
		nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
	} while (now_monotonic_ms() < until);
	return error_set(err, EXIT_CODE_NO_ROOM, "the reservation of GPU %s has not started yet",
			 uuid);
}

int reserve_hold(struct reserve *reserve, const char *uuid, struct error *err)
{
	if (!reserve->namespace)
		return 0;
	pthread_mutex_lock(&reserve->lock);
	int rc = draw(reserve, uuid, err);
	pthread_mutex_unlock(&reserve->lock);
	return rc;
}

void reserve_tidy(struct reserve *reserve)
{
	struct reserve_pod pods[PODS_MAX];
	struct error err = {0};
	size_t count;

	if (!reserve->namespace)
		return;
	pthread_mutex_lock(&reserve->lock);
	if (pods_read(reserve, pods, &count, &err) < 0)
		log_event(LOG_WARNING, "reservation.unknown error=\"%s\"", err.message);
	else
		pods_tidy(reserve, pods, count);
	pthread_mutex_unlock(&reserve->lock);
}

bool reserve_keep(struct reserve *reserve, const struct device_gpu *gpus, size_t gpu_count,
		  struct error *err)
{
	struct reserve_pod pods[PODS_MAX];
	size_t count = 0;

	pthread_mutex_lock(&reserve->lock);
	int rc = pods_read(reserve, pods, &count, err);
	if (rc == 0)
		pods_tidy(reserve, pods, count);
	for (size_t i = 0; rc == 0 && i < gpu_count; i++) {
		if (reserve_decide(pods, count, gpus[i].uuid) == RESERVE_DONE ||
		    !reserve->wanted(reserve->arg, gpus[i].uuid))
			continue;
		rc = draw(reserve, gpus[i].uuid, err);
		if (rc == 0)
			log_event(LOG_INFO, "reservation.held_again uuid=%s", gpus[i].uuid);
	}
	pthread_mutex_unlock(&reserve->lock);
	return rc == 0;
}

bool reserve_is_pod(const struct reserve *reserve, const char *namespace, const char *name)
{
	return reserve->namespace && !strcmp(namespace, reserve->namespace) &&
	       !strncmp(name, POD_PREFIX, strlen(POD_PREFIX));
}

int reserve_check(const struct reserve *reserve, struct error *err)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
	const char *value = reserve->label ? strchr(reserve->label, '=') : NULL;

	if (!reserve->namespace)
		return 0;
	if (!*reserve->namespace || *reserve->namespace == '-' ||
	    strspn(reserve->namespace, allowed) != strlen(reserve->namespace))
		return error_set(err, EXIT_CODE_USAGE,
				 "--reserve-namespace: '%.64s' is no name of a namespace",
				 reserve->namespace);
	if (!reserve->image || !*reserve->image)
		return error_set(err, EXIT_CODE_USAGE,
				 "--reserve-namespace needs --reserve-image, with carve in it");
	if (reserve->label && (!value || value == reserve->label))
		return error_set(err, EXIT_CODE_USAGE, "--reserve-label: '%.64s' is no KEY=VALUE",
				 reserve->label);
	return 0;
}

int reserve_pod_run(void)
{
	const char *devices = secure_getenv("NVIDIA_VISIBLE_DEVICES");
	sigset_t set;
	int number;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	printf(RESERVE_LINE "%s\n", devices && *devices ? devices : "nothing");
	fflush(stdout);
	while (sigwait(&set, &number) != 0)
		;
	return EXIT_CODE_OK;
}
