#include "integrations/kubernetes/api/api.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"

#define ACCOUNT "/var/run/secrets/kubernetes.io/serviceaccount/"
#define ANSWER_MAX (64u << 20)
/* An event of a watch; etcd's objects are smaller. */
#define LINE_MAX_BYTES (4u << 20)
#define CONNECT_TIMEOUT_MS 5000L
#define TOKEN_MAX 16384

struct text {
	char *data;
	size_t size, max;
};

struct watch {
	const struct api *api;
	struct text line;
	api_line_cb on_line;
	api_tick_cb on_tick;
	void *arg;
	CURL *curl;
};

static int path_take(char to[static PATH_MAX], const char *from)
{
	return snprintf(to, PATH_MAX, "%s", from ? from : "") < PATH_MAX ? 0 : -1;
}

int api_open(struct api *ret, const char *url, const char *token, const char *ca, struct error *err)
{
	const char *host = secure_getenv("KUBERNETES_SERVICE_HOST");
	const char *port = secure_getenv("KUBERNETES_SERVICE_PORT");
	bool inside = !url;

	*ret = (struct api){.lock = PTHREAD_MUTEX_INITIALIZER};
	if (inside && (!host || !*host)) {
		error_set(err, EXIT_CODE_USAGE,
			  "this is no pod of a cluster, and no API server is named");
		error_hint(err, "--api https://HOST:6443 --token-file FILE --ca-file FILE");
		return -EXIT_CODE_USAGE;
	}
	int length = inside ? snprintf(ret->url, sizeof(ret->url),
				       strchr(host, ':') ? "https://[%s]:%s" : "https://%s:%s",
				       host, port && *port ? port : "443")
			    : snprintf(ret->url, sizeof(ret->url), "%s", url);
	if (length >= (int)sizeof(ret->url) ||
	    path_take(ret->token, token || !inside ? token : ACCOUNT "token") < 0 ||
	    path_take(ret->ca, ca || !inside ? ca : ACCOUNT "ca.crt") < 0)
		return error_set(err, EXIT_CODE_USAGE, "--api: the URL or a path is too long");
	while (length > 0 && ret->url[length - 1] == '/')
		ret->url[--length] = '\0';
	if (strncmp(ret->url, "https://", 8) != 0 && strncmp(ret->url, "http://", 7) != 0)
		return error_set(err, EXIT_CODE_USAGE, "--api: '%.200s' is no URL", ret->url);
	return 0;
}

void api_close(struct api *api)
{
	while (api->idle_count)
		curl_easy_cleanup(api->idle[--api->idle_count]);
}

/* ---- connections ------------------------------------------------------------------------- */

static CURL *handle_take(struct api *api)
{
	CURL *curl = NULL;

	pthread_mutex_lock(&api->lock);
	if (api->idle_count)
		curl = api->idle[--api->idle_count];
	pthread_mutex_unlock(&api->lock);
	if (!curl)
		return curl_easy_init();
	curl_easy_reset(curl);
	return curl;
}

static void handle_give(struct api *api, CURL *curl, bool keep)
{
	pthread_mutex_lock(&api->lock);
	keep = keep && api->idle_count < API_IDLE_MAX;
	if (keep)
		api->idle[api->idle_count++] = curl;
	pthread_mutex_unlock(&api->lock);
	if (!keep)
		curl_easy_cleanup(curl);
}

/* NULL with *err: the token that is named cannot be read, for example. Without it the call would be
 * nobody's, and the answer that nobody may do it. */
static struct curl_slist *headers_make(const struct api *api, const char *content_type,
				       struct error *err)
{
	char header[TOKEN_MAX + 64];
	char token[TOKEN_MAX];
	struct curl_slist *list = NULL;
	ssize_t n = *api->token ? file_read(api->token, token, sizeof(token)) : 0;

