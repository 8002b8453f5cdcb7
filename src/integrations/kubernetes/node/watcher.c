#include "integrations/kubernetes/node/watcher.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/macros.h"
#include "daemon/host/log.h"
#include "integrations/kubernetes/api/event.h"
#include "integrations/kubernetes/api/retry.h"
#include "integrations/kubernetes/claim/prepare.h"
#include "integrations/kubernetes/node/pod_resources.h"
#include "integrations/kubernetes/node/publish.h"
#include "integrations/kubernetes/node/role.h"
#include "integrations/kubernetes/object/node_labels.h"
#include "integrations/kubernetes/object/slices.h"

/* Between two looks. A look is four calls to carved and one to the kubelet, all on this host. */
#define LOOK_SECONDS 5
/* Between two looks at what the API server has: 1,000 nodes make some 3 calls a second. Up to two
 * fifths more are random, so that nodes that started together do not call together. */
#define LIST_SECONDS 300
/* A kubelet that starts removes all slices of its node. It may do so after it has registered the
 * plugin, as it tries again, after 1, 2, 4 s and so on, until it knows its node. So the first looks
 * after a registration have these seconds between them, and each next two twice as many. */
#define LIST_SECONDS_MIN 5
/* Between two looks at the node's labels, likewise: 1,000 nodes make some 14 small calls a second.
 * A watch would need the right to watch all nodes, as RBAC cannot narrow it to one's own. */
#define LABELS_SECONDS 60
#define LABELS_JITTER_SECONDS 20
/* Claims that are gone are looked for that often. */
#define COLLECT_SECONDS 600

struct watcher {
	struct prepare *prepare;
	struct publish *publish;
	void (*seen)(void *arg);
	void *arg;
	pthread_t thread;
	pthread_mutex_t lock; /* guards the fields below; a leaf */
	pthread_cond_t wake;
	bool stop, look;
	bool registered; /* the kubelet knows the plugin */
	struct watcher_view view;
	/* The thread's own: */
	struct watcher_view last;
	long long list_at_ms, collect_at_ms, retry_at_ms, labels_at_ms;
	unsigned list_gap_s; /* until the look after the next one */
	struct error read_error, role_error, given_error, settings_error; /* that were told last */
	struct error label_error[NODE_LABELS];
	unsigned failures;
	bool restored;
};

/* A place that the driver refused is tried again each half minute. Its taint stays until two looks
 * found no refusal, so that it does not come and go with each of these tries. */
static void refusals_settle(const struct watcher_view *last, struct watcher_view *view)
{
	for (size_t i = 0; i < view->count; i++) {
		struct device_gpu *now = &view->gpu[i];
		const struct device_gpu *before = device_find(last->gpu, last->count, now->name);

		for (size_t p = 0; before && p < MIN(before->profiles, now->profiles); p++)
			now->profile[p].refused |= before->profile[p].refused;
	}
}

/* Memory that others hold moves while sessions end: a figure is believed the second time. */
static void offered_settle(const struct watcher_view *last, struct watcher_view *view,
			   const struct watcher_view *told)
{
	for (size_t i = 0; i < view->count; i++) {
		const struct device_gpu *before =
			device_find(last->gpu, last->count, view->gpu[i].name);
		const struct device_gpu *was =
			device_find(told->gpu, told->count, view->gpu[i].name);

		if (before && was && before->offered != view->gpu[i].offered)
			view->gpu[i].offered = was->offered;
		if (before && was && before->taken != view->gpu[i].taken)
			view->gpu[i].taken = was->taken;
	}
}

/* How a failure is named in the log, and in an event. */
struct words {
	const char *subject, *verb; /* the words of the line in the log */
	const char *reason;         /* the event's reason */
};

/* Logs a failure, and writes it as an event of `node` (NULL: only logs it), where it is not the one
 * that was told last. */
static void tell(struct watcher *watcher, const json_t *node, const struct words *words, int rc,
		 const struct error *err, struct error *last)
{
	struct error failure = {0};
	char text[sizeof(err->message) + sizeof(err->hint) + 2];

	if (rc == 0 || !strcmp(last->message, err->message)) {
		*last = rc == 0 ? (struct error){0} : *last;
		return;
	}
	*last = *err;
	snprintf(text, sizeof(text), "%s%s%s", err->message, *err->hint ? "; " : "", err->hint);
	log_event(LOG_WARNING, "%s.%s error=\"%s\"", words->subject, words->verb, text);
	if (node && event_write(watcher->prepare->api,
				&(struct event){.kind = "Node",
						.about = node,
						.reason = words->reason,
						.message = text},
				&failure) < 0)
		log_event(LOG_WARNING, "event.failed error=\"%s\"", failure.message);
}

