#include "integrations/kubernetes/controller/controller.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/macros.h"
#include "client/client.h"
#include "daemon/host/log.h"
#include "integrations/kubernetes/api/event.h"
#include "integrations/kubernetes/api/informer.h"
#include "integrations/kubernetes/api/leader.h"
#include "integrations/kubernetes/controller/unused.h"
#include "integrations/kubernetes/object/claim.h"
#include "integrations/kubernetes/object/quantity.h"
#include "integrations/kubernetes/object/slices.h"
#include "integrations/kubernetes/object/template.h"
#include "integrations/kubernetes/pod/follow.h"

#define LEASE "carve-controller"
#define TIMEOUT_MS 15000L
/* Between two writes, so that a new size of GPU, which changes every template, is no burst. */
#define WRITE_PAUSE_NS 20000000L
#define PATH_SIZE 512
/* Between two tries of templates that could not be made. Each try of a template costs two calls. */
#define RETRY_MS 10000LL
/* Pods that hear why a template could not be made; others hear it when they change. */
#define TOLD_MAX 100
/* Between two looks for pods that nobody follows; each lists the pods of jobs. */
#define ORPHANS_SECONDS_MAX 600u

/* The state that the threads share. `lock` is held while templates are made: the API server hears
 * of one at a time. */
struct controller {
	struct api api;
	const char *driver;
	struct leader leader;
	atomic_bool stop;
	unsigned collect_s;
	struct orphans orphans;
	pthread_mutex_t lock;
	json_t *seen; /* MiB of GPUs and of MIG instances, by slice: {slice: {"gpu": [mib, ...],
			 "mig": [mib, ...]}} */
	/* Templates that pods name: {"namespace/name": state}. The state true says that the
	 * template is there as it should be, and false that it is to be made. A template that
	 * could not be made has {"error": why, "told": {UID of a pod: true}}. */
	json_t *wanted;
	json_t *listed; /* keys of the list of templates that is being read */
	struct template_sizes sizes;
};

static volatile sig_atomic_t signalled;

static void on_signal(int number)
{
	signalled = 1;
}

static bool goes_on(void *arg)
{
	struct controller *controller = arg;

	return !controller->stop && !signalled;
}

/* ---- templates --------------------------------------------------------------------------- */

static int template_call(struct controller *controller, const char *method, const char *path,
			 const json_t *body, json_t **ret, long *ret_status, struct error *err)
{
	struct api_call call = {
		.method = method, .path = path, .body = body, .timeout_ms = TIMEOUT_MS};
	int rc = api_call(&controller->api, &call, ret_status, ret, err);

	if (rc == 0 && (*ret_status < 200 || *ret_status > 299) && *ret_status != 404)
		rc = api_status_error(&call, *ret_status, *ret, err);
	return rc;
}

/* A pod that uses a template of somebody else's has a claim of another size than it names. */
static int foreign_error(const char *namespace, const char *name, struct error *err)
{
	error_set(err, EXIT_CODE_FAILED,
		  "claim template %s is not carve's, though it has a name of carve's", name);
	error_hint(err, "kubectl -n %s delete resourceclaimtemplate %s, and make the pod again",
		   namespace, name);
	return -EXIT_CODE_FAILED;
}

/* Templates cannot be changed, so one that is not right is replaced: claims that were made from it
 * stay. A template that carve did not make is left alone, and fails. */
static int template_write(struct controller *controller, const char *namespace, const char *name,
			  const json_t *wanted, struct error *err)
{
	char all[PATH_SIZE], one[PATH_SIZE + TEMPLATE_NAME_SIZE], field[128];
	cleanup_json json_t *there = NULL, *gone = NULL, *made = NULL;
	long status;

	snprintf(all, sizeof(all), "/apis/resource.k8s.io/v1/namespaces/%s/resourceclaimtemplates",
		 namespace);
	snprintf(one, sizeof(one), "%s/%s", all, name);
	int rc = template_call(controller, "GET", one, NULL, &there, &status, err);
	if (rc == 0 && status == 200 && !template_is_ours(there))
		return foreign_error(namespace, name, err);
	if (rc < 0 || (status == 200 &&
		       slices_contain(json_object_get(there, "spec"),
				      json_object_get(wanted, "spec"), field, sizeof(field))))
		return rc;
	nanosleep(&(struct timespec){.tv_nsec = WRITE_PAUSE_NS}, NULL);
	if (status == 200)
		rc = template_call(controller, "DELETE", one, NULL, &gone, &status, err);
	if (rc == 0)
		rc = template_call(controller, "POST", all, wanted, &made, &status, err);
	if (rc == 0)
		log_event(LOG_INFO, "template.made namespace=%s name=%s", namespace, name);
	return rc;
}

