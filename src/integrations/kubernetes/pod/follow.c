#include "integrations/kubernetes/pod/follow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/macros.h"
#include "client/client.h"
#include "daemon/host/log.h"
#include "integrations/kubernetes/api/informer.h"
#include "integrations/kubernetes/object/claim.h"

/* The log of a pod waits meanwhile. */
#define MARK_TIMEOUT_MS 5000L
#define DELETE_TIMEOUT_MS 15000L

/* ---- the follower ------------------------------------------------------------------------ */

void follow_renew(struct follow *follow)
{
	long long now = now_monotonic_ms();
	cleanup_json json_t *body = NULL, *answer = NULL;
	struct error ignored = {0};
	char mark[48];
	long status;

	if (!follow->every_s || now < follow->next_ms)
		return;
	/* A part of it is random: jobs of an array start together. */
	follow->next_ms = now + follow->every_s * 900LL + random() % (follow->every_s * 100L + 1);
	snprintf(mark, sizeof(mark), "%lld/%u", (long long)time(NULL), follow->every_s);
	body = json_pack("{s:{s:{s:s}}}", "metadata", "annotations", FOLLOW_MARK, mark);
	const struct api_call call = {.method = "PATCH",
				      .path = follow->pod,
				      .body = body,
				      .content_type = "application/merge-patch+json",
				      .timeout_ms = MARK_TIMEOUT_MS};
	if (body)
		(void)api_call(follow->api, &call, &status, &answer, &ignored);
}

bool follow_mark_read(const char *mark, uint64_t *ret_interval_s)
{
	const char *slash = mark ? strchr(mark, '/') : NULL;
	size_t length = slash ? strlen(slash + 1) : 0;

	if (!slash || slash == mark || strspn(mark, "0123456789") != (size_t)(slash - mark) ||
	    !length || length > 5 || strspn(slash + 1, "0123456789") != length)
		return false;
	*ret_interval_s = strtoull(slash + 1, NULL, 10);
	return *ret_interval_s <= FOLLOW_SECONDS_MAX;
}

/* ---- pods without a follower ------------------------------------------------------------- */

struct look {
	struct orphans *orphans;
	json_t *now;  /* the next orphans->seen */
	json_t *left; /* [[path, UID], ...] */
	bool whole;
};

static bool look_goes_on(void *arg)
{
	const struct look *look = arg;

	return look->orphans->goes_on(look->orphans->arg);
}

/* The path of a pod; "": its names make no sense. */
static const char *path_of(const json_t *metadata, char *buf, size_t size)
{
	const char *namespace = json_string_value(json_object_get(metadata, "namespace"));
	const char *name = json_string_value(json_object_get(metadata, "name"));

	buf[0] = '\0';
	if (namespace && name && claim_label_valid(namespace) && *name && strlen(name) < 254 &&
	    !strpbrk(name, "/?#%& "))
		snprintf(buf, size, "/api/v1/namespaces/%s/pods/%s", namespace, name);
	return buf;
}

/* The mark is the one that was seen earlier, and has stood still for too long since. */
static bool is_left(const struct orphans *orphans, const json_t *before, uint64_t interval_s,
		    long long now)
{
	uint64_t patience_s = MAX(orphans->gone_s, FOLLOW_INTERVALS * interval_s);
	long long since = json_integer_value(json_array_get(before, 1));

	return now - since >= (long long)patience_s * 1000;
}

static void on_pod(void *arg, enum informer_event event, const json_t *pod)
{
	struct look *look = arg;
	const json_t *metadata = json_object_get(pod, "metadata");
	const json_t *annotations = json_object_get(metadata, "annotations");
	const char *uid = json_string_value(json_object_get(metadata, "uid"));
	const char *mark = json_string_value(json_object_get(annotations, FOLLOW_MARK));
	char path[512];
	uint64_t interval;

	look->whole = event == INFORMER_LIST_ENDS;
	if (event != INFORMER_PRESENT || !uid || !follow_mark_read(mark, &interval) ||
	    !*path_of(metadata, path, sizeof(path)))
		return;
	json_t *before = json_object_get(look->orphans->seen, uid);
	const char *last = json_string_value(json_array_get(before, 0));
	long long now = now_monotonic_ms();
	bool still = last && !strcmp(last, mark);

	if (still)
		json_object_set(look->now, uid, before);
	else
		json_object_set_new(look->now, uid, json_pack("[s, I]", mark, (json_int_t)now));
	if (still && !json_object_get(metadata, "deletionTimestamp") &&
	    is_left(look->orphans, before, interval, now))
		json_array_append_new(look->left, json_pack("[s, s]", path, uid));
}

/* One that was replaced meanwhile has another UID, and stays. */
static void pod_delete(const struct orphans *orphans, const char *path, const char *uid)
{
	cleanup_json json_t *answer = NULL,
			    *body = json_pack("{s:s, s:s, s:{s:s}}", "apiVersion", "v1", "kind",
					      "DeleteOptions", "preconditions", "uid", uid);
	const struct api_call call = {
		.method = "DELETE", .path = path, .body = body, .timeout_ms = DELETE_TIMEOUT_MS};
	struct error err = {0};
	long status = 0;
	int rc = api_call(orphans->api, &call, &status, &answer, &err);

	if (rc == 0 && status / 100 != 2 && status != 404)
		rc = api_status_error(&call, status, answer, &err);
	if (rc < 0)
		log_event(LOG_WARNING, "pod.not_deleted path=%s error=\"%s\"", path, err.message);
	else
		log_event(LOG_INFO, "pod.deleted path=%s reason=\"nobody follows it\"", path);
	/* An account without the right to delete it there tries again after as long. */
	json_object_del(orphans->seen, uid);
}

int orphans_look(struct orphans *orphans, struct error *err)
{
	struct look look = {.orphans = orphans, .now = json_object(), .left = json_array()};
	const struct informer informer = {.api = orphans->api,
					  .path = "/api/v1/pods",
					  .selector = "labelSelector=carve.dev%2Fpod",
					  .each = on_pod,
					  .goes_on = look_goes_on,
					  .arg = &look};
	json_t *pod;
	size_t i;
	int rc = informer_list(&informer, err);

	if (rc == 0 && look.whole) {
		json_decref(orphans->seen);
		orphans->seen = json_incref(look.now);
		json_array_foreach(look.left, i, pod)
		{
			if (look_goes_on(&look))
				pod_delete(orphans, json_string_value(json_array_get(pod, 0)),
					   json_string_value(json_array_get(pod, 1)));
		}
	}
	json_decref(look.now);
	json_decref(look.left);
	return rc;
}