/* The labels' order is carried out; the next look sees what came of it. */
static void labels_look(struct watcher *watcher, const json_t *gpus, bool look)
{
	static const struct words unread = {"labels", "failed", NULL},
				  wrong = {"label", "wrong", "WrongLabel"},
				  no_role = {"role", "failed", "NoRole"};
	const struct prepare *prepare = watcher->prepare;
	struct role role = {.api = prepare->api,
			    .carved = prepare->carved,
			    .node = prepare->node,
			    .dir = prepare->state};
	long long now = now_monotonic_ms();
	struct error err = {0}, errors[NODE_LABELS];
	cleanup_json json_t *node = NULL;
	bool changed;

	if (now < watcher->labels_at_ms && !look)
		return;
	watcher->labels_at_ms =
		now + (LABELS_SECONDS * 1000LL) + random() % (LABELS_JITTER_SECONDS * 1000LL);
	int rc = role_node_read(&role, &node, &err);
	tell(watcher, NULL, &unread, rc, &err, &watcher->read_error);
	if (rc < 0)
		return;
	const json_t *labels = json_object_get(json_object_get(node, "metadata"), "labels");

	(void)node_labels_check(labels, !prepare->replicas, errors);
	for (size_t i = 0; i < NODE_LABELS; i++)
		tell(watcher, node, &wrong, errors[i].code ? -1 : 0, &errors[i],
		     &watcher->label_error[i]);
	if (!prepare->replicas)
		watcher->publish->replicas = node_labels_replicas(labels);
	rc = role_follow(&role, labels, gpus, &changed, &err);
	tell(watcher, node, &no_role, rc, &err, &watcher->role_error);
	if (rc == 0 && changed)
		log_event(LOG_INFO, "role.followed node=%s", prepare->node);
}

/* Without an answer the GPUs are as they were. */
static void given_look(struct watcher *watcher, struct watcher_view *view)
{
	static const struct words unread = {"kubelet", "no_pod_resources", NULL};
	struct prepare *prepare = watcher->prepare;
	struct error err = {0};
	int rc = pod_resources_mark(prepare->pod_resources, &prepare->reserve, view->gpu,
				    view->count, &err);

	tell(watcher, NULL, &unread, rc, &err, &watcher->given_error);
	for (size_t i = 0; i < view->count; i++) {
		struct device_gpu *gpu = &view->gpu[i];
		const struct device_gpu *before =
			device_find(watcher->last.gpu, watcher->last.count, gpu->name);

		if (rc < 0 && before)
			gpu->given_away = before->given_away;
		gpu->claimed = gpu->given_away && prepare_has(prepare, gpu->uuid);
	}
}

/* A configuration that carved did not take, as in a ConfigMap, is told with the devices: the check
 * of a cluster sees these, wherever it runs. */
static void settings_look(struct watcher *watcher, const json_t *version)
{
	static const struct words refused = {"settings", "refused", NULL};
	const char *problem = json_string_value(json_object_get(version, "config_error"));
	/* The path of the file takes the room of an attribute. */
	const char *words = problem && *problem == '/' ? strstr(problem, ": ") : NULL;
	struct error err = {0};
	int rc = problem ? error_set(&err, EXIT_CODE_FAILED, "carved kept its old settings: %.300s",
				     problem)
			 : 0;

	tell(watcher, NULL, &refused, rc, &err, &watcher->settings_error);
	slices_text_take(words     ? words + 2
			 : problem ? problem
				   : "",
			 watcher->publish->settings_problem);
}

static int gpus_look(struct watcher *watcher, struct watcher_view *view, bool look,
		     struct error *err)
{
	struct carved *carved = watcher->prepare->carved;
	cleanup_json json_t *gpus = NULL, *sessions = NULL, *instances = NULL, *version = NULL;
	int rc = carved_call(carved, "GET", "/v1/gpus", NULL, &gpus, err);

	if (rc == 0)
		labels_look(watcher, gpus, look);
	if (rc == 0)
		rc = carved_sessions(carved, &sessions, err);
	if (rc == 0)
		rc = carved_call(carved, "GET", "/v1/mig", NULL, &instances, err);
	if (rc == 0)
		rc = carved_call(carved, "GET", "/v1/version", NULL, &version, err);
	if (rc == 0)
		settings_look(watcher, version);
	if (rc == 0)
		rc = device_gpus_parse(gpus, sessions, view->gpu, &view->count, err);
	if (rc == 0)
		device_instances_take(instances, sessions, view->gpu, view->count);
	if (rc == 0)
		given_look(watcher, view);
	view->reached = rc == 0;
	return rc;
}

static void failed(struct watcher *watcher, const char *what, const struct error *err)
{
	unsigned wait_ms = retry_wait_ms(watcher->failures++, (unsigned)random());

	watcher->retry_at_ms = now_monotonic_ms() + wait_ms;
	log_event(LOG_WARNING, "%s.failed retry_ms=%u error=\"%s%s%s\"", what, wait_ms,
		  err->message, *err->hint ? "; " : "", err->hint);
}

