#include "integrations/kubernetes/pod/run.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "client/client.h"
#include "integrations/kubernetes/api/api.h"
#include "integrations/kubernetes/pod/follow.h"
#include "integrations/kubernetes/pod/pod_fields.h"
#include "integrations/kubernetes/pod/pod_template.h"
#include "integrations/kubernetes/pod/run_pod.h"
#include "proto/shim.h"

#define CALL_TIMEOUT_MS 30000L
/* A log ends with its container; an hour later it is asked for again. */
#define LOG_TIMEOUT_MS 3600000L
/* Between two looks at a pod: from the first to the last, by half more each time, and a quarter of
 * it random. So 1,000 pods that wait cost some 130 calls a second, and not all in one moment. */
#define PAUSE_FIRST_MS 500u
#define PAUSE_LAST_MS 8000u
/* Beyond its grace time a pod that is deleted has this long to be gone. */
#define GONE_PATIENCE_S 30L
#define GRACE_DEFAULT_S 30L
/* An API server that is away is asked to delete the pod for so long after a signal. */
#define DELETE_PATIENCE_S 10L
/* The reason why the pod waits is told again after this time. */
#define SAY_EVERY_S 60L
#define STATE_SIZE 1024
/* The log of a pod that has ended is asked for this often, where it is refused. */
#define LOG_REFUSALS_MAX 10
/* Where a log is over and its pod runs, it is asked for again after this many pauses. */
#define LOG_QUIET 5
#define PATH_SIZE 256
#define REASON_SIZE 256

struct run {
	struct api api;
	struct follow follow;
	const struct run_options *options;
	bool created;      /* its pod was: it is not created once more */
	bool asked;        /* the API server may have been asked to create it */
	bool deletes;      /* the pod is being deleted */
	long give_up_s;    /* when that is given up, of CLOCK_MONOTONIC; 0: never */
	long said_s;       /* when `said` was told last */
	const char *phase; /* as it was written last; NULL: nothing was */
	int code;
	char name[64];
	char container[64];                       /* the first one of the pod */
	char pods[PATH_SIZE / 2], pod[PATH_SIZE]; /* paths */
	char said[REASON_SIZE];                   /* why it waits, as it was told last */
	uint64_t printed;                         /* bytes of the log */
	unsigned pause_ms;                        /* the next one */
	uint64_t seen;                            /* the bytes of this answer; never more */
};

static volatile sig_atomic_t told, hurried;

static void on_signal(int number)
{
	/* After a second Ctrl-C the end of the pod is not waited for. A shim sends a job SIGTERM
	 * more than once. */
	hurried = hurried || (told && number == SIGINT);
	told = number;
}

static long now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

/* Whether a call to the API server may go on: a signal ends all calls but the deletion's. */
static bool call_goes_on(void *arg)
{
	const struct run *run = arg;

	return run->deletes ? !hurried && (!run->give_up_s || now_s() < run->give_up_s) : !told;
}

/* Not restarted: a signal ends a pause. */
static void signals_take(void)
{
	struct sigaction action = {.sa_handler = on_signal};

	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
}

/* A signal ends it. */
static void pause_a_moment(struct run *run)
{
	unsigned ms = run->pause_ms - run->pause_ms / 4 + (unsigned)random() % (run->pause_ms / 2);

	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000},
		  NULL);
	run->pause_ms += run->pause_ms / 2;
	if (run->pause_ms > PAUSE_LAST_MS)
		run->pause_ms = PAUSE_LAST_MS;
}

/* Something happened: more may soon. */
static void pause_anew(struct run *run)
{
	run->pause_ms = PAUSE_FIRST_MS;
}

/* ---- its state on disk ------------------------------------------------------------------- */

/* 0, or negative where it cannot be written: then what happened is not safe from a kill. */
static int state_write(struct run *run, const char *phase, int code, const char *why)
{
	const char *file = run->options->state_file;

	run->phase = phase;
	run->code = code;
	char temporary[PATH_MAX];
	cleanup_json json_t *state =
		json_pack("{s:s, s:i, s:s}", "phase", phase, "code", code, "why", why);

	if (!file)
		return 0;
	cleanup_free char *text = state ? json_dumps(state, JSON_COMPACT) : NULL;
	if (!text ||
	    snprintf(temporary, sizeof(temporary), "%s.new", file) >= (int)sizeof(temporary))
		return -ENAMETOOLONG;
	return file_replace(file, temporary, text, strlen(text), 0600);
}

