#include "integrations/kubernetes/run.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/macros.h"
#include "client/client.h"
#include "integrations/kubernetes/api.h"
#include "integrations/kubernetes/run_pod.h"

#define CALL_TIMEOUT_MS 30000L
/* A log ends with its container; an hour later it is asked for again. */
#define LOG_TIMEOUT_MS 3600000L
#define PAUSE_NS 500000000L
/* A pod whose deletion the API server does not answer is tried so often (a minute). */
#define DELETIONS_MAX 120
/* The log of a pod that has ended is asked for so often, where it is refused. */
#define LOG_REFUSALS_MAX 10
/* Where a log is over and its pod runs, it is asked for again after so many pauses. */
#define LOG_QUIET 20
#define PATH_SIZE 256
#define REASON_SIZE 256

struct run {
	struct api api;
	char name[32];
	char pods[PATH_SIZE / 2], pod[PATH_SIZE - 32]; /* paths */
	char said[REASON_SIZE];                        /* why it waits, as it was told last */
	uint64_t printed;                              /* bytes of the log */
	uint64_t seen;                                 /* of this answer; never more */
};

static volatile sig_atomic_t told;

static void on_signal(int number)
{
	told = number;
}

/* Not restarted: a signal ends a pause. */
static void signals_take(void)
{
	struct sigaction action = {.sa_handler = on_signal};

	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
}

static void pause_a_moment(void)
{
	nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
}

static void say(struct run *run, const char *text)
{
	if (!*text || !strncmp(run->said, text, sizeof(run->said) - 1))
		return;
	snprintf(run->said, sizeof(run->said), "%s", text);
	fprintf(stderr, "carve-kubernetes: pod %s: %s\n", run->name, run->said);
}

/* An API server that is away or busy comes back; the pod goes on meanwhile. */
static bool passes(int rc, long status)
{
	return rc < 0 || status == 429 || status >= 500;
}

/* ---- the pod ----------------------------------------------------------------------------- */

static int name_make(struct run *run, const char *namespace, struct error *err)
{
	static const char letters[] = "bcdfghjklmnpqrstvwxz2456789";
	unsigned char random[12];

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return error_set(err, EXIT_CODE_FAILED, "the kernel has no random bytes");
	for (size_t i = 0; i < sizeof(random); i++)
		random[i] = (unsigned char)letters[random[i] % (sizeof(letters) - 1)];
	snprintf(run->name, sizeof(run->name), "carve-job-%.12s", (const char *)random);
	snprintf(run->pods, sizeof(run->pods), "/api/v1/namespaces/%.63s/pods", namespace);
	snprintf(run->pod, sizeof(run->pod), "%s/%s", run->pods, run->name);
	return 0;
}

/* The name is this pod's alone: one that exists already is that of a call whose answer was lost. */
static int pod_create(struct run *run, const json_t *pod, struct error *err)
{
	const struct api_call call = {
		.method = "POST", .path = run->pods, .body = pod, .timeout_ms = CALL_TIMEOUT_MS};
	long status = 0;

	while (!told) {
		cleanup_json json_t *answer = NULL;
		struct error failed = {0};
		int rc = api_call(&run->api, &call, &status, &answer, &failed);

		if (rc == 0 && (status == 201 || status == 409))
			return 0;
		if (!passes(rc, status))
			return api_status_error(&call, status, answer, err);
		say(run, rc < 0 ? failed.message : "the API server is busy");
		pause_a_moment();
	}
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

	if (rc < 0)
		say(run, failed.message);
	return rc < 0 || (status != 200 && status != 404) ? -1 : status == 404;
}

static void pod_delete(struct run *run)
{
	const struct api_call call = {
		.method = "DELETE", .path = run->pod, .timeout_ms = CALL_TIMEOUT_MS};

	for (int i = 0; i < DELETIONS_MAX; i++) {
		cleanup_json json_t *answer = NULL;
		struct error ignored = {0};
		long status = 0;
		int rc = api_call(&run->api, &call, &status, &answer, &ignored);

		if (!passes(rc, status))
			return;
		pause_a_moment();
	}
	fprintf(stderr, "carve-kubernetes: pod %s could not be deleted\n", run->name);
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
	return !told;
}

enum log_end { LOG_COMPLETE, LOG_CUT, LOG_REFUSED };

/* Follows it until it ends, or the connection does. */
static enum log_end log_follow(struct run *run)
{
	char path[PATH_SIZE];
	struct error ignored = {0};
	long status = 0;

	run->seen = 0;
	snprintf(path, sizeof(path), "%s/log?follow=true", run->pod);
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
		pause_a_moment();
	}
	if (!told)
		fprintf(stderr, "carve-kubernetes: pod %s: the end of its log cannot be read\n",
			run->name);
}

/* ---- the whole --------------------------------------------------------------------------- */

/* The exit code, or negative with *err. */
static int pod_ended(struct run *run, const json_t *pod, int code, struct error *err)
{
	if (code < 0)
		return error_set(err, EXIT_CODE_FAILED, "pod %s failed: %.160s", run->name,
				 run_pod_reason(pod));
	log_finish(run);
	return told ? 128 + told : code;
}

/* Until it has ended, or this process was told to end. As pod_ended(). */
static int pod_follow(struct run *run, struct error *err)
{
	unsigned quiet = 0;
	int code;

	while (!told) {
		cleanup_json json_t *pod = NULL;
		int rc = pod_get(run, &pod);

		if (rc > 0)
			return error_set(err, EXIT_CODE_FAILED, "pod %s was deleted by another",
					 run->name);
		enum run_phase phase = rc == 0 ? run_pod_phase(pod, &code) : RUN_WAITS;
		if (phase == RUN_ENDED)
			return pod_ended(run, pod, code, err);
		/* A log that is over: the pod ends in a moment, or the kubelet closed it. */
		if (phase == RUN_STARTED && quiet-- == 0)
			quiet = log_follow(run) == LOG_COMPLETE ? LOG_QUIET : 0;
		if (phase == RUN_WAITS)
			quiet = 0;
		if (phase == RUN_WAITS && rc == 0)
			say(run, run_pod_reason(pod));
		if (!told)
			pause_a_moment();
	}
	return 128 + told;
}

static int template_read(const char *path, json_t **ret, struct error *err)
{
	json_error_t where;

	*ret = NULL;
	if (!path)
		return 0;
	cleanup_json json_t *file = json_load_file(path, JSON_REJECT_DUPLICATES, &where);
	json_t *inner = json_object_get(file, "template");
	json_t *pod = json_is_object(inner) ? inner : file;

	if (json_is_object(pod)) {
		*ret = json_incref(pod);
		return 0;
	}
	error_set(err, EXIT_CODE_USAGE, "--pod-template %.200s: %.160s", path,
		  file ? "it is no object" : where.text);
	error_hint(err, "it is JSON: kubectl create --dry-run=client -o json -f FILE.yaml");
	return -EXIT_CODE_USAGE;
}

int run_pod(const struct run_options *options, struct error *err)
{
	static struct run run;
	cleanup_json json_t *template = NULL, *pod = NULL;
	int rc = template_read(options->pod_template, &template, err);

	if (rc < 0 || (rc = name_make(&run, options->namespace, err)) < 0 ||
	    (rc = run_pod_make(template, options, run.name, &pod, err)) < 0 ||
	    (rc = api_open(&run.api, options->api_url, options->token, options->ca, err)) < 0)
		return rc;
	signals_take();
	rc = pod_create(&run, pod, err);
	if (rc == 0) {
		rc = pod_follow(&run, err);
		pod_delete(&run);
	}
	api_close(&run.api);
	return rc;
}