/* Pods are bound as soon as there are devices. One that comes before the kubelet knows the plugin
 * fails, and the kubelet takes it up again a minute later. */
static void publish_look(struct watcher *watcher, const struct watcher_view *view, bool look)
{
	long long now = now_monotonic_ms();
	struct error err = {0};

	pthread_mutex_lock(&watcher->lock);
	bool registered = watcher->registered;
	pthread_mutex_unlock(&watcher->lock);
	if (!registered || (now < watcher->retry_at_ms && !look))
		return;
	look = look || now >= watcher->list_at_ms || watcher->failures;
	if (publish_slices(watcher->publish, view->gpu, view->count, look, &err) < 0) {
		failed(watcher, "slices", &err);
		return;
	}
	watcher->failures = 0;
	if (!look)
		return;
	watcher->list_at_ms =
		now + watcher->list_gap_s * 1000LL + random() % (watcher->list_gap_s * 400LL);
	watcher->list_gap_s = MIN(2 * watcher->list_gap_s, LIST_SECONDS);
}

static void watcher_turn(struct watcher *watcher, bool look)
{
	struct watcher_view view = {0}, raw;
	struct error err = {0};
	bool was_reached = watcher->view.reached;

	/* Also where carved is not reached now: the next turn does what this one cannot. */
	if (look) {
		watcher->list_at_ms = 0;
		watcher->list_gap_s = LIST_SECONDS_MIN;
	}
	if (gpus_look(watcher, &view, look, &err) < 0 && (was_reached || look))
		log_event(LOG_WARNING, "carved.unreachable error=\"%s\"", err.message);
	raw = view;
	if (view.reached) {
		offered_settle(&watcher->last, &view, &watcher->view);
		refusals_settle(&watcher->last, &view);
	} else {
		view = watcher->view; /* the last view, to tell that it is not known now */
	}
	view.reached = raw.reached;
	if (raw.reached)
		watcher->last = raw;
	pthread_mutex_lock(&watcher->lock);
	watcher->view = view;
	pthread_mutex_unlock(&watcher->lock);
	if (view.reached && !watcher->restored) {
		unsigned lost = prepare_restore(watcher->prepare);

		watcher->restored = true;
		if (lost)
			log_event(LOG_ERROR, "claims.not_restored count=%u", lost);
	}
	if (view.reached)
		publish_look(watcher, &view, look);
	if (view.reached && now_monotonic_ms() >= watcher->collect_at_ms) {
		watcher->collect_at_ms = now_monotonic_ms() + COLLECT_SECONDS * 1000LL;
		prepare_collect(watcher->prepare);
	}
	watcher->seen(watcher->arg);
}

static void *watcher_main(void *arg)
{
	struct watcher *watcher = arg;

	pthread_mutex_lock(&watcher->lock);
	while (!watcher->stop) {
		bool look = watcher->look;
		struct timespec until;

		watcher->look = false;
		pthread_mutex_unlock(&watcher->lock);
		watcher_turn(watcher, look);
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += LOOK_SECONDS;
		pthread_mutex_lock(&watcher->lock);
		while (!watcher->stop && !watcher->look &&
		       pthread_cond_timedwait(&watcher->wake, &watcher->lock, &until) == 0)
			;
	}
	pthread_mutex_unlock(&watcher->lock);
	return NULL;
}

int watcher_start(struct prepare *prepare, struct publish *publish, void (*seen)(void *arg),
		  void *arg, struct watcher **ret)
{
	struct watcher *watcher = calloc(1, sizeof(*watcher));

	if (!watcher)
		return -ENOMEM;
	watcher->prepare = prepare;
	watcher->publish = publish;
	watcher->seen = seen;
	watcher->arg = arg;
	watcher->look = true;
	pthread_mutex_init(&watcher->lock, NULL);
	pthread_cond_init(&watcher->wake, NULL);
	srandom((unsigned)now_monotonic_ns());
	int rc = pthread_create(&watcher->thread, NULL, watcher_main, watcher);
	if (rc) {
		free(watcher);
		return -rc;
	}
	*ret = watcher;
	return 0;
}

void watcher_registered(struct watcher *watcher)
{
	pthread_mutex_lock(&watcher->lock);
	watcher->registered = watcher->look = true;
	pthread_cond_signal(&watcher->wake);
	pthread_mutex_unlock(&watcher->lock);
}

void watcher_view(struct watcher *watcher, struct watcher_view *ret)
{
	pthread_mutex_lock(&watcher->lock);
	*ret = watcher->view;
	pthread_mutex_unlock(&watcher->lock);
}

void watcher_stop(struct watcher *watcher)
{
	pthread_mutex_lock(&watcher->lock);
	watcher->stop = true;
	pthread_cond_signal(&watcher->wake);
	pthread_mutex_unlock(&watcher->lock);
	pthread_join(watcher->thread, NULL);
	free(watcher);
}