/* The exit code of a pod that an earlier call saw end; negative: none did. */
static int state_read(struct run *run)
{
	char text[STATE_SIZE];
	ssize_t n = run->options->state_file
			    ? file_read(run->options->state_file, text, sizeof(text))
			    : -1;
	cleanup_json json_t *state = n > 0 ? json_loads(text, 0, NULL) : NULL;
	const char *phase = json_string_value(json_object_get(state, "phase"));
	const json_t *code = json_object_get(state, "code");

	run->created = phase && strcmp(phase, SHIM_POD_ASKED) != 0;
	run->phase = run->created ? SHIM_POD_CREATED : NULL;
	if (!run->created || !strcmp(phase, SHIM_POD_CREATED) || !json_is_integer(code))
		return -1;
	return (int)(json_integer_value(code) & 0xff);
}

/* Says why the pod waits, where that is new or was told long ago. */
static void say(struct run *run, const char *text)
{
	bool known = !strncmp(run->said, text, sizeof(run->said) - 1);

	if (!*text || (known && now_s() < run->said_s + SAY_EVERY_S))
		return;
	snprintf(run->said, sizeof(run->said), "%s", text);
	run->said_s = now_s();
	/* The reader of the state tells it. The log of a job has the words of its pod alone. */
	if (!run->options->state_file)
		fprintf(stderr, "carve-kubernetes: pod %s%s: %s\n", run->name,
			run->deletes ? " is not deleted yet" : "", run->said);
	if (known)
		return;
	const char *phase = !run->phase && !run->created ? SHIM_POD_ASKED : run->phase;
	/* A reason for the end stays. */
	if (phase && (!strcmp(phase, SHIM_POD_ASKED) || !strcmp(phase, SHIM_POD_CREATED) ||
		      !strcmp(phase, SHIM_POD_ENDED)))
		(void)state_write(run, phase, run->code, run->said);
}

/* An API server that is away or busy comes back; the pod goes on meanwhile. */
static bool passes(int rc, long status)
{
	return rc < 0 || status == 429 || status >= 500;
}

/* ---- the pod ----------------------------------------------------------------------------- */

static int name_random(struct run *run, struct error *err)
{
	static const char letters[] = "bcdfghjklmnpqrstvwxz2456789";
	unsigned char random[12];

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return error_set(err, EXIT_CODE_FAILED, "the kernel has no random bytes");
	for (size_t i = 0; i < sizeof(random); i++)
		random[i] = (unsigned char)letters[random[i] % (sizeof(letters) - 1)];
	snprintf(run->name, sizeof(run->name), "carve-job-%.12s", (const char *)random);
	return 0;
}

static int name_make(struct run *run, const char *namespace, struct error *err)
{
	if (run->options->name)
		snprintf(run->name, sizeof(run->name), "%s", run->options->name);
	else if (name_random(run, err) < 0)
		return -EXIT_CODE_FAILED;
	snprintf(run->pods, sizeof(run->pods), "/api/v1/namespaces/%.63s/pods", namespace);
	snprintf(run->pod, sizeof(run->pod), "%s/%s", run->pods, run->name);
	return 0;
}

static int pod_get(struct run *run, json_t **ret);

/* Looks at the pod of that name that is there. Returns 0 where it is this one's, of a call whose
 * answer was lost or of an earlier process. Returns 1 where that is not known yet, and negative
 * with *err where it is another's. */
static int pod_adopt(struct run *run, struct error *err)
{
	cleanup_json json_t *pod = NULL;
	int rc = pod_get(run, &pod);

	if (rc != 0)
		return 1;
	const json_t *labels = json_object_get(json_object_get(pod, "metadata"), "labels");
	const char *name = json_string_value(json_object_get(labels, RUN_POD_LABEL));
	if (name && !strcmp(name, run->name))
		return 0;
	return error_set(err, EXIT_CODE_FAILED, "pod %s is there already, and is not this job's",
			 run->name);
}