static const char *key_split(const char *key, char namespace[static CLAIM_LABEL_SIZE])
{
	const char *name = strchr(key, '/') + 1;

	snprintf(namespace, CLAIM_LABEL_SIZE, "%.*s", (int)(name - key - 1), key);
	return name;
}

static void pod_tell(struct controller *controller, const json_t *pod, const char *message)
{
	const struct event event = {
		.kind = "Pod", .about = pod, .reason = "ForeignTemplate", .message = message};
	struct error err = {0};

	if (event_write(&controller->api, &event, &err) < 0)
		log_event(LOG_WARNING, "event.failed error=\"%s\"", err.message);
}

/* Tells why a template could not be made: once for each reason in the log, and once to each of
 * `pods` that name it, where somebody has to act. */
static void failure_tell(struct controller *controller, const char *key, const json_t *pods,
			 const struct error *err)
{
	json_t *state = json_object_get(controller->wanted, key), *told;
	const char *before = json_string_value(json_object_get(state, "error"));
	char text[sizeof(err->message) + sizeof(err->hint) + 2];
	const json_t *pod;
	size_t i;

	if (!before || strcmp(before, err->message) != 0) {
		log_event(LOG_WARNING, "template.failed name=%s error=\"%s\"", key, err->message);
		json_object_set_new(controller->wanted, key,
				    json_pack("{s:s, s:{}}", "error", err->message, "told"));
	}
	told = json_object_get(json_object_get(controller->wanted, key), "told");
	snprintf(text, sizeof(text), "%s; %s", err->message, err->hint);
	json_array_foreach((json_t *)pods, i, pod)
	{
		const char *uid =
			json_string_value(json_object_get(json_object_get(pod, "metadata"), "uid"));

		/* An error that passes by itself has no hint, or is of an API server that is away.
		 */
		if (!*err->hint || err->code == EXIT_CODE_UNREACHABLE || !uid ||
		    json_object_get(told, uid))
			continue;
		json_object_set_new(told, uid, json_true());
		pod_tell(controller, pod, text);
	}
}

/* Makes a template that pods name, where it is not known to be there. `pods`: some of these pods,
 * to be told where it fails; NULL: none. */
static void template_ensure(struct controller *controller, const char *key, const json_t *pods)
{
	char namespace[CLAIM_LABEL_SIZE];
	const char *name = key_split(key, namespace);
	struct template_size size;
	struct error err = {0};

	if (!goes_on(controller) || json_is_true(json_object_get(controller->wanted, key)) ||
	    template_parse(name, &size) < 0)
		return;
	cleanup_json json_t *template =
		template_build(controller->driver, namespace, name, &size, &controller->sizes);
	/* A share of GPUs that are not known yet waits for the first slice. */
	if (!template)
		return;
	if (template_write(controller, namespace, name, template, &err) < 0)
		failure_tell(controller, key, pods, &err);
	else
		json_object_set_new(controller->wanted, key, json_true());
}

static void templates_ensure(struct controller *controller)
{
	const char *key;
	json_t *made;
	void *next;

	json_object_foreach_safe(controller->wanted, next, key, made)
		template_ensure(controller, key, NULL);
}

/* Makes a template once more, if a pod names it still: the list of pods is asked, as no count of
 * pods is kept here. */
