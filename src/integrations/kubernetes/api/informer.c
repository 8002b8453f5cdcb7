#include "integrations/kubernetes/api/informer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "client/client.h"
#include "daemon/host/log.h"
#include "integrations/kubernetes/api/retry.h"

#define LIST_TIMEOUT_MS 30000L
/* Objects of one answer. */
#define PAGE 500
/* The API server ends a watch after that long; the client a little later. */
#define WATCH_SECONDS 240
#define WATCH_JITTER_SECONDS 120
#define VERSION_SIZE 64
#define STATUS_GONE 410

enum watch_end {
	WATCH_GOES_ON, /* from the version that it came to */
	WATCH_TOO_OLD, /* list again */
	WATCH_FAILED,
};

struct watching {
	const struct informer *informer;
	char version[VERSION_SIZE];
	enum watch_end end;
};

static bool version_take(const json_t *object, char to[static VERSION_SIZE])
{
	const char *version = json_string_value(
		json_object_get(json_object_get(object, "metadata"), "resourceVersion"));

	return version && strlen(version) && strlen(version) < VERSION_SIZE &&
	       strspn(version, "0123456789") == strlen(version) &&
	       snprintf(to, VERSION_SIZE, "%s", version) > 0;
}

/* ---- listing ----------------------------------------------------------------------------- */

/* One page. 0 with the text for the next one ("": it was the last), or negative with *err. */
static int page_read(const struct informer *informer, char *next, size_t size,
		     char version[static VERSION_SIZE], struct error *err)
{
	char path[4096];
	struct api_call call = {.method = "GET", .path = path, .timeout_ms = LIST_TIMEOUT_MS};
	cleanup_json json_t *list = NULL;
	json_t *item;
	long status;
	size_t i;

	snprintf(path, sizeof(path), "%s?limit=%d%s%s%s%s", informer->path, PAGE,
		 *informer->selector ? "&" : "", informer->selector, *next ? "&continue=" : "",
		 next);
	int rc = api_call(informer->api, &call, &status, &list, err);
	if (rc < 0)
		return rc;
	if (status != 200 || !list)
		return api_status_error(&call, status, list, err);
	const json_t *items = json_object_get(list, "items");
	const char *wrong = !json_is_array(items) && !json_is_null(items) ? "items"
			    : !version_take(list, version)                ? "resourceVersion"
									  : NULL;
	if (wrong)
		return error_set(err, EXIT_CODE_UNREACHABLE,
				 "GET %.120s: the API server's answer has no valid %s", path,
				 wrong);
	json_array_foreach(items, i, item) informer->each(informer->arg, INFORMER_PRESENT, item);
	const char *more =
		json_string_value(json_object_get(json_object_get(list, "metadata"), "continue"));
	if (more && *more && !strcmp(more, next))
		return error_set(err, EXIT_CODE_FAILED, "the API server names one page of %s twice",
				 informer->path);
	/* It is base64 for URLs, so it needs no encoding. */
	if (snprintf(next, size, "%s", more ? more : "") >= (int)size)
		return error_set(err, EXIT_CODE_FAILED, "a page's token is too long");
	return 0;
}

static int list_read(const struct informer *informer, char version[static VERSION_SIZE],
		     struct error *err)
{
	char next[3072] = "";
	int rc;

	informer->each(informer->arg, INFORMER_LIST_BEGINS, NULL);
	do
		rc = page_read(informer, next, sizeof(next), version, err);
	while (rc == 0 && *next && informer->goes_on(informer->arg));
	if (rc == 0 && !*next)
		informer->each(informer->arg, INFORMER_LIST_ENDS, NULL);
	return rc;
}

int informer_list(const struct informer *informer, struct error *err)
{
	char version[VERSION_SIZE];

	return list_read(informer, version, err);
}

/* ---- watching ---------------------------------------------------------------------------- */

static bool on_line(void *arg, const char *line, size_t length)
{
	struct watching *watching = arg;
	const struct informer *informer = watching->informer;
	cleanup_json json_t *event = json_loadb(line, length, 0, NULL);
	const char *type = json_string_value(json_object_get(event, "type"));
	const json_t *object = json_object_get(event, "object");

	if (!type || !object) {
		watching->end = WATCH_FAILED;
		return false;
	}
	if (!strcmp(type, "ERROR")) {
		watching->end = json_integer_value(json_object_get(object, "code")) == STATUS_GONE
					? WATCH_TOO_OLD
					: WATCH_FAILED;
		return false;
	}
	if (!strcmp(type, "ADDED") || !strcmp(type, "MODIFIED"))
		informer->each(informer->arg, INFORMER_PRESENT, object);
	else if (!strcmp(type, "DELETED"))
		informer->each(informer->arg, INFORMER_DELETED, object);
	version_take(object, watching->version);
	return informer->goes_on(informer->arg);
}

static bool on_tick(void *arg)
{
	struct watching *watching = arg;

	return watching->informer->goes_on(watching->informer->arg);
}

static int watch_read(struct watching *watching, struct error *err)
{
	const struct informer *informer = watching->informer;
	int seconds = WATCH_SECONDS + (int)(random() % WATCH_JITTER_SECONDS);
	char path[1024];
	long status = 0;

	watching->end = WATCH_GOES_ON;
	snprintf(path, sizeof(path),
		 "%s?watch=1&allowWatchBookmarks=true&resourceVersion=%s&timeoutSeconds=%d%s%s",
		 informer->path, watching->version, seconds, *informer->selector ? "&" : "",
		 informer->selector);
	int rc = api_watch(informer->api, path, (seconds + 30) * 1000L, on_line, on_tick, watching,
			   &status, err);
	if (status == STATUS_GONE)
		watching->end = WATCH_TOO_OLD;
	else if (rc == 0 && status != 200)
		watching->end = WATCH_FAILED;
	if (rc == 0 && watching->end == WATCH_FAILED)
		rc = error_set(err, EXIT_CODE_FAILED, "a watch of %s failed (%ld)", informer->path,
			       status);
	return rc;
}

static void pause_after(const struct informer *informer, unsigned failures)
{
	long long until = now_monotonic_ms() + retry_wait_ms(failures, (unsigned)random());

	while (now_monotonic_ms() < until && informer->goes_on(informer->arg))
		nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
}

void informer_run(const struct informer *informer)
{
	struct watching watching = {.informer = informer, .end = WATCH_TOO_OLD};
	unsigned failures = 0;

	while (informer->goes_on(informer->arg)) {
		struct error err = {0};
		long long began = now_monotonic_ms();
		int rc = watching.end == WATCH_TOO_OLD ? list_read(informer, watching.version, &err)
						       : 0;

		if (rc == 0)
			rc = watch_read(&watching, &err);
		/* Also one that the server ends at once, again and again. */
		if (rc == 0 && now_monotonic_ms() - began > 1000)
			failures = 0;
		else
			pause_after(informer, failures++);
		if (rc < 0 && informer->goes_on(informer->arg))
			log_event(LOG_WARNING, "watch.failed path=%s error=\"%s\"", informer->path,
				  err.message);
	}
}
