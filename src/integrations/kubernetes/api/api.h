/* Calls to the API server. */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>

struct error;

/* Connections that are kept open between calls. */
#define API_IDLE_MAX 4

/* Called about once a second during a call or a watch. True: go on. */
typedef bool (*api_tick_cb)(void *arg);

/* Where it is, and as whom to speak. Functions on it are thread-safe. */
struct api {
	char url[512];        /* without a slash at its end */
	char token[PATH_MAX]; /* file; read for each call, as it is renewed; empty: none */
	char ca[PATH_MAX];    /* file; empty: the system's */
	pthread_mutex_t lock; /* a leaf */
	void *idle[API_IDLE_MAX];
	size_t idle_count;
	/* Set before the calls: false ends them all, and each new one. NULL: nothing does. */
	api_tick_cb goes_on;
	void *arg;
};

/* If `url` is NULL, it is that of the cluster that this process runs in (KUBERNETES_SERVICE_HOST).
 * The token and the CA are those of its service account where they are NULL, too. 0, or negative
 * with *err. */
int api_open(struct api *ret, const char *url, const char *token, const char *ca,
	     struct error *err);
void api_close(struct api *api);
/* The answer of api->goes_on. */
bool api_goes_on(const struct api *api);

struct api_call {
	const char *method;       /* "GET", ... */
	const char *path;         /* "/api/v1/nodes/n1", with any query */
	const json_t *body;       /* NULL: none */
	const char *content_type; /* NULL: application/json */
	long timeout_ms;
	bool *sent; /* set to true once the API server may have got the call; may be NULL */
};

/* 0 with *ret_status (HTTP's) and *ret (owned by the caller; NULL where the answer is no JSON).
 * Negative with *err where there was no answer (EXIT_CODE_UNREACHABLE). */
int api_call(struct api *api, const struct api_call *call, long *ret_status, json_t **ret,
	     struct error *err);
/* Words what the API server answered in place of what was asked for: 2xx with no JSON, or another
 * status. Returns negative. */
int api_status_error(const struct api_call *call, long status, const json_t *answer,
		     struct error *err);

/* Receives the events of a watch, one JSON object a line. True: go on. */
typedef bool (*api_line_cb)(void *arg, const char *line, size_t length);
/* Reads a watch until it ends, or a callback ends it. 0 with *ret_status, or as api_call(). */
int api_watch(struct api *api, const char *path, long timeout_ms, api_line_cb line,
	      api_tick_cb tick, void *arg, long *ret_status, struct error *err);
/* The same for what is no list of events, such as a log: `bytes` gets them as they come, and only
 * where the answer is 2xx. */
int api_stream(struct api *api, const char *path, long timeout_ms, api_line_cb bytes,
	       api_tick_cb tick, void *arg, long *ret_status, struct error *err);