static void template_again(struct controller *controller, const char *key)
{
	char namespace[CLAIM_LABEL_SIZE], path[PATH_SIZE];
	const char *name = key_split(key, namespace);
	struct api_call call = {.method = "GET", .path = path, .timeout_ms = TIMEOUT_MS};
	cleanup_json json_t *pods = NULL;
	struct error ignored = {0};
	long status;

	snprintf(path, sizeof(path),
		 "/api/v1/namespaces/%s/pods?limit=%d&labelSelector=carve.dev%%2Ftemplate%%3D%s",
		 namespace, TOLD_MAX, name);
	int rc = api_call(&controller->api, &call, &status, &pods, &ignored);
	if (rc == 0 && status == 200 && json_array_size(json_object_get(pods, "items")) == 0)
		json_object_del(controller->wanted, key);
	else if (rc == 0)
		template_ensure(controller, key, json_object_get(pods, "items"));
}

/* Somebody deleted it, or its namespace. A template that the controller itself deletes is not
 * wanted any more. */
static void template_lost(struct controller *controller, const char *key)
{
	if (!json_is_true(json_object_get(controller->wanted, key)))
		return;
	log_event(LOG_INFO, "template.lost name=%s", key);
	json_object_set_new(controller->wanted, key, json_false());
	template_again(controller, key);
}

static void listed_end(struct controller *controller)
{
	const char *key;
	json_t *state;
	void *next;

	json_object_foreach_safe(controller->wanted, next, key, state)
	{
		if (!json_object_get(controller->listed, key))
			template_lost(controller, key);
	}
	json_object_clear(controller->listed);
}

static void on_template(void *arg, enum informer_event event, const json_t *template)
{
	const char *name =
		json_string_value(json_object_get(json_object_get(template, "metadata"), "name"));
	char key[TEMPLATE_KEY_SIZE];
	struct controller *controller = arg;
	bool ours = template && template_key(template, name, key);

	pthread_mutex_lock(&controller->lock);
	if (event == INFORMER_LIST_BEGINS)
		json_object_clear(controller->listed);
	else if (event == INFORMER_LIST_ENDS)
		listed_end(controller);
	else if (ours && event == INFORMER_PRESENT)
		json_object_set_new(controller->listed, key, json_true());
	else if (ours)
		template_lost(controller, key);
	pthread_mutex_unlock(&controller->lock);
}

static void *templates_main(void *arg)
{
	struct controller *controller = arg;

	informer_run(&(struct informer){.api = &controller->api,
					.path = "/apis/resource.k8s.io/v1/resourceclaimtemplates",
					.selector = TEMPLATE_SELECTOR,
					.each = on_template,
					.goes_on = goes_on,
					.arg = controller});
	return NULL;
}

/* Tries again to make templates. A template for a GPU that is not known yet is left to its first
 * slice. */
static void failures_retry(struct controller *controller)
{
	const char *key;
	json_t *state;
	void *next;

	pthread_mutex_lock(&controller->lock);
	json_object_foreach_safe(controller->wanted, next, key, state)
	{
		if (json_is_object(state))
			template_again(controller, key);
	}
	pthread_mutex_unlock(&controller->lock);
}

/* ---- pods -------------------------------------------------------------------------------- */

static void on_pod(void *arg, enum informer_event event, const json_t *pod)
{
	struct controller *controller = arg;
	const json_t *labels = json_object_get(json_object_get(pod, "metadata"), "labels");
	const char *name = json_string_value(json_object_get(labels, TEMPLATE_LABEL));
	char key[TEMPLATE_KEY_SIZE];

	pthread_mutex_lock(&controller->lock);
	if (event == INFORMER_LIST_BEGINS)
		json_object_clear(controller->wanted);
	if (event == INFORMER_PRESENT && template_key(pod, name, key)) {
		cleanup_json json_t *pods = json_pack("[O]", pod);

		if (!json_object_get(controller->wanted, key))
			json_object_set_new(controller->wanted, key, json_false());
		template_ensure(controller, key, pods);
	}
	pthread_mutex_unlock(&controller->lock);
}

static void *pods_main(void *arg)
{
	struct controller *controller = arg;

	informer_run(&(struct informer){.api = &controller->api,
					.path = "/api/v1/pods",
					.selector = "labelSelector=carve.dev%2Ftemplate",
					.each = on_pod,
					.goes_on = goes_on,
					.arg = controller});
	return NULL;
}