	if (n < 0) {
		error_set(err, EXIT_CODE_UNREACHABLE, "--token-file %.200s: %s", api->token,
			  strerrordesc_np((int)-n));
		return NULL;
	}
	snprintf(header, sizeof(header), "Content-Type: %s",
		 content_type ? content_type : "application/json");
	list = curl_slist_append(list, header);
	list = curl_slist_append(list, "Accept: application/json");
	if (n > 0) {
		token[strcspn(token, "\r\n")] = '\0';
		snprintf(header, sizeof(header), "Authorization: Bearer %s", token);
		list = curl_slist_append(list, header);
		explicit_bzero(token, sizeof(token));
		explicit_bzero(header, sizeof(header));
	}
	if (!list)
		error_set(err, EXIT_CODE_UNREACHABLE, "not enough memory for a call");
	return list;
}

static void handle_prepare(CURL *curl, const struct api *api, const char *url,
			   struct curl_slist *headers)
{
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(curl, CURLOPT_USERAGENT, "carve/" CARVE_VERSION);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_PROXY, "");
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
	curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
	if (*api->ca)
		curl_easy_setopt(curl, CURLOPT_CAINFO, api->ca);
}

/* ---- calls ------------------------------------------------------------------------------- */

static int text_append(struct text *text, const char *data, size_t size)
{
	if (size > text->max - text->size)
		return -1;
	char *grown = realloc(text->data, text->size + size + 1);
	if (!grown)
		return -1;
	memcpy(grown + text->size, data, size);
	text->data = grown;
	text->size += size;
	grown[text->size] = '\0';
	return 0;
}

static size_t on_answer(char *data, size_t unit, size_t count, void *arg)
{
	return text_append(arg, data, unit * count) < 0 ? 0 : unit * count;
}

bool api_goes_on(const struct api *api)
{
	return !api->goes_on || api->goes_on(api->arg);
}

/* libcurl calls it about once a second. */
static int on_call_progress(void *arg, curl_off_t to_get, curl_off_t got, curl_off_t to_put,
			    curl_off_t put)
{
	return !api_goes_on(arg);
}

static int reach_error(const struct api *api, CURLcode code, struct error *err)
{
	error_set(err, EXIT_CODE_UNREACHABLE, "the API server at %.200s does not answer: %s",
		  api->url, curl_easy_strerror(code));
	if (code == CURLE_PEER_FAILED_VERIFICATION)
		error_hint(err, "--ca-file FILE names the authority of its certificate");
	return -EXIT_CODE_UNREACHABLE;
}

int api_call(struct api *api, const struct api_call *call, long *ret_status, json_t **ret,
	     struct error *err)
{
	struct curl_slist *headers = headers_make(api, call->content_type, err);
	CURL *curl = headers ? handle_take(api) : NULL;
	cleanup_free char *url = NULL, *body = NULL;
	struct text answer = {.max = ANSWER_MAX};
	CURLcode code = CURLE_OUT_OF_MEMORY;

	*ret = NULL;
	if (!headers)
		return -EXIT_CODE_UNREACHABLE;
	body = call->body ? json_dumps(call->body, JSON_COMPACT) : NULL;
	if (curl && (body || !call->body) && asprintf(&url, "%s%s", api->url, call->path) > 0) {
		handle_prepare(curl, api, url, headers);
		curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, call->method);
		curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, call->timeout_ms);
		curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_answer);
		curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
		curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
		curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_call_progress);
		curl_easy_setopt(curl, CURLOPT_XFERINFODATA, api);
		if (body)
			curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
		code = api_goes_on(api) ? curl_easy_perform(curl) : CURLE_ABORTED_BY_CALLBACK;
	}
	cleanup_free char *data = answer.data;
	long sent = 0;
	if (curl)
		curl_easy_getinfo(curl, CURLINFO_REQUEST_SIZE, &sent);
	if (call->sent && (sent > 0 || code == CURLE_OK))
		*call->sent = true;
	if (code == CURLE_OK) {
		curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, ret_status);
		*ret = json_loadb(data ? data : "", answer.size, 0, NULL);
	}
	if (curl)
		handle_give(api, curl, code == CURLE_OK);
	curl_slist_free_all(headers);
	return code == CURLE_OK ? 0 : reach_error(api, code, err);
}

int api_status_error(const struct api_call *call, long status, const json_t *answer,
		     struct error *err)
{
	const char *message = json_string_value(json_object_get(answer, "message"));