/* The name is this pod's alone. */
static int pod_create(struct run *run, const json_t *pod, struct error *err)
{
	const struct api_call call = {.method = "POST",
				      .path = run->pods,
				      .body = pod,
				      .timeout_ms = CALL_TIMEOUT_MS,
				      .sent = &run->asked};
	long status = 0;

	while (!told) {
		cleanup_json json_t *answer = NULL;
		struct error failed = {0};
		int rc = api_call(&run->api, &call, &status, &answer, &failed);

		if (rc == 0 && status == 201)
			return 0;
		if (rc == 0 && status == 409 && (rc = pod_adopt(run, err)) <= 0)
			return rc;
		if (status != 409 && !passes(rc, status))
			return api_status_error(&call, status, answer, err);
		if (!told) {
			say(run, rc < 0 ? failed.message : "the API server is busy");
			pause_a_moment(run);
		}
	}
	return 0;
}

/* Its pod is there, whether this process made it or an earlier one. */
static int pod_ensure(struct run *run, const json_t *pod, struct error *err)
{
	if (run->created)
		return 0;
	int rc = pod_create(run, pod, err);
	if (rc < 0) {
		(void)state_write(run, SHIM_POD_REFUSED, EXIT_CODE_FAILED, err->message);
		return rc;
	}
	if (told && !run->asked)
		return 0;
	run->created = true;
	pause_anew(run);
	rc = state_write(run, SHIM_POD_CREATED, 0, "");
	if (rc < 0)
		fprintf(stderr, "carve-kubernetes: %s: %s\n", run->options->state_file,
			strerrordesc_np(-rc));
	return 0;
}

/* 0 with *ret, 1 where it is gone, or negative where the API server does not say. */
static int pod_get(struct run *run, json_t **ret)
{
	const struct api_call call = {
		.method = "GET", .path = run->pod, .timeout_ms = CALL_TIMEOUT_MS};
	struct error failed = {0};
	long status = 0;
	int rc = api_call(&run->api, &call, &status, ret, &failed);

	if (rc < 0 && call_goes_on(run))
		say(run, failed.message);
	return rc < 0 || (status != 200 && status != 404) ? -1 : status == 404;
}

/* Until it is gone, or its containers have ended; a node that does not answer is not waited for. */
static void pod_gone_wait(struct run *run)
{
	long grace = run->options->grace_s >= 0 ? run->options->grace_s : GRACE_DEFAULT_S;
	int code;

	bool said = run->options->state_file != NULL;

	run->give_up_s = now_s() + grace + GONE_PATIENCE_S;
	while (call_goes_on(run)) {
		cleanup_json json_t *pod = NULL;
		int rc = pod_get(run, &pod);

		if (rc > 0 || (rc == 0 && run_pod_phase(pod, &code) == RUN_ENDED))
			return;
		if (!said)
			fprintf(stderr,
				"carve-kubernetes: pod %s is deleted; waiting for its end, at most "
				"%ld s (Ctrl-C ends this)\n",
				run->name, grace + GONE_PATIENCE_S);
		said = true;
		pause_a_moment(run);
	}
	fprintf(stderr, "carve-kubernetes: pod %s is deleted, but its node has not ended it\n",
		run->name);
}

/* Asks once. True: the API server answered. */
static bool pod_delete_ask(struct run *run, const struct api_call *call, bool stop)
{
	cleanup_json json_t *answer = NULL;
	struct error failed = {0};
	long status = 0;
	int rc = api_call(&run->api, call, &status, &answer, &failed);

	if (rc < 0 || passes(rc, status)) {
		if (call_goes_on(run))
			say(run, rc < 0 ? failed.message : "the API server is busy");
		return false;
	}
	if (status != 404 && status / 100 != 2)
		fprintf(stderr,
			"carve-kubernetes: pod %s cannot be deleted: the API server answered %ld\n",
			run->name, status);
	else if (stop && status != 404)
		pod_gone_wait(run);
	return true;
}

/* A pod that is not deleted goes on running. This waits for an API server that is away: a short
 * time after a signal, and without an end for the pod of a job. A job ends after its pod. */