/* ---- slices ------------------------------------------------------------------------------ */

/* Memory of a MIG instance that a claim can get, rounded down; 0: it is none. */
static uint64_t instance_mib(const json_t *device)
{
	const json_t *attributes = json_object_get(device, "attributes");
	const char *profile = json_string_value(
		json_object_get(json_object_get(attributes, "profile"), "string"));
	const char *memory = json_string_value(json_object_get(
		json_object_get(json_object_get(device, "capacity"), "memory"), "value"));
	uint64_t bytes;

	if (!profile || strchr(profile, '+') || !memory || quantity_parse(memory, &bytes) < 0)
		return 0;
	return bytes / MIB(1);
}

static bool has_integer(const json_t *list, json_int_t value)
{
	const json_t *its;
	size_t i;

	json_array_foreach((json_t *)list, i, its)
	{
		if (json_integer_value(its) == value)
			return true;
	}
	return false;
}

/* An instance of one size stands there once, however many there are. */
static json_t *slice_sizes(const json_t *slice)
{
	json_t *gpus = json_array(), *instances = json_array(), *device;
	size_t i;

	json_array_foreach(json_object_get(json_object_get(slice, "spec"), "devices"), i, device)
	{
		json_t *mib = json_object_get(
			json_object_get(json_object_get(device, "attributes"), "memoryMiB"), "int");
		uint64_t instance = instance_mib(device);

		if (json_integer_value(mib) > 0)
			json_array_append(gpus, mib);
		if (instance && !has_integer(instances, (json_int_t)instance))
			json_array_append_new(instances, json_integer((json_int_t)instance));
	}
	return json_pack("{s:o, s:o}", "gpu", gpus, "mig", instances);
}

struct counted {
	uint64_t mib;
	size_t count;
};

static int by_count(const void *a, const void *b)
{
	const struct counted *x = a, *y = b;

	return x->count != y->count ? (x->count < y->count ? 1 : -1)
				    : (x->mib > y->mib) - (x->mib < y->mib);
}