	if (status / 100 == 2)
		return error_set(err, EXIT_CODE_UNREACHABLE,
				 "%s %.120s: the API server's answer %s", call->method, call->path,
				 answer ? "makes no sense" : "is no JSON");
	return error_set(err,
			 status == 401 || status == 403   ? EXIT_CODE_NOT_PERMITTED
			 : status == 429 || status >= 500 ? EXIT_CODE_UNREACHABLE
							  : EXIT_CODE_FAILED,
			 "%s %.120s: the API server answered %ld%s%.240s", call->method, call->path,
			 status, message ? ": " : "", message ? message : "");
}

/* ---- watches ----------------------------------------------------------------------------- */

static size_t on_watched(char *data, size_t unit, size_t count, void *arg)
{
	struct watch *watch = arg;
	size_t size = unit * count, used = 0;

	while (used < size) {
		const char *end = memchr(data + used, '\n', size - used);
		size_t length = end ? (size_t)(end - data) - used : size - used;

		if (text_append(&watch->line, data + used, length) < 0)
			return 0;
		used += length + (end != NULL);
		if (end && watch->line.size &&
		    !watch->on_line(watch->arg, watch->line.data, watch->line.size))
			return 0;
		if (end)
			watch->line.size = 0;
	}
	return size;
}

static int on_progress(void *arg, curl_off_t to_get, curl_off_t got, curl_off_t to_put,
		       curl_off_t put)
{
	struct watch *watch = arg;

	return !api_goes_on(watch->api) || (watch->on_tick && !watch->on_tick(watch->arg));
}

/* The bytes of a stream as they come. */
static size_t on_streamed(char *data, size_t unit, size_t count, void *arg)
{
	struct watch *watch = arg;
	size_t size = unit * count;

	return watch->on_line(watch->arg, data, size) ? size : 0;
}

static int stream(struct api *api, const char *path, long timeout_ms, struct watch *watch,
		  curl_write_callback on_data, long *ret_status, struct error *err)
{
	struct curl_slist *headers = headers_make(api, NULL, err);
	CURL *curl = headers ? handle_take(api) : NULL;
	cleanup_free char *url = NULL;
	CURLcode code = CURLE_OUT_OF_MEMORY;

	*ret_status = 0;
	if (!headers)
		return -EXIT_CODE_UNREACHABLE;
	if (curl && asprintf(&url, "%s%s", api->url, path) > 0) {
		handle_prepare(curl, api, url, headers);
		curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, timeout_ms);
		curl_easy_setopt(curl, CURLOPT_FAILONERROR, on_data == on_streamed ? 1L : 0L);
		curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
		curl_easy_setopt(curl, CURLOPT_WRITEDATA, watch);
		curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
		curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
		curl_easy_setopt(curl, CURLOPT_XFERINFODATA, watch);
		code = curl_easy_perform(curl);
		curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, ret_status);
	}
	free(watch->line.data);
	if (curl)
		handle_give(api, curl, false);
	curl_slist_free_all(headers);
	/* Where a callback ended it, or its time was over, it did what it was for. */
	return code == CURLE_OK || code == CURLE_WRITE_ERROR || code == CURLE_ABORTED_BY_CALLBACK ||
			       code == CURLE_HTTP_RETURNED_ERROR ||
			       (code == CURLE_OPERATION_TIMEDOUT && *ret_status)
		       ? 0
		       : reach_error(api, code, err);
}

int api_watch(struct api *api, const char *path, long timeout_ms, api_line_cb line,
	      api_tick_cb tick, void *arg, long *ret_status, struct error *err)
{
	struct watch watch = {.api = api,
			      .line.max = LINE_MAX_BYTES,
			      .on_line = line,
			      .on_tick = tick,
			      .arg = arg};

	return stream(api, path, timeout_ms, &watch, on_watched, ret_status, err);
}

int api_stream(struct api *api, const char *path, long timeout_ms, api_line_cb bytes,
	       api_tick_cb tick, void *arg, long *ret_status, struct error *err)
{
	struct watch watch = {.api = api, .on_line = bytes, .on_tick = tick, .arg = arg};

	return stream(api, path, timeout_ms, &watch, on_streamed, ret_status, err);
}