static void pod_delete(struct run *run, bool stop)
{
	char path[PATH_SIZE + 40];
	const struct api_call call = {
		.method = "DELETE", .path = path, .timeout_ms = CALL_TIMEOUT_MS};

	snprintf(path, sizeof(path), "%s", run->pod);
	if (stop && run->options->grace_s >= 0)
		snprintf(path, sizeof(path), "%s?gracePeriodSeconds=%ld", run->pod,
			 run->options->grace_s);
	run->deletes = true;
	while (!hurried) {
		if (told && !run->options->state_file && !run->give_up_s)
			run->give_up_s = now_s() + DELETE_PATIENCE_S;
		if (!call_goes_on(run))
			break;
		if (pod_delete_ask(run, &call, stop))
			return;
		if (call_goes_on(run))
			pause_a_moment(run);
	}
	fprintf(stderr,
		"carve-kubernetes: pod %s is not deleted and may run; delete it: "
		"kubectl delete pod %s --namespace %s\n",
		run->name, run->name, run->options->namespace);
}

/* ---- its log ----------------------------------------------------------------------------- */

static bool on_bytes(void *arg, const char *bytes, size_t size)
{
	struct run *run = arg;
	/* An answer begins with the log's first byte, which may have been printed before. */
	uint64_t before = run->printed - run->seen;
	size_t old = before < size ? (size_t)before : size;

	run->seen += size;
	if (size > old) {
		run->printed = run->seen;
		fwrite(bytes + old, 1, size - old, stdout);
		fflush(stdout);
	}
	return !told;
}

static bool on_tick(void *arg)
{
	struct run *run = arg;

	follow_renew(&run->follow);
	return !told;
}

enum log_end { LOG_COMPLETE, LOG_CUT, LOG_REFUSED };

/* Follows it until it ends, or the connection does. */
static enum log_end log_follow(struct run *run)
{
	char path[PATH_SIZE + 128];
	struct error ignored = {0};
	long status = 0;

	run->seen = 0;
	/* A pod with several containers has several logs. */
	snprintf(path, sizeof(path), "%s/log?follow=true%s%s", run->pod,
		 *run->container ? "&container=" : "", run->container);
	int rc = api_stream(&run->api, path, LOG_TIMEOUT_MS, on_bytes, on_tick, run, &status,
			    &ignored);
	return rc < 0 ? LOG_CUT : status == 200 ? LOG_COMPLETE : LOG_REFUSED;
}

/* The rest of the log of a pod that has ended. */
static void log_finish(struct run *run)
{
	int refusals = 0;

	while (!told && refusals < LOG_REFUSALS_MAX) {
		enum log_end end = log_follow(run);

		if (end == LOG_COMPLETE)
			return;
		refusals += end == LOG_REFUSED;
		pause_a_moment(run);
	}
	if (!told)
		fprintf(stderr, "carve-kubernetes: pod %s: the end of its log cannot be read\n",
			run->name);
}

/* ---- the whole --------------------------------------------------------------------------- */

/* It has ended without an exit code. Returns negative. */
static int pod_lost(struct run *run, struct error *err, const char *why)
{
	(void)state_write(run, SHIM_POD_LOST, EXIT_CODE_FAILED, why);
	return error_set(err, EXIT_CODE_FAILED, "pod %s %.200s", run->name, why);
}

/* The exit code, or negative with *err. */
static int pod_ended(struct run *run, const json_t *pod, int code, struct error *err)
{
	char why[REASON_SIZE];
	const char *unstarted = run_pod_unstarted(pod);

	/* Also in a job's log, which has no words of the pod then. */
	if (unstarted)
		fprintf(stderr, "carve-kubernetes: pod %s did not start: %s\n", run->name,
			unstarted);
	if (code < 0) {
		snprintf(why, sizeof(why), "failed: %.200s", run_pod_reason(pod));
		return pod_lost(run, err, why);
	}
	pause_anew(run);
	log_finish(run);
	if (told)
		return 128 + told;
	/* Before the pod is deleted: who finds neither would run it again. */
	(void)state_write(run, SHIM_POD_ENDED, code, "");
	return code;
}