static int by_mib(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* The sizes that most devices of that kind have, smallest first. */
static size_t sizes_choose(const json_t *by_slice, const char *kind, uint64_t *ret, size_t most)
{
	static struct counted counted[1024];
	size_t kinds = 0, i;
	const json_t *seen, *mib;
	const char *slice;

	json_object_foreach((json_t *)by_slice, slice, seen)
	{
		json_array_foreach(json_object_get(seen, kind), i, mib)
		{
			uint64_t value = (uint64_t)json_integer_value(mib);
			size_t at = 0;

			while (at < kinds && counted[at].mib != value)
				at++;
			if (at == ARRAY_SIZE(counted))
				continue;
			if (at == kinds)
				counted[kinds++] = (struct counted){.mib = value};
			counted[at].count++;
		}
	}
	qsort(counted, kinds, sizeof(counted[0]), by_count);
	kinds = MIN(kinds, most);
	for (i = 0; i < kinds; i++)
		ret[i] = counted[i].mib;
	qsort(ret, kinds, sizeof(ret[0]), by_mib);
	return kinds;
}

static void sizes_take(struct controller *controller)
{
	struct template_sizes sizes = {0};
	const char *key;
	json_t *made;
	void *next;

	sizes.gpus = sizes_choose(controller->seen, "gpu", sizes.gpu, ARRAY_SIZE(sizes.gpu));
	sizes.instances =
		sizes_choose(controller->seen, "mig", sizes.instance, ARRAY_SIZE(sizes.instance));
	/* A cluster whose nodes are all away keeps its templates. */
	if ((!sizes.gpus && !sizes.instances) || !memcmp(&sizes, &controller->sizes, sizeof(sizes)))
		return;
	controller->sizes = sizes;
	log_event(LOG_INFO, "gpus.sizes count=%zu instances=%zu", sizes.gpus, sizes.instances);
	json_object_foreach_safe(controller->wanted, next, key, made)
		json_object_set_new(controller->wanted, key, json_false());
	templates_ensure(controller);
}

static void on_slice(void *arg, enum informer_event event, const json_t *slice)
{
	static bool listing;
	struct controller *controller = arg;
	const char *name =
		json_string_value(json_object_get(json_object_get(slice, "metadata"), "name"));

	pthread_mutex_lock(&controller->lock);
	if (event == INFORMER_LIST_BEGINS)
		json_object_clear(controller->seen);
	else if (event == INFORMER_PRESENT && name)
		json_object_set_new(controller->seen, name, slice_sizes(slice));
	else if (event == INFORMER_DELETED && name)
		json_object_del(controller->seen, name);
	/* Half a list would be half the sizes. */
	listing = event == INFORMER_LIST_BEGINS || (listing && event != INFORMER_LIST_ENDS);
	if (!listing)
		sizes_take(controller);
	pthread_mutex_unlock(&controller->lock);
}

static void *slices_main(void *arg)
{
	struct controller *controller = arg;
	char selector[128];

	snprintf(selector, sizeof(selector), "fieldSelector=spec.driver%%3D%s", controller->driver);
	informer_run(&(struct informer){.api = &controller->api,
					.path = "/apis/resource.k8s.io/v1/resourceslices",
					.selector = selector,
					.each = on_slice,
					.goes_on = goes_on,
					.arg = controller});
	return NULL;
}

/* ---- templates that nobody uses ---------------------------------------------------------- */

static void template_delete(struct controller *controller, const char *key)
{
	const char *name = strchr(key, '/') + 1;
	char path[PATH_SIZE + TEMPLATE_NAME_SIZE];
	cleanup_json json_t *answer = NULL;
	struct error err = {0};
	long status;

	snprintf(path, sizeof(path),
		 "/apis/resource.k8s.io/v1/namespaces/%.*s/resourceclaimtemplates/%s",
		 (int)(name - key - 1), key, name);
	nanosleep(&(struct timespec){.tv_nsec = WRITE_PAUSE_NS}, NULL);
	/* Whether it is there is not known any more, whatever the answer is. */
	json_object_del(controller->wanted, key);
	if (template_call(controller, "DELETE", path, NULL, &answer, &status, &err) < 0)
		log_event(LOG_WARNING, "template.not_deleted name=%s error=\"%s\"", key,
			  err.message);
	else
		log_event(LOG_INFO, "template.deleted name=%s", key);
}

/* Pods that come meanwhile are heard of after it, as the lock is held, and get their template
 * anew. */
static void collect(struct controller *controller)
{
	cleanup_json json_t *unused = NULL;
	struct error err = {0};
	json_t *key;
	size_t i;

	pthread_mutex_lock(&controller->lock);
	if (unused_find(&controller->api, goes_on, controller, &unused, &err) < 0)
		log_event(LOG_WARNING, "templates.unknown error=\"%s\"", err.message);
	json_array_foreach(unused, i, key)
	{
		if (goes_on(controller))
			template_delete(controller, json_string_value(key));
	}
	pthread_mutex_unlock(&controller->lock);
}

static void *collect_main(void *arg)
{
	struct controller *controller = arg;
	long long next = now_monotonic_ms() + controller->collect_s * 1000LL;
	long long retry = now_monotonic_ms() + RETRY_MS;

	while (goes_on(controller)) {
		nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
		if (now_monotonic_ms() >= retry) {
			failures_retry(controller);
			retry = now_monotonic_ms() + RETRY_MS;
		}
		if (now_monotonic_ms() < next)
			continue;
		collect(controller);
		next = now_monotonic_ms() + controller->collect_s * 1000LL;
	}
	return NULL;
}

/* ---- pods that nobody follows ------------------------------------------------------------ */

/* Often enough that a pod goes within a tenth of its time more, and at most once a second. */
static unsigned orphans_every_s(const struct orphans *orphans)
{
	return (unsigned)MIN(MAX(orphans->gone_s / 10, 1u), ORPHANS_SECONDS_MAX);
}

static void *orphans_main(void *arg)
{
	struct controller *controller = arg;
	long long every = orphans_every_s(&controller->orphans) * 1000LL;
	long long next = now_monotonic_ms() + every;

	while (controller->orphans.gone_s && goes_on(controller)) {
		struct error err = {0};

		nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
		if (now_monotonic_ms() < next)
			continue;
		if (orphans_look(&controller->orphans, &err) < 0)
			log_event(LOG_WARNING, "jobs.unknown error=\"%s\"", err.message);
		next = now_monotonic_ms() + every;
	}
	return NULL;
}

/* ---- leading ----------------------------------------------------------------------------- */

static void pause_ms(long ms)
{
	for (; ms > 0 && !signalled; ms -= 100)
		nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
}

static void lease_turn(struct controller *controller)
{
	struct error err = {0};
	bool led = controller->leader.leads;

	if (leader_turn(&controller->leader, &err) < 0 && !signalled)
		log_event(LOG_WARNING, "lease.failed error=\"%s\"", err.message);
	if (!led && controller->leader.leads)
		log_event(LOG_INFO, "lease.taken identity=%s", controller->leader.identity);
}

/* While it leads. */
static int lead(struct controller *controller, struct error *err)
{
	static void *(*const mains[])(void *arg) = {slices_main, pods_main, templates_main,
						    collect_main, orphans_main};
	pthread_t threads[ARRAY_SIZE(mains)];
	size_t started = 0;

	while (started < ARRAY_SIZE(mains) &&
	       pthread_create(&threads[started], NULL, mains[started], controller) == 0)
		started++;
	if (started < ARRAY_SIZE(mains)) {
		controller->stop = true;
		while (started > 0)
			pthread_join(threads[--started], NULL);
		return error_set(err, EXIT_CODE_FAILED, "cannot start a thread");
	}
	while (!signalled && controller->leader.leads) {
		pause_ms(LEADER_RENEW_MS);
		if (!signalled)
			lease_turn(controller);
	}
	/* Another one may lead now: calls that are under way are not waited for. */
	if (!controller->leader.leads)
		return error_set(err, EXIT_CODE_FAILED, "the lease was lost");
	controller->stop = true;
	while (started > 0)
		pthread_join(threads[--started], NULL);
	return 0;
}

static void identity_make(char buf[static LEADER_NAME_SIZE])
{
	char host[64] = "";
	unsigned random = 0;

	(void)gethostname(host, sizeof(host) - 1);
	(void)getrandom(&random, sizeof(random), 0);
	snprintf(buf, LEADER_NAME_SIZE, "%s_%08x", host, random);
}

int controller_run(const struct controller_options *options, struct error *err)
{
	static struct controller controller;
	struct sigaction action = {.sa_handler = on_signal};
	int rc = api_open(&controller.api, options->api_url, options->token, options->ca, err);

	if (rc < 0)
		return rc;
	controller.api.goes_on = goes_on;
	controller.api.arg = &controller;
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	srandom((unsigned)now_monotonic_ns());
	pthread_mutex_init(&controller.lock, NULL);
	controller.driver = options->driver;
	controller.collect_s = options->collect_s;
	controller.orphans = (struct orphans){.api = &controller.api,
					      .gone_s = options->gone_s,
					      .goes_on = goes_on,
					      .arg = &controller};
	controller.seen = json_object();
	controller.wanted = json_object();
	controller.listed = json_object();
	controller.leader = (struct leader){
		.api = &controller.api, .namespace = options->namespace, .name = LEASE};
	identity_make(controller.leader.identity);
	while (!signalled && !controller.leader.leads) {
		lease_turn(&controller);
		if (!controller.leader.leads)
			pause_ms(LEADER_RENEW_MS / 2 + random() % LEADER_RENEW_MS);
	}
	rc = signalled ? 0 : lead(&controller, err);
	/* Its threads may be in a call still where the lease was lost: the process ends. */
	if (rc < 0)
		return rc;
	controller.api.goes_on = NULL;
	leader_resign(&controller.leader);
	json_decref(controller.seen);
	json_decref(controller.wanted);
	json_decref(controller.listed);
	json_decref(controller.orphans.seen);
	api_close(&controller.api);
	return 0;
}