/* Says that it runs, and shows its log, but for *quiet rounds after a log that is over. */
static void pod_runs(struct run *run, unsigned *quiet)
{
	if (*run->said) {
		pause_anew(run);
		run->said[0] = '\0';
		(void)state_write(run, SHIM_POD_CREATED, 0, "");
	}
	/* A log that is over: the pod ends in a moment, or the kubelet closed it. */
	if ((*quiet)-- > 0)
		return;
	enum log_end end = log_follow(run);

	*quiet = end == LOG_COMPLETE ? LOG_QUIET : 0;
	if (end == LOG_COMPLETE)
		pause_anew(run);
}

/* A pod that waits for a moment without a reason is not worth a word. */
static void waiting_say(struct run *run, const char *why)
{
	bool late = now_s() >= run->said_s + SAY_EVERY_S;

	say(run, !*why && late ? "it has no node yet, or its image is not there yet" : why);
}

/* Until it has ended, or this process was told to end. As pod_ended(). */
static int pod_follow(struct run *run, struct error *err)
{
	unsigned quiet = 0;
	int code;

	while (!told) {
		cleanup_json json_t *pod = NULL;

		follow_renew(&run->follow);
		int rc = pod_get(run, &pod);
		if (rc > 0)
			return pod_lost(run, err, "was deleted by another");
		enum run_phase phase = rc == 0 ? run_pod_phase(pod, &code) : RUN_WAITS;
		if (phase == RUN_ENDED)
			return pod_ended(run, pod, code, err);
		if (phase == RUN_STARTED)
			pod_runs(run, &quiet);
		if (phase == RUN_WAITS)
			quiet = 0;
		if (phase == RUN_WAITS && rc == 0)
			waiting_say(run, run_pod_reason(pod));
		if (!told)
			pause_a_moment(run);
	}
	return 128 + told;
}

static int pod_whole(struct run *run, const json_t *pod, struct error *err)
{
	int code = state_read(run);

	/* An earlier process may have asked for it. */
	run->asked = run->options->state_file != NULL;
	run->said_s = now_s();
	run->api.goes_on = call_goes_on;
	run->api.arg = run;
	if (code >= 0) {
		run->phase = NULL;
		pod_delete(run, false);
		return code;
	}
	signals_take();
	/* Lines of the log that an earlier process printed are printed again. */
	if (run->options->log_anew)
		(void)!ftruncate(STDOUT_FILENO, 0);
	int rc = pod_ensure(run, pod, err);
	if (rc < 0)
		return rc;
	rc = pod_follow(run, err);
	pause_anew(run);
	if (told) {
		run->said[0] = '\0';
		(void)state_write(run, SHIM_POD_ENDED, 128 + told, "");
	}
	if (run->created)
		pod_delete(run, told);
	return rc;
}

static int template_of(const struct run_options *options, json_t **ret, struct error *err)
{
	*ret = NULL;
	return options->pod_template ? pod_template_read(options->pod_template, ret, err) : 0;
}

int run_pod(const struct run_options *options, struct error *err)
{
	static struct run run;
	cleanup_json json_t *template = NULL, *pod = NULL;
	int rc = template_of(options, &template, err);

	run.options = options;
	srandom((unsigned)getpid() ^ (unsigned)time(NULL));
	pause_anew(&run);
	if (rc < 0 || (rc = name_make(&run, options->namespace, err)) < 0 ||
	    (rc = run_pod_make(pod_template_of(template, options->queue), options, run.name, &pod,
			       err)) < 0 ||
	    (rc = api_open(&run.api, options->api_url, options->token, options->ca, err)) < 0)
		return rc;
	run.follow = (struct follow){.api = &run.api, .pod = run.pod, .every_s = options->follow_s};
	snprintf(run.container, sizeof(run.container), "%s", run_pod_container(pod));
	rc = pod_whole(&run, pod, err);
	api_close(&run.api);
	return rc;
}

/* ---- the template ------------------------------------------------------------------------ */

/* Whether a pod can be made of it, and, with `api`, whether the API server would take it. One that
 * is away is not asked. */
static int pod_try(struct api *api, const struct run_options *options, const json_t *from,
		   const char *what, struct error *err)
{
	static char *const nothing[] = {(char *)"true", NULL};
	struct run_options trial = *options;
	cleanup_json json_t *pod = NULL, *answer = NULL;
	struct error ignored = {0};
	char path[PATH_SIZE];
	long status = 0;

	trial.command = nothing;
	if (run_pod_make(from, &trial, "carve-job-trial", &pod, &ignored) < 0) {
		bool queue = !strncmp(what, "queue ", strlen("queue "));

		error_set(err, EXIT_CODE_USAGE, "%s%s%s", queue ? what : "", queue ? ": " : "",
			  ignored.message);
		error_hint(err, "%s", ignored.hint);
		return -EXIT_CODE_USAGE;
	}
	if (!api)
		return 0;
	snprintf(path, sizeof(path),
		 "/api/v1/namespaces/%.63s/pods?dryRun=All&fieldValidation=Strict",
		 options->namespace);
	const struct api_call call = {
		.method = "POST", .path = path, .body = pod, .timeout_ms = CALL_TIMEOUT_MS / 3};
	int rc = api_call(api, &call, &status, &answer, &ignored);
	if (passes(rc, status)) {
		fprintf(stderr, "carve-kubernetes: the pod is not checked yet: %s\n",
			rc < 0 ? ignored.message : "the API server is busy");
		return 1;
	}
	if (status / 100 == 2)
		return 0;
	const char *why = json_string_value(json_object_get(answer, "message"));
	error_set(err, EXIT_CODE_USAGE,
		  "--pod-template, %.80s: the API server answered %ld: %.280s", what, status,
		  why ? why : "");
	return -EXIT_CODE_USAGE;
}

/* Where no API server can be asked: a line for each field that no pod has, the last of them *err.
 */
static int fields_check(const json_t *template, struct error *err)
{
	cleanup_json json_t *unknown = json_object();
	const char *name;
	json_t *entry;
	size_t left;

	pod_fields_unknown(json_object_get(template, "pod"), unknown);
	json_object_foreach(json_object_get(template, "queues"), name, entry)
		pod_fields_unknown(json_object_get(entry, "pod"), unknown);
	left = json_object_size(unknown);
	json_object_foreach(unknown, name, entry)
	{
		if (--left)
			fprintf(stderr, "carve-kubernetes: --pod-template: no pod has %s\n", name);
		else
			error_set(err, EXIT_CODE_USAGE, "--pod-template: no pod has %s", name);
	}
	if (!json_object_size(unknown))
		return 0;
	error_hint(err, "fields newer than Kubernetes " POD_FIELDS_VERSION
			" are the API server's to check: --api URL");
	return -EXIT_CODE_USAGE;
}

/* All pods of the template. `api`: NULL, or the API server that is asked about each. */
static int pods_try(struct api *api, const struct run_options *options, const json_t *template,
		    struct error *err)
{
	json_t *queues = json_object_get(template, "queues"), *queue;
	const char *name;
	char what[96];
	int rc = 0;

	/* A base may have no image, where each queue has one. */
	if (!json_object_size(queues))
		rc = pod_try(api, options, json_object_get(template, "pod"), "the pod", err);
	json_object_foreach(queues, name, queue)
	{
		snprintf(what, sizeof(what), "queue %.64s", name);
		if (rc == 0)
			rc = pod_try(api, options, json_object_get(queue, "pod"), what, err);
	}
	return rc;
}

int run_template(const struct run_options *options, struct error *err)
{
	cleanup_json json_t *template = NULL;
	bool asks = options->api_url || secure_getenv("KUBERNETES_SERVICE_HOST");
	struct api api;

	if (!options->pod_template && !options->image)
		return error_set(err, EXIT_CODE_USAGE,
				 "neither --pod-template nor --image is given");
	int rc = template_of(options, &template, err);
	if (rc == 0 && !template)
		template = json_pack("{s:{}, s:{}}", "pod", "queues");
	if (rc == 0 && !asks)
		rc = fields_check(template, err);
	if (rc == 0 && asks)
		rc = api_open(&api, options->api_url, options->token, options->ca, err);
	if (rc < 0)
		return rc;
	rc = pods_try(asks ? &api : NULL, options, template, err);
	if (asks)
		api_close(&api);
	if (rc < 0)
		return rc;
	/* The file was checked, and nobody is there to ask. */
	if (!asks)
		fputs("carve-kubernetes: no API server is named, so the file alone was checked; "
		      "--api URL asks it, too\n",
		      stderr);
	json_dumpf(template, stdout, JSON_COMPACT);
	return EXIT_CODE_OK;
}
